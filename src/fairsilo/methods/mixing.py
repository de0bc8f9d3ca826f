"""Mixup to first order with means of small groups, as FedMix has it."""

from __future__ import annotations

import torch
from torch import Tensor

from fairsilo.core.samples import BLOCK
from fairsilo.core.silo import Silo, inputs_for
from fairsilo.core.task import blends


def mixing_terms(
    loss: Tensor, blended: Tensor, scaled: Tensor, mean_inputs: Tensor, lam: float
) -> tuple[Tensor, Tensor, Tensor]:
    """FedMix's three terms from the losses of one prediction against its own targets and against means of targets.

    `scaled` is (1-lam) x, the input that the prediction was made from.
    """
    first = (1 - lam) * loss
    (slope,) = torch.autograd.grad(first, scaled, create_graph=True)
    return first, lam * blended, lam * (slope * mean_inputs).sum()


def group_means(silo: Silo, stream: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
    """Means of groups of so many training samples, drawn at random: of what the network sees, and of targets."""
    split, task = silo.data.train, silo.task
    assert blends(task)  # the need `blended-targets`
    order = torch.randperm(len(split), generator=stream)
    groups = order[: len(order) // size * size].view(-1, size)
    if not len(groups):
        raise ValueError(f"{len(split)} training samples are fewer than one group of {size}")
    means, labels = [], []
    for some in torch.split(groups, max(1, BLOCK // size)):
        taken, targets = split.take(some.flatten())
        inputs = inputs_for(silo.model, taken)
        means.append(inputs.view(*some.shape, *inputs.shape[1:]).mean(1))
        labels.append(task.blended(targets.view(*some.shape, *targets.shape[1:])).to(inputs))
    return torch.cat(means), torch.cat(labels)
