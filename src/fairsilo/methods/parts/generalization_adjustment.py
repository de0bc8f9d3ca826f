"""GA, Generalization Adjustment (Zhang et al., CVPR 2023). Differs from FedAvg by weights that follow the gaps.

A silo's gap is the loss of the global model minus that of its own model, on its validation data. How gaps are
measured, the warm-up and the carried weights are shared with FAA: `fairsilo.methods.gaps`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About
from fairsilo.core.server import Server, Updates
from fairsilo.fields import setting
from fairsilo.methods.gaps import GAPS, FollowsGaps, GapState


@dataclass(frozen=True)
class GeneralizationAdjustment(FollowsGaps):
    """a_i <- a_i + (G_i / max_j |G_j|) d_r / M, clipped and normalised; used from the next aggregation on."""

    name = "generalization-adjustment"
    about = About(
        paper="Zhang et al., Federated Domain Generalization with Generalization Adjustment, CVPR 2023",
        formula="a_i <- a_i + (G_i / max_j |G_j|) d_r / M, then clip to [0, 1] and divide by the sum",
        sends=(*GAPS, EACH_UPDATE),
        keeps=("aggregation weights at the server",),
    )

    metric: str = setting("loss", "what gaps are measured in", choices=("loss", "accuracy"))

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        state = GapState(server, updates, server.memory.of(self), self.metric)
        state.adjust(state.movable(self.warmup), self.step_size, self.schedule, self.centred)
        return state.close()
