"""Steps of local training: how many, how long their path is in units of the learning rate, halves of a batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fairsilo.core.silo import Batch, Silo


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


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """The first and the second half of a batch's samples; of an odd number the second has one more."""
    half = len(batch.targets) // 2
    first, second = (
        replace(batch, inputs=batch.inputs[some], targets=batch.targets[some], indices=batch.indices[some])
        for some in (slice(0, half), slice(half, None))
    )
    return first, second


def second_moment(before: Tensor, square: Tensor, beta: float, rule: str) -> Tensor:
    """Adam's b v + (1-b) D^2, or Yogi's v - (1-b) D^2 sign(v - D^2)."""
    if rule == "adam":
        return beta * before + (1 - beta) * square
    return before - (1 - beta) * square * torch.sign(before - square)
