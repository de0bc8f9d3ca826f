"""Ways back onto the probability simplex, shared by the parts that move aggregation weights."""

from __future__ import annotations

import torch
from torch import Tensor


def clip_renormalise(weights: Tensor, previous: Tensor) -> Tensor:
    """Clip to [0, 1] and divide by the sum; the previous weights where nothing is left."""
    clipped = weights.clamp(0, 1)
    total = clipped.sum()
    return clipped / total if total > 0 else previous


def project(values: Tensor) -> Tensor:
    """The nearest point of the simplex in Euclidean distance (by sorting, with the inclusive prefix sum)."""
    descending = values.sort(descending=True).values
    shifts = (1 - descending.cumsum(0)) / torch.arange(1, len(values) + 1, dtype=values.dtype)
    last = int((descending + shifts > 0).nonzero().max())
    return (values + shifts[last]).clamp(min=0)
