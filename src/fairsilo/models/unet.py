"""U-Net (Ronneberger et al., 2015) with four levels, for segmentation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.errors import FairsiloError
from fairsilo.models.norms import NORMS
from fairsilo.models.settings import USUAL_MOMENTUM

LEVELS = 4


class UNet(nn.Module):
    """Two 3x3 convolutions a level, down by pooling, up by transposed convolutions, each level joined to its twin.

    The features are the last decoder's map (B x width x H x W); the head is a 1x1 convolution.
    """

    def __init__(
        self, classes: int, channels: int = 3, norm: str = "batch", bn_momentum: float = USUAL_MOMENTUM, width: int = 32
    ) -> None:
        super().__init__()
        if width % 8:
            raise FairsiloError(f"unet.width is {width}; it must be a multiple of 8")
        if bn_momentum != USUAL_MOMENTUM and norm != "batch":
            raise FairsiloError(f"unet.bn_momentum is for norm=batch, and norm is {norm!r}; leave one of them out")
        normalise = partial(nn.BatchNorm2d, momentum=bn_momentum) if norm == "batch" else NORMS[norm]
        widths = [width * 2**level for level in range(LEVELS + 1)]
        entries = [channels, *widths]
        self.down = nn.ModuleList(_level(entries[i], widths[i], normalise) for i in range(LEVELS))
        self.bottom = _level(widths[-2], widths[-1], normalise)
        upwards = list(reversed(range(LEVELS)))
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(widths[i + 1], widths[i], 2, stride=2) for i in upwards)
        self.up = nn.ModuleList(_level(2 * widths[i], widths[i], normalise) for i in upwards)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, classes, 1)

    def features(self, inputs: Tensor) -> Tensor:
        """The last decoder's map."""
        height, width = inputs.shape[-2:]
        if height % 2**LEVELS or width % 2**LEVELS:
            raise FairsiloError(
                f"the images are {height}x{width}, and unet halves them {LEVELS} times: "
                f"height and width must be multiples of {2**LEVELS}; set data.size"
            )
        hidden: Tensor = inputs
        twins: list[Tensor] = []
        for level in self.down:
            twins.append(level(hidden))
            hidden = self.pool(twins[-1])
        hidden = self.bottom(hidden)
        for enlarge, level, twin in zip(self.enlarge, self.up, reversed(twins), strict=True):
            hidden = level(torch.cat([enlarge(hidden), twin], 1))
        return hidden

    def forward(self, inputs: Tensor) -> Output:
        features = self.features(inputs)
        return Output(self.head(features), features)


def _level(inside: int, outside: int, normalise: Callable[[int], nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for entry in (inside, outside):
        layers += [nn.Conv2d(entry, outside, 3, padding=1, bias=False), normalise(outside), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
