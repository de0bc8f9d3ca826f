"""The mean loss of the batches a silo trained on, with all terms of the method, kept in its scratch under a key."""

from __future__ import annotations

from torch import Tensor

from fairsilo.core.silo import Batch, Silo


def record_loss(silo: Silo, key: str, loss: Tensor, batch: Batch) -> None:
    """By step, so that a second pass over the same batch does not count twice."""
    silo.scratch.setdefault(key, {}).setdefault(silo.steps, (loss.detach().double(), len(batch.targets)))


def recorded_loss(silo: Silo, key: str) -> float:
    """The mean over samples of what was recorded."""
    seen = silo.scratch[key].values()
    return float(sum(loss * size for loss, size in seen) / sum(size for _, size in seen))
