"""FedPer (Arivazhagan et al., 2019). Differs from FedAvg by a head that stays with its silo.

The server still averages the silos' heads: newcomers and unseen silos, which have none of their own, use that mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairsilo.config import TrainSettings
from fairsilo.core.part import About, Part
from fairsilo.core.vectors import AVERAGED, SHARED, Layout, Slot
from fairsilo.methods.heads import is_head, require_head


@dataclass(frozen=True)
class LocalHead(Part):
    """The tensors of the head are `averaged`: sent, but not taken back."""

    name = "local-head"
    about = About(
        paper="Arivazhagan et al., Federated Learning with Personalization Layers, 2019",
        formula="W <- sum_i p_i w_i for everything; silo i keeps its own head",
        keeps=("its head at the silo",),
        results="personal",
    )

    def kind(self, slot: Slot) -> str:
        return AVERAGED if is_head(slot) else SHARED

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_head(self.name, layout)
