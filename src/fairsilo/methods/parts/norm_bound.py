"""A bound on the length of updates (as in Sun et al., 2019). Differs from FedAvg by cutting long updates down to it.

So that one silo, broken or hostile, cannot move the model further than the others do; a direction it can still give.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.errors import FairsiloError
from fairsilo.fields import setting
from fairsilo.methods.medians import stretches


@dataclass(frozen=True)
class NormBound(Part):
    """D_i <- D_i min(1, B / |D_i|), B a given bound or a multiple of the median length of the round's updates."""

    name = "norm-bound"
    about = About(
        paper="Sun et al., Can You Really Backdoor Federated Learning?, 2019",
        formula="B = min(bound, times median_j |D_j|);  D_i <- D_i min(1, B / |D_i|)",
        sends=(EACH_UPDATE,),
    )
    needs = frozenset({"shared-tensors"})

    bound: float = setting(0.0, "largest length of an update; 0: no such bound", low=0)
    times: float = setting(
        3.0,
        "largest length as a multiple of the round's median; 0: no such bound",
        low=0,
        rare="where one is far longer",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bound and not self.times:
            raise FairsiloError(f"{self.name} has neither bound nor times, so that it would do nothing")

    def collect(self, server: Server, updates: Updates) -> Updates:
        """What is not trained (BatchNorm's statistics) is cut by itself, by the median alone."""
        for (place, what), bound in zip(stretches(updates.layout), (self.bound, None), strict=True):
            lengths = torch.linalg.vector_norm(updates.deltas[:, place].double(), dim=1)
            most = min(filter(None, (bound, self.times * float(lengths.median()))), default=float("inf"))
            for row, (silo, length) in enumerate(zip(updates.silos, lengths.tolist(), strict=True)):
                if length > most:
                    updates.deltas[row, place] *= most / length
                    server.note(f"the {what} of {silo} was cut from length {length:.3g} to {most:.3g}")
        return updates
