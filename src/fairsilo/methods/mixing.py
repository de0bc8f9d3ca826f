"""Mixup to first order with means of small groups, as FedMix has it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core.samples import BLOCK
from fairsilo.core.silo import Silo, inputs_for


def mixing_terms(
    loss: Tensor, prediction: Tensor, scaled: Tensor, mean_inputs: Tensor, mean_labels: Tensor, lam: float
) -> tuple[Tensor, Tensor, Tensor]:
    """FedMix's three terms from the plain loss; `scaled` is (1-lam) x, the input the prediction was made from."""
    first = (1 - lam) * loss
    (slope,) = torch.autograd.grad(first, scaled, create_graph=True)
    return first, lam * F.cross_entropy(prediction, mean_labels), lam * (slope * mean_inputs).sum()


def group_means(silo: Silo, stream: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
    """Means of groups of so many training samples, drawn at random: of what the network sees, and of labels."""
    split = silo.data.train
    order = torch.randperm(len(split), generator=stream)
    groups = order[: len(order) // size * size].view(-1, size)
    if not len(groups):
        raise ValueError(f"{len(split)} training samples are fewer than one group of {size}")
    means = []
    for some in torch.split(groups, max(1, BLOCK // size)):
        inputs = inputs_for(silo.model, split.take(some.flatten())[0])
        means.append(inputs.view(*some.shape, *inputs.shape[1:]).mean(1))
    inputs = torch.cat(means)
    labels = F.one_hot(split.targets[groups], silo.task.classes).to(inputs.dtype).mean(1)
    return inputs, labels.to(silo.device)
