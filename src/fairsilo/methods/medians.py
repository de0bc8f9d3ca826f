"""The middle of the round's updates, for parts that compare each update with the others."""

from __future__ import annotations

import torch
from torch import Tensor

from fairsilo.core.vectors import Layout


def stretches(layout: Layout) -> tuple[tuple[slice, str], tuple[slice, str]]:
    """The trained tensors, and the rest (BatchNorm's statistics), which may be spoiled alone; with a name for each."""
    return (slice(layout.shared), "update"), (slice(layout.shared, layout.floats), "statistics vector")


def middle(values: Tensor) -> Tensor:
    """The median over the first dimension; of an even number the mean of the two in the middle."""
    return (values.median(0).values - (-values).median(0).values) / 2


def from_middle(rows: Tensor) -> Tensor:
    """How far each row is from the coordinate-wise median, in float64."""
    centre = middle(rows)
    return torch.stack([torch.linalg.vector_norm((row - centre).double()) for row in rows])
