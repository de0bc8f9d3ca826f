"""FedBN (Li et al., ICLR 2021). Differs from FedAvg by batch normalisation that stays with its silo.

The server still averages the silos' norms: newcomers and unseen silos, which have none of their own, use that mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairsilo.config import TrainSettings
from fairsilo.core.part import About, Part
from fairsilo.core.vectors import AVERAGED, SHARED, Layout, Slot
from fairsilo.errors import FairsiloError


@dataclass(frozen=True)
class LocalNorms(Part):
    """Scale, shift and statistics of every BatchNorm module are `averaged`: sent, but not taken back."""

    name = "local-norms"
    about = About(
        paper="Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021",
        formula="W <- sum_i p_i w_i for everything; silo i keeps its own BatchNorm tensors",
        keeps=("its BatchNorm parameters and statistics at the silo",),
        results="personal",
    )

    def kind(self, slot: Slot) -> str:
        return AVERAGED if slot.group == "batch-norm" else SHARED

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        if not any(slot.group == "batch-norm" for slot in layout.slots):
            raise FairsiloError(
                f"{self.name}: the model has no BatchNorm module, so keeping norms local would change nothing"
            )
