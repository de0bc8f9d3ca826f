"""Steps of local training: how many, how long their path is in units of the learning rate, halves of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairsilo.core.local import correct, gradient
from fairsilo.core.silo import Batch, Planned, Silo


def path_length(steps: int, momentum: float = 0.0, pull: float = 0.0) -> float:
    """How far `steps` steps go along a constant gradient of length 1, with momentum and a pull back (eta mu)."""
    speed = length = 0.0
    for _ in range(steps):
        speed = momentum * speed + 1 - pull * length
        length += speed
    return length


def nova_coefficients(shares: Tensor, lengths: Tensor) -> Tensor:
    """tau_eff p_i / a_i: what each change w_i - W is multiplied with."""
    return (shares * lengths).sum() * shares / lengths


def plain_steps(silo: Silo) -> int:
    """How many steps plain local training takes."""
    full, rest = divmod(len(silo.data.train), silo.training.batch_size)
    return silo.training.epochs * (full + (rest > 1 or not full))


@dataclass(frozen=True)
class Towards:
    """In the place of an optimiser: after each step one vector goes a share of the way to another."""

    moved: Tensor
    aim: Tensor
    rate: float

    @torch.no_grad()
    def step(self) -> None:
        self.moved.sub_(self.rate * (self.moved - self.aim))


def looked_ahead(silo: Silo, batch: Batch, there: Callable[[], Batch], rate: float, bound: float) -> Tensor:
    """The gradient here plus the one on other data after a step of this one, bounded entry by entry; first order.

    Returns the loss here. BatchNorm's statistics are those of the first pass.
    """
    loss = gradient(silo, batch, corrections=False)
    inner = silo.model.gradients.clone()
    ahead = inner.clamp(-bound, bound) * rate
    with torch.no_grad():
        silo.parameters.sub_(ahead)
    with silo.model.keeping_statistics():
        gradient(silo, there(), corrections=False)
    with torch.no_grad():
        silo.parameters.add_(ahead)
    silo.model.gradients += inner
    correct(silo)
    return loss


def halves(batch: Planned) -> tuple[Planned, Planned]:
    """The first and the second half of a batch's samples; of an odd number the second has one more."""
    half = len(batch.indices) // 2

    def samples(some: slice) -> Planned:
        changes = {key: drawn[some] for key, drawn in batch.augmentation.items()}
        return replace(batch, indices=batch.indices[some], places=batch.places[some], augmentation=changes)

    return samples(slice(0, half)), samples(slice(half, None))


def second_moment(before: Tensor, square: Tensor, beta: float, rule: str) -> Tensor:
    """Adam's b v + (1-b) D^2, or Yogi's v - (1-b) D^2 sign(v - D^2)."""
    if rule == "adam":
        return beta * before + (1 - beta) * square
    return before - (1 - beta) * square * torch.sign(before - square)
