"""q-FFL by q-FedAvg (Li et al., ICLR 2020). Differs from FedAvg by coefficients that grow with a silo's loss.

Loss and gradient are of the received model, before local training. The coefficients of the paper's form need not sum to
1: its estimate of curvature grows with the square of the local change, so that with momentum, Adam or tens of local
steps it moves by a few percent of the mean change and hardly learns. `form=normalised` keeps its weights F^q and
divides by their sum instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About
from fairsilo.core.rates import require_one_rate
from fairsilo.core.server import Server, Updates
from fairsilo.core.vectors import Layout, squared_norms
from fairsilo.fields import around, setting
from fairsilo.methods.loss_weights import normalised, q_coefficients
from fairsilo.methods.received_loss import RECEIVED_LOSS, ReportsReceivedLoss, received_losses


@dataclass(frozen=True)
class QFair(ReportsReceivedLoss):
    """W <- W - sum_i F_i^q g_i / sum_i h_i with g_i = L (W - w_i), L = 1/eta; buffers take the plain mean."""

    name = "q-fair"
    about = About(
        paper="Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020",
        formula=(
            "g_i = L (W - w_i);  h_i = q F_i^(q-1) ||g_i||^2 + L F_i^q;  W <- W - (sum_i F_i^q g_i)/(sum_i h_i);  "
            "normalised: W <- W + (sum_i F_i^q (w_i - W))/(sum_i F_i^q)"
        ),
        sends=(RECEIVED_LOSS, EACH_UPDATE),
    )
    needs = frozenset({"shared-tensors"})
    does = frozenset({"decides-weights"})

    q: float = setting(1.0, "0 is the plain mean; the larger, the more a high loss counts", low=0, search=around(10))
    form: str = setting(
        "paper", "step: by the paper's estimate of curvature, or weights that sum to 1", choices=("paper", "normalised")
    )
    lipschitz: float | None = setting(
        None, "constant L of the paper's form; by default 1 / the local learning rate", low=0, open_low=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form == "normalised":
            self.refuse_idle("form=normalised", "lipschitz")

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        if self.form == "paper" and self.lipschitz is None:
            require_one_rate(
                self.name, training, "divides silos' changes by the learning rate (form=normalised does not)"
            )

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        losses = received_losses(updates)
        if self.form == "normalised":
            return normalised(losses, self.q)
        squares = squared_norms(updates.parameters).cpu()
        found = q_coefficients(losses, squares, self.q, self.lipschitz or 1 / server.training.at(server.round).lr)
        if server.round == server.training.lr_warmup + 1 and found.sum() < 0.1:
            server.note(
                f"q-FFL moves by {float(found.sum()):.1%} of the mean change: long local changes count as curvature, "
                "and form=normalised, a smaller q or fewer local steps shorten it less"
            )
        return found

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        direction = updates.mean(weights)
        plain = updates.mean(torch.full_like(weights, 1 / len(updates)))
        direction[updates.layout.shared :] = plain[updates.layout.shared :]
        return direction
