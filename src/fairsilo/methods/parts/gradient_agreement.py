"""GRACE's server half (Zhang et al., MICCAI 2023). Differs from FedAvg by weights that favour silos whose
update agrees with the others'.

As the paper prints it, an update's agreement with itself counts (`include_diagonal`); the released code leaves it out.
Without it mean cosines fall to about 0 after a few rounds, one turns negative, and its silo is left with next to no
weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.config import setting
from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.vectors import gram


@dataclass(frozen=True)
class GradientAgreement(Part):
    """Weights proportional to p_i times the mean cosine of update i to all; shifted where one is negative."""

    name = "gradient-agreement"
    about = About(
        paper="Zhang et al., GRACE: A Generalized and Personalized Federated Learning Method, MICCAI 2023",
        formula="s_i = mean_j cos(D_i, D_j);  weight_i = s_i p_i / sum_j s_j p_j;  W <- W + lr sum_i weight_i D_i",
        sends=(EACH_UPDATE,),
    )
    needs = frozenset({"shared-tensors"})
    does = frozenset({"decides-weights"})

    server_lr: float = setting(1.0, "step of the server", low=0, open_low=True)
    include_diagonal: bool = setting(True, "count each update's agreement with itself, as the paper prints it")
    granularity: str = setting(
        "total",
        "cosines of whole updates, their mean over tensors, or that mean with weights falling from the first tensor "
        "to 0 at the last",
        choices=("total", "tensors", "depth"),
    )

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        return agreement_weights(likeness(updates, self.granularity), weights, self.include_diagonal)

    def step(self, server: Server, direction: Tensor) -> Tensor:
        direction[: server.silo_layout.shared] *= self.server_lr
        return direction


def cosines(products: Tensor) -> Tensor:
    """Cosine of every pair from the matrix of inner products; 0 with a zero vector."""
    norms = products.diagonal().sqrt().clamp(min=1e-12)
    return products / (norms[:, None] * norms[None])


def likeness(updates: Updates, granularity: str = "total") -> Tensor:
    """Sigma: how alike every two updates are, M x M."""
    if granularity == "total":
        return cosines(gram(updates.parameters).cpu())
    found = torch.stack(
        [cosines(gram(updates.parameters[:, slot.place]).cpu()) for slot in updates.layout.shared_slots()]
    )
    depth = torch.linspace(1, 0, len(found)) if granularity == "depth" else torch.ones(len(found))
    shares = depth.to(found) / depth.sum()
    return (shares[:, None, None] * found).sum(0)


def agreement_weights(likeness: Tensor, shares: Tensor, include_diagonal: bool = True) -> Tensor:
    """s_i p_i, normalised; s is the mean of row i of the matrix of cosines, moved above 0 where one is negative."""
    count = len(shares)
    if count == 1:
        return torch.ones_like(shares)
    others = likeness.sum(1) - (0 if include_diagonal else likeness.diagonal())
    agreement = others / (count if include_diagonal else count - 1)
    if agreement.min() < 0:
        agreement = agreement - agreement.min() + 1e-3
    agreement = agreement / agreement.max().clamp(min=1)
    weights = agreement * shares
    return weights / weights.sum() if weights.sum() > 0 else shares
