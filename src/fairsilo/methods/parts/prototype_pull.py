"""FedProto (Tan et al., AAAI 2022). Differs from FedAvg by pulling features to their class's global prototype.

Originally only prototypes are exchanged; FedHEAL's comparison averages the model as well (`share_model`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.output import Output, vectors_in
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vectors import PRIVATE, SHARED, Slot
from fairsilo.fields import around, setting
from fairsilo.methods.contrasts import prototype_distance
from fairsilo.methods.parts.prototypes import PROTOTYPES


@dataclass(frozen=True)
class PrototypePull(Part):
    """CE + mu MSE(z, P_y), the mean over batch and feature dimensions; no prototype, no pull."""

    name = "prototype-pull"
    about = About(
        paper="Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022",
        formula="CE + mu mean_b mean_d (z - P_y)^2",
        keeps=("without share_model, its whole model at the silo",),
    )
    needs = frozenset({"one-class", "trained-features", "part:prototypes"})

    mu: float = setting(2.0, "strength of the pull", low=0, search=around(10))
    share_model: bool = setting(True, "average the model too; without, silos exchange prototypes alone")

    @property
    def results(self) -> str:
        return "global" if self.share_model else "personal"

    def kind(self, slot: Slot) -> str:
        return SHARED if self.share_model else PRIVATE

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        if silo.scratch[PROTOTYPES] is None:
            return loss
        means, known = silo.scratch[PROTOTYPES]
        return loss + self.mu * prototype_distance(vectors_in(output), batch.targets, means, known)
