"""EfficientNet-B0 (Tan and Le, 2019) and EfficientNet-Lite0, its variant for small devices.

Both have the same seven stages of inverted residuals. B0 has swish and squeeze-and-excitation; Lite0 has ReLU6, none
of the latter, and pads as TensorFlow does, where its weights come from. Dropout and stochastic depth are left out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.errors import FairsiloError
from fairsilo.models.lite_weights import imagenet_tensors
from fairsilo.models.networks import Network
from fairsilo.models.settings import MOMENTUM

# repeats, kernel, stride of the first, expansion, channels out
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, TOP = 32, 1280
EPSILON = 1e-3  # of batch normalisation


@dataclass(frozen=True)
class Style:
    """In what B0 and Lite0 differ."""

    activation: Callable[[], nn.Module]
    squeeze: bool
    tensorflow_padding: bool
    momentum: float = MOMENTUM


class SamePadding(nn.Module):
    """TensorFlow's padding: an odd zero goes to the right and below."""

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, inputs: Tensor) -> Tensor:
        height, width = (self._missing(size) for size in inputs.shape[-2:])
        return F.pad(inputs, [width // 2, width - width // 2, height // 2, height - height // 2])

    def _missing(self, size: int) -> int:
        outputs = -(-size // self.stride)
        return max((outputs - 1) * self.stride + self.kernel - size, 0)


def convolution(
    inside: int, outside: int, kernel: int, style: Style, *, stride: int = 1, groups: int = 1, active: bool = True
) -> nn.Sequential:
    """A convolution with batch normalisation, and the activation where it is wanted."""
    # with a stride of 1 both paddings are the same
    apart = style.tensorflow_padding and stride > 1
    padding = 0 if apart else kernel // 2
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if apart:
        layers["pad"] = SamePadding(kernel, stride)
    layers["conv"] = nn.Conv2d(inside, outside, kernel, stride, padding=padding, groups=groups, bias=False)
    layers["norm"] = nn.BatchNorm2d(outside, eps=EPSILON, momentum=style.momentum)
    if active:
        layers["act"] = style.activation()
    return nn.Sequential(layers)


class SqueezeExcite(nn.Module):
    """Channels are scaled by gates in (0, 1), computed from their means."""

    def __init__(self, channels: int, narrow: int) -> None:
        super().__init__()
        self.gates = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, narrow, 1),
            nn.SiLU(),
            nn.Conv2d(narrow, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        gates: Tensor = self.gates(inputs)
        return inputs * gates


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel, narrow by 1x1; a shortcut where the shape stays."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, expansion: int, style: Style) -> None:
        super().__init__()
        wide = inside * expansion
        self.expand: nn.Module = nn.Identity() if expansion == 1 else convolution(inside, wide, 1, style)
        self.depthwise = convolution(wide, wide, kernel, style, stride=stride, groups=wide)
        self.squeeze: nn.Module = SqueezeExcite(wide, max(1, inside // 4)) if style.squeeze else nn.Identity()
        self.project = convolution(wide, outside, 1, style, active=False)
        self.shortcut = stride == 1 and inside == outside

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.project(self.squeeze(self.depthwise(self.expand(inputs))))
        return hidden + inputs if self.shortcut else hidden


class _EfficientNet(Network):
    def __init__(self, classes: int, channels: int, style: Style) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        inside = STEM
        for repeats, kernel, stride, expansion, outside in STAGES:
            for number in range(repeats):
                blocks.append(InvertedResidual(inside, outside, kernel, 1 if number else stride, expansion, style))
                inside = outside
        stages: OrderedDict[str, nn.Module] = OrderedDict()
        stages["stem"] = convolution(channels, STEM, 3, style, stride=2)
        stages["blocks"] = nn.Sequential(*blocks)
        stages["top"] = convolution(inside, TOP, 1, style)
        stages["pool"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.features = nn.Sequential(stages)
        self.head = nn.Linear(TOP, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class EfficientNetB0(_EfficientNet):
    """Swish and squeeze-and-excitation."""

    def __init__(self, classes: int, channels: int = 3, bn_momentum: float = MOMENTUM) -> None:
        super().__init__(
            classes, channels, Style(nn.SiLU, squeeze=True, tensorflow_padding=False, momentum=bn_momentum)
        )


class EfficientNetLite0(_EfficientNet):
    """ReLU6, no squeeze-and-excitation; starts from ImageNet's weights unless `weights` is `random`.

    Grey images are shown to pretrained weights as colour images.
    """

    normalisation = ((127 / 255,), (128 / 255,))  # what its weights were trained with

    def __init__(
        self, classes: int, channels: int = 3, weights: str = "imagenet", bn_momentum: float = MOMENTUM
    ) -> None:
        pretrained = weights == "imagenet"
        if pretrained and channels not in (1, 3):
            raise FairsiloError(
                f"the images have {channels} channels, and efficientnet-lite0 takes 3 (RGB), or 1 (grey); "
                "efficientnet-lite0(weights=random) takes any"
            )
        style = Style(nn.ReLU6, squeeze=False, tensorflow_padding=True, momentum=bn_momentum)
        super().__init__(classes, 3 if pretrained else channels, style)
        if pretrained:
            self.features.load_state_dict(imagenet_tensors(self.features.state_dict()))
        self.channels = 3 if pretrained else channels

    def forward(self, inputs: Tensor) -> Output:
        return super().forward(inputs if inputs.shape[1] == self.channels else inputs.expand(-1, 3, -1, -1))
