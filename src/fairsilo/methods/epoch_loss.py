"""The mean loss of the batches a silo trained on, with all terms of the method, kept under a key."""

from __future__ import annotations

import torch
from torch import Tensor

from fairsilo.core.silo import Batch, Silo


def begin_loss(silo: Silo, key: str) -> None:
    silo.model.begin_sum(key)


def record_loss(silo: Silo, key: str, loss: Tensor, batch: Batch) -> None:
    """Once a step, so that a second pass over the same batch does not count twice."""
    if silo.scratch.get(key) == silo.steps:
        return
    silo.scratch[key] = silo.steps
    size = len(batch.targets)
    silo.model.add_to_sum(key, torch.stack([loss.detach().double() * size, torch.full_like(loss, size).double()]))


def recorded_loss(silo: Silo, key: str) -> float | None:
    """The mean over samples of what was recorded; None where nothing was."""
    found = silo.model.sum_of(key)
    total, samples = (0.0, 0.0) if found is None else found.tolist()
    return total / samples if samples else None
