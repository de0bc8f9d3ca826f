"""Losses that tasks share: cross-entropy with weights of classes, focal, soft Dice."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

SMOOTH = 1e-5  # keeps the Dice of an absent structure defined; as in GRACE's released code


@lru_cache(maxsize=64)
def on_device(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """Weights of classes as a tensor, copied to a device once; None where there are none."""
    return torch.tensor(values, dtype=dtype, device=device) if values else None


def entropies(
    prediction: Tensor, targets: Tensor, weights: tuple[float, ...], smoothing: float
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each sample or pixel, and what it counts in the mean: the weight of its class."""
    given = on_device(weights, prediction.device, prediction.dtype)
    losses = F.cross_entropy(prediction, targets, given, reduction="none", label_smoothing=smoothing)
    return losses, torch.ones_like(losses) if given is None else _weight(given, targets)


def _weight(given: Tensor, targets: Tensor) -> Tensor:
    """The weight of each sample or pixel: that of its class, or the mean over the classes it has shares of."""
    return torch.einsum("k,bk...->b...", given, targets) if targets.is_floating_point() else given[targets]


def focal(prediction: Tensor, targets: Tensor, weights: tuple[float, ...], gamma: float) -> Tensor:
    """a_y (1 - p_y)^gamma (-log p_y) of each sample: samples that are nearly right count little.

    Of targets that are shares of classes it is the mean over the classes.
    """
    given = on_device(weights, prediction.device, prediction.dtype)
    if targets.is_floating_point():
        surprise = -prediction.log_softmax(1)
        shares = targets if given is None else targets * given
        return (shares * (1 - (-surprise).exp()) ** gamma * surprise).sum(1)
    surprise = F.cross_entropy(prediction, targets, reduction="none")
    losses = (1 - (-surprise).exp()) ** gamma * surprise
    return losses if given is None else given[targets] * losses


def overlaps(prediction: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of probabilities and one-hot masks (B x K x H x W): intersections, predicted and true areas, B x K each."""
    together = prediction * targets
    return together.flatten(2).sum(2), prediction.flatten(2).sum(2), targets.flatten(2).sum(2)


def soft_dice(together: Tensor, predicted: Tensor, true: Tensor) -> Tensor:
    """1 - the mean over classes of 2 |A B| / (|A| + |B|), from areas of each class."""
    return 1 - ((2 * together + SMOOTH) / (predicted + true + SMOOTH)).mean()


def masks(targets: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Class numbers of pixels (B x H x W) as one mask for each class (B x K x H x W); shares of classes are that."""
    if targets.is_floating_point():
        return targets.to(dtype)
    numbers = torch.arange(classes, device=targets.device).view(-1, *[1] * (targets.dim() - 1))
    return (targets.unsqueeze(1) == numbers).to(dtype)  # torch's one_hot looks at the numbers


def shares(targets: Tensor, classes: int) -> Tensor:
    """Of class numbers (groups x members x ...) how often each class occurs in a group (groups x K x ...)."""
    counts = torch.stack([(targets == one).sum(1) for one in range(classes)], 1)
    return counts.double() / targets.shape[1]
