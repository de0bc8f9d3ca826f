"""Plain local training: nothing of the model is sent, every silo goes on with its own. The limit that federation must
beat."""

from __future__ import annotations

from dataclasses import dataclass

from fairsilo.core.part import About, Part
from fairsilo.core.vectors import PRIVATE, Slot


@dataclass(frozen=True)
class NoSharing(Part):
    """Every tensor is `private`; there is no global model, so nothing is said of unseen silos."""

    name = "no-sharing"
    about = About(
        paper="each silo by itself: the baseline since McMahan et al., AISTATS 2017",
        formula="w_i <- w_i - eta grad L_i(w_i)",
        keeps=("its model at the silo",),
        results="personal",
    )

    def kind(self, slot: Slot) -> str:
        return PRIVATE
