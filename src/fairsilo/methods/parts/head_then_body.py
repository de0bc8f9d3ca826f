"""FedRep (Collins et al., ICML 2021). Differs from FedPer by training head and body in turn, never together.

As published: the head alone for the local epochs, then the body alone. In GRACE's comparison: of every eleven batches
ten train the body and one the head.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.local import follow, training_only
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import Layout
from fairsilo.fields import setting
from fairsilo.methods.heads import Alternating, heads_turn, is_body, is_head, require_head
from fairsilo.methods.requirements import require_new_optimizer


@dataclass(frozen=True)
class HeadThenBody(Part):
    """c <- epochs of SGD on c at fixed phi; phi <- epochs of SGD on phi at fixed c."""

    name = "head-then-body"
    about = About(
        paper="Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML 2021",
        formula="c_i <- argmin_c L_i(phi, c), some epochs;  phi <- phi - eta grad_phi L_i(phi, c_i)",
        results="personal",
    )
    does = frozenset({"uneven-steps"})

    turns: str = setting(
        "epochs", "head, then body; or of eleven batches the last for the head", choices=("epochs", "batches")
    )
    body_epochs: int = setting(1, "epochs that train the body, after train.epochs of the head", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.turns == "batches":
            self.refuse_idle("turns=batches", "body_epochs")

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_head(self.name, layout, body=True)
        require_new_optimizer(self.name, training)

    def phase(self, silo: Silo, step: int) -> Hashable:
        return heads_turn(silo)

    def train(self, silo: Silo) -> Tensor:
        if self.turns == "batches":
            return follow(silo, Alternating(silo), silo.drawn())
        training_only(silo, is_head, silo.drawn("head"))
        return training_only(silo, is_body, silo.drawn(epochs=self.body_epochs))
