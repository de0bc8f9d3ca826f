"""q-FFL by q-FedAvg (Li et al., ICLR 2020). Differs from FedAvg by coefficients that grow with a silo's loss.

Loss and gradient are of the received model, before local training. The coefficients need not sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.config import setting
from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import squared_norms
from fairsilo.methods.received_loss import RECEIVED_LOSS, measure_received, received_losses, report_received


@dataclass(frozen=True)
class QFair(Part):
    """W <- W - sum_i F_i^q g_i / sum_i h_i with g_i = (W - w_i)/eta; buffers take the plain mean."""

    name = "q-fair"
    about = About(
        paper="Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020",
        formula="h_i = q F_i^(q-1) ||g_i||^2 + F_i^q/eta;  W <- W - (sum_i F_i^q g_i)/(sum_i h_i)",
        sends=(
            RECEIVED_LOSS,
            EACH_UPDATE,
        ),
    )
    needs = frozenset({"shared-tensors"})
    does = frozenset({"decides-weights"})

    q: float = setting(1.0, "0 is the plain mean; the larger, the more a high loss counts", low=0)

    def begin(self, silo: Silo) -> None:
        measure_received(silo)

    def finish(self, silo: Silo, update: Message) -> None:
        report_received(silo, update)

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        squares = squared_norms(updates.parameters).cpu()
        found = q_coefficients(received_losses(updates), squares, self.q, server.training.at(server.round).lr)
        if server.round == server.training.lr_warmup + 1 and found.sum() < 0.1:
            server.note(
                f"q-FFL moves by {float(found.sum()):.1%} of the mean change: long local changes count as curvature, "
                "and a smaller q or fewer local steps shorten it less"
            )
        return found

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        direction = updates.mean(weights)
        plain = updates.mean(torch.full_like(weights, 1 / len(updates)))
        direction[updates.layout.shared :] = plain[updates.layout.shared :]
        return direction


def q_coefficients(losses: Tensor, squared_changes: Tensor, q: float, lr: float) -> Tensor:
    """Coefficients of the changes D_i = w_i - W: F^q / (eta sum h), with ||g||^2 = ||D||^2 / eta^2."""
    losses = losses + 1e-10
    curvature = q * losses.pow(q - 1) * squared_changes / lr**2 + losses.pow(q) / lr
    return losses.pow(q) / lr / curvature.sum()
