"""Aggregation weights that follow the silos' losses: the rules of AFL, q-FFL, TERM and FedGR."""

from __future__ import annotations

import torch
from torch import Tensor

from fairsilo.methods.simplex import project


def climb(weights: Tensor, losses: Tensor, step: float, floor: float = 0.0) -> Tensor:
    """One projected ascent step on the simplex."""
    climbed = project(weights + step * losses)
    if floor:
        climbed = torch.where(climbed <= floor, floor, climbed)
    return climbed / climbed.sum()


def q_coefficients(losses: Tensor, squared_changes: Tensor, q: float, lipschitz: float) -> Tensor:
    """Coefficients of the changes D_i = w_i - W: L F^q / sum h, with ||g||^2 = L^2 ||D||^2."""
    losses = losses + 1e-10
    curvature = q * losses.pow(q - 1) * squared_changes * lipschitz**2 + lipschitz * losses.pow(q)
    return lipschitz * losses.pow(q) / curvature.sum()


def normalised(losses: Tensor, q: float) -> Tensor:
    """F_i^q / sum_j F_j^q, by logarithms: a high power of a small loss would vanish."""
    return torch.softmax(q * (losses + 1e-10).log(), 0)


def tilted(shares: Tensor, losses: Tensor, t: float) -> Tensor:
    tilt = t * losses
    weights = shares * (tilt - tilt.max()).exp()
    return weights / weights.sum()


def influence(round_: int, delta: float, gamma: float, released: bool = False) -> float:
    """beta in a round from 1 on: 0 in the first one and delta in the end; the released code is a round ahead."""
    return delta * (1 - gamma ** (round_ if released else round_ - 1))


def quantised(losses: Tensor) -> Tensor:
    """100 / int(100 / loss), as the released code reports losses; above 100, where it fails, 100."""
    return 100 / (100 / losses.clamp(min=1e-10)).floor().clamp(min=1)


def cluster_losses(losses: Tensor, clusters: Tensor, shares: Tensor) -> Tensor:
    """For each silo the mean loss of its cluster, weighted by shares."""
    together = (clusters[:, None] == clusters[None]).to(losses.dtype) * shares
    return together @ losses / together.sum(1)


def group_weights(
    shares: Tensor, losses: Tensor, clusters: Tensor, beta: float, q: float, weighted: bool = False
) -> Tensor:
    """p_k (L_k^(1-beta) Lbar^beta)^(q+1), normalised; the cluster's mean is plain, or `weighted` by the shares p."""
    losses = losses.clamp(min=1e-10)
    means = cluster_losses(losses, clusters, shares if weighted else torch.ones_like(shares))
    # by logarithms: a high power of a small loss would vanish
    return torch.softmax(shares.log() + (q + 1) * ((1 - beta) * losses.log() + beta * means.log()), 0)
