"""Weights that follow the gaps between the global model and the silos' own: GA's step, FAA's weights of equal gaps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.methods.simplex import clip_renormalise, project


def gap(own: Tensor, received: Tensor, metric: str = "loss") -> Tensor:
    """How much worse the received model is than the silo's own: a higher loss, or a lower accuracy."""
    return received - own if metric == "loss" else own - received


def adjust(
    weights: Tensor, gaps: Tensor, step: float, *, centred: bool = False, denominator: int | None = None
) -> Tensor:
    """One GA step on the simplex; a positive gap means that the global model is worse than the silo's own."""
    gaps = gaps - gaps.mean() if centred else gaps
    largest = gaps.abs().max()
    if largest == 0:
        return weights
    moved = weights + gaps / largest * step / (denominator or len(weights))
    return clip_renormalise(moved, weights)


def step_at(size: float, schedule: str, index: int, rounds: int) -> float:
    """The step size of round `index` (from 0): released d - (r-1) d/R, linear (1 - r/R) d, or constant."""
    if schedule == "released":
        return size - (index - 1) * size / rounds
    return size * (1 - index / rounds) if schedule == "linear" else size


@dataclass(frozen=True)
class Equalised:
    """`status` is ok, fallback_to_perturbed (no usable slope) or beyond_limit (GA's step taken instead)."""

    weights: Tensor
    status: str
    clipped: bool
    slopes: Tensor
    gap: float
    unclipped: Tensor


def equalise(
    weights: Tensor,
    gaps: Tensor,
    perturbed: Tensor,
    perturbed_gaps: Tensor,
    flat: float | None = None,
    limit: float | None = 0.5,
    onto: str = "clip",
) -> Equalised:
    """Equations 9 to 11 with guards: a flat or wrong-way slope freezes its silo, no slope at all means GA's step."""
    change = gaps - perturbed_gaps
    least = 1e-4 * gaps.abs().clamp(min=1e-3) if flat is None else torch.full_like(gaps, flat)
    usable = change.abs() > least
    slopes = torch.where(usable, (perturbed - weights) / torch.where(usable, change, 1), 0).clamp(min=0)
    total = slopes.sum()
    if not total > 0:
        return Equalised(perturbed, "fallback_to_perturbed", False, slopes, float("nan"), weights)
    common = (slopes * gaps).sum() / total
    solved = weights + slopes * (gaps - common)
    if limit is not None and bool(((solved < -limit) | (solved > 1 + limit)).any()):
        return Equalised(perturbed, "beyond_limit", False, slopes, float(common), solved)
    inside = bool(((solved >= 0) & (solved <= 1)).all())
    landed = project(solved) if onto == "project" else clip_renormalise(solved, weights)
    return Equalised(landed, "ok", not inside, slopes, float(common), solved)
