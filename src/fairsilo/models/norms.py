"""Normalisation of maps, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "instance": lambda channels: nn.InstanceNorm2d(channels, affine=True),
    "group": lambda channels: nn.GroupNorm(8, channels),
    # nothing to train and nothing to remember: every batch is normalised by itself, also at evaluation
    "no": lambda channels: nn.BatchNorm2d(channels, affine=False, track_running_stats=False),
}
