"""Local loops that are more than epochs of one step; a part that needs one calls it from its `train` hook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from torch import Tensor

from fairsilo.optimizers import make_optimizer
from fairsilo.round import clip, follow, gradient
from fairsilo.silo import Batch, Silo
from fairsilo.vectors import Slot


def bare(silo: Silo, batch: Batch) -> Tensor:
    """A gradient of the task's loss alone: what other parts add concerns the shared model."""
    loss = gradient(silo, batch, terms=False, corrections=False)
    clip(silo)
    return loss


def pulled(silo: Silo, vector: Tensor, strength: float, towards: Tensor) -> tuple[Tensor, Tensor]:
    """Train another model on the same batches, each gradient with a pull towards fixed parameters.

    Returns the trained vector and its mean loss; the model that the silo held is held again afterwards.
    """

    def step(silo: Silo, batch: Batch) -> Tensor:
        loss = gradient(silo, batch, terms=False, corrections=False)
        silo.model.gradients.add_(silo.parameters.detach() - towards, alpha=strength)
        clip(silo)
        return loss

    held = silo.model.read()
    silo.model.load(vector)
    loss = follow(silo, make_optimizer(silo), silo.batches(), step)
    trained = silo.model.read()
    silo.model.load(held)
    return trained, loss


def training_only(
    silo: Silo,
    chosen: Callable[[Slot], bool],
    batches: Iterable[Batch],
    step: Callable[[Silo, Batch], Tensor] = gradient,
) -> Tensor:
    """Train some tensors, with a new optimiser; the others stay as they are (but for BatchNorm's statistics)."""
    with silo.model.training_only(chosen) as leaves:
        return follow(silo, make_optimizer(silo, leaves), batches, step)


def fine_tune(silo: Silo, chosen: Callable[[Slot], bool], epochs: int, steps: int = 0) -> None:
    """Train some tensors of the model held on the task alone; at most so many steps, if any are given."""
    batches: Iterator[Batch] = silo.batches("fine-tune", epochs)
    training_only(silo, chosen, islice(batches, steps) if steps else batches, bare)
