"""ResNet-18 and ResNet-50 as for ImageNet: a 7x7 stem of stride 2 and a pooling, then four stages (He et al., 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fairsilo.models.networks import BasicBlock, Network

Block = Callable[[int, int, int], nn.Module]  # channels in, channels out, stride


class Bottleneck(nn.Module):
    """1x1, 3x3 (which has the stride) and 1x1 convolutions, and a shortcut; a quarter of the width inside."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        narrow = outside // 4
        self.first = nn.Conv2d(inside, narrow, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(narrow)
        self.second = nn.Conv2d(narrow, narrow, 3, stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(narrow)
        self.third = nn.Conv2d(narrow, outside, 1, bias=False)
        self.third_norm = nn.BatchNorm2d(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.first_norm(self.first(inputs)))
        hidden = torch.relu(self.second_norm(self.second(hidden)))
        return torch.relu(self.third_norm(self.third(hidden)) + self.shortcut(inputs))


class _ResNet(Network):
    def __init__(self, classes: int, channels: int, block: Block, depths: Sequence[int], widths: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        inside = 64
        for stage, (depth, outside) in enumerate(zip(depths, widths, strict=True)):
            for number in range(depth):
                layers.append(block(inside, outside, 2 if stage and not number else 1))
                inside = outside
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(inside, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class ResNet18(_ResNet):
    """Blocks 2-2-2-2 of two 3x3 convolutions, widths 64 to 512."""

    def __init__(self, classes: int, channels: int = 3) -> None:
        super().__init__(classes, channels, BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512))


class ResNet50(_ResNet):
    """Bottlenecks 3-4-6-3, widths 256 to 2048."""

    def __init__(self, classes: int, channels: int = 3) -> None:
        super().__init__(classes, channels, Bottleneck, (3, 4, 6, 3), (256, 512, 1024, 2048))
