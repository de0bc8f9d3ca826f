"""FedBABU (Oh et al., ICLR 2022). Differs from FedAvg by a head that is never trained: it keeps its first weights,
which all silos have in common. What makes the model a silo's own is fine-tuning afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.local import training_only
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import Layout
from fairsilo.methods.heads import is_head, require_head
from fairsilo.methods.requirements import require_new_optimizer


@dataclass(frozen=True)
class FixedHead(Part):
    """phi <- phi - eta grad_phi L_i(phi, c_0)."""

    name = "fixed-head"
    about = About(
        paper="Oh, Kim and Yun, FedBABU: Toward Enhanced Representation for Federated Image Classification, ICLR 2022",
        formula="phi <- phi - eta grad_phi L_i(phi, c_0);  personal: fine-tuned from W",
        results="personal",
    )

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_head(self.name, layout, body=True)
        require_new_optimizer(self.name, training)

    def train(self, silo: Silo) -> Tensor:
        return training_only(silo, lambda slot: not is_head(slot), silo.drawn())
