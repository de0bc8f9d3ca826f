"""Small networks of our own, and the way to any network of the user's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.models.norms import NORMS


class Network(nn.Module):
    """`features(x) -> z` and `head(z)`: most networks are this."""

    features: nn.Module
    head: nn.Module

    def forward(self, inputs: Tensor) -> Output:
        features = self.features(inputs)
        return Output(self.head(features), features)


class Staged(nn.Module):
    """A network with a frozen first stage: `stem(inputs)`, the same for ever, and `tail(stemmed)`, which is trained.

    So the stem can run once over a silo's data, and what it gave be kept (`stemmed`). It runs in blocks of one size,
    short ones filled up, so that a sample's features do not depend on the batch it comes in.
    """

    stemmed = False  # inputs are what the stem gave already
    block = 32

    def stem(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def tail(self, stemmed: Tensor) -> Output:
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Output:
        return self.tail(inputs if self.stemmed else self.stem_in_blocks(inputs))

    @torch.no_grad()
    def stem_in_blocks(self, inputs: Tensor) -> Tensor:
        found = []
        for some in torch.split(inputs, self.block):
            missing = self.block - len(some)
            filled = torch.cat([some, some[:1].expand(missing, *some.shape[1:])]) if missing else some
            found.append(self.stem(filled)[: len(some)])
        return torch.cat(found)


class SmallCNN(Network):
    """Three strided convolutions with normalisation and two linear layers; 0.09 M parameters, for 32x32 images.

    Strides instead of pooling: a third of the time a step on a CPU, at the same accuracy on the embedded federation.
    """

    def __init__(self, classes: int, channels: int = 3, width: int = 16, norm: str = "batch") -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inside, outside in ((channels, width), (width, 2 * width), (2 * width, 4 * width)):
            layers += [
                nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False),
                NORMS[norm](outside),
                nn.ReLU(inplace=True),
            ]
        layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * 4 * width, 64), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(64, classes)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int, norm: str = "batch") -> None:
        super().__init__()
        normalise = NORMS[norm]
        self.first = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.first_norm = normalise(outside)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.second_norm = normalise(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), normalise(outside))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.relu(self.first_norm(self.first(inputs)))
        return torch.relu(self.second_norm(self.second(hidden)) + self.shortcut(inputs))


class ResNet10(Network):
    """The CIFAR-style ResNet-10 of FedHEAL: 3x3 stem, blocks 1-1-1-1, widths 64/128/256/512; 4.9 M parameters."""

    def __init__(self, classes: int, channels: int = 3, width: int = 64, norm: str = "batch") -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            NORMS[norm](width),
            nn.ReLU(inplace=True),
        ]
        inside = width
        for depth, stride in enumerate((1, 2, 2, 2)):
            outside = width * 2**depth
            layers.append(BasicBlock(inside, outside, stride, norm))
            inside = outside
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(inside, classes)


class MLP(Network):
    """Two hidden layers of rectified units, for tables: B x columns.

    Columns have their own units, which silos do not tell each other: batch normalisation brings them to one scale.
    """

    def __init__(self, classes: int, columns: int, width: int = 64) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.BatchNorm1d(columns, affine=False),
            nn.Linear(columns, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Linear(width, classes)


def binary_classifier(width: int, hidden: int) -> nn.Module:
    """One logit from features: a hidden layer of rectified units, or linear where `hidden` is 0."""
    if not hidden:
        return nn.Linear(width, 1)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
