"""Lengths, angles, signs and conflicts of silos' updates, and the weights that follow from them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairsilo.core.server import Updates
from fairsilo.core.vectors import blocks, gram, weighted_mean


def fair_coefficients(
    products: Tensor, losses: Tensor, sampled: list[int], round_: int, alpha: float, tau: int
) -> Tensor:
    """Coefficients of all rows (this round's first, then earlier ones) in the direction FedFV takes."""
    count, total = len(losses), len(products)
    order = torch.argsort(losses, stable=True).tolist()
    kept = set(order[math.ceil((count - 1) * (1 - alpha)) :]) if alpha > 0 else set()
    projected = torch.eye(count, total, dtype=torch.float64)
    for index in range(count):
        for other in order if index not in kept else ():
            inner, square = projected[index] @ products[:, other], products[other, other]
            if other != index and inner < 0 and square > 0:
                projected[index, other] -= inner / square
    mean = projected.mean(0)
    if round_ >= tau:
        for back in range(tau - 1, -1, -1):
            group = torch.tensor([when == round_ - back for when in sampled], dtype=torch.float64)
            conflict = group * (products @ mean < 0)
            inner, square = conflict @ products @ mean, conflict @ products @ conflict
            if inner < 0 and square > 0:
                mean = mean - conflict * inner / square
    plain = torch.zeros(total, dtype=torch.float64)
    plain[:count] = 1 / count
    length, wanted = (mean @ products @ mean).clamp(min=0).sqrt(), (plain @ products @ plain).clamp(min=0).sqrt()
    return mean * wanted / length if length > 0 else torch.zeros_like(mean)


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


def distances(updates: Updates, mask: Tensor | None, variant: str) -> Tensor:
    """How far each silo moved, where its mask (if any) lets it: sum of tensor norms, or squared norm, in float64."""
    found = []
    for row, change in enumerate(updates.parameters):
        if mask is not None:
            change = torch.where(mask[row, : len(change)], change, 0)
        if variant == "paper":
            found.append(torch.linalg.vector_norm(change, dtype=torch.float64).square())
        else:
            slots = updates.layout.shared_slots()
            norms = [torch.linalg.vector_norm(change[slot.place], dtype=torch.float64) for slot in slots]
            found.append(sum(norms, torch.zeros((), dtype=torch.float64, device=change.device)))
    return torch.stack(found).cpu()


def followed(before: Tensor, momentum: Tensor, distance: Tensor, beta: float, variant: str) -> tuple[Tensor, Tensor]:
    """FAEL's weights and momenta after a round: dp <- (1 - beta) dp + beta d / sum d; p <- p + dp.

    `paper` keeps the sum of these weights, so that those of silos that sat the round out keep their meaning.
    """
    total = distance.sum()
    share = distance / total if total > 0 else torch.full_like(distance, 1 / len(distance))
    momentum = (1 - beta) * momentum + beta * share
    after = before + momentum
    return (after if variant == "released" else after / after.sum() * before.sum()), momentum


def consistency(counts: Tensor, raised: Tensor, rounds: int) -> Tensor:
    """In which share of the rounds a parameter went the way it goes now; from counts, so exact at a threshold."""
    return torch.where(raised, counts, rounds - counts) / rounds


def masked_mean(deltas: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    """Per parameter, the weighted mean over the silos whose mask is set; 0 where none is.

    One pass over the matrix: what is made on the way is as wide as a block, and stays in a CPU's cache.
    """
    found = torch.empty(mask.shape[1], dtype=deltas.dtype, device=deltas.device)
    for columns in blocks(found, rows=3 * len(deltas)):
        counts = mask[:, columns].to(deltas.dtype)
        mass = weighted_mean(counts, weights)
        total = weighted_mean(counts.mul_(deltas[:, : len(found)][:, columns]), weights)
        found[columns] = torch.where(mass > 0, total / torch.where(mass > 0, mass, 1), 0)
    return found
