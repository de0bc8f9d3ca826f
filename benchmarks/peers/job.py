"""The job that every side does: FedAvg over 20 silos with a small CNN. Plain PyTorch, importable in every environment.

    python job.py    # writes the images and the initial weights, which all sides read

What is the same for all sides by being here: data, network, initial weights, batches, optimiser, measurement.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

FOLDER = Path(__file__).resolve().parent / ".environments" / "job"
BEGUN = float(os.environ.get("PEERS_BEGUN", time.monotonic()))  # when run.py started this process

SILOS, SAMPLES, TEST, CLASSES, SIZE = 20, 500, 2_000, 10, 32
ROUNDS, BATCH = 6, 50
LR, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 1e-4


# ---------------------------------------------------------------------------------------------------------- the data
def prepare() -> None:
    """Write the data and the initial weights."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    stream = np.random.default_rng(0)
    prototypes = stream.normal(size=(CLASSES, 3, 8, 8)).repeat(4, axis=2).repeat(4, axis=3)
    gains, shifts = stream.uniform(0.7, 1.3, SILOS), stream.normal(0, 15, (SILOS, 3, 1, 1))
    # the test images have the looks of all silos in equal parts
    silos = np.concatenate([np.arange(SILOS).repeat(SAMPLES), np.arange(TEST) % SILOS])
    targets = stream.integers(0, CLASSES, len(silos))
    images = np.empty((len(silos), 3, SIZE, SIZE), dtype=np.uint8)
    for place, (silo, target) in enumerate(zip(silos, targets, strict=True)):
        # moved and noisy: otherwise one round would learn it all
        moved = np.roll(prototypes[target], stream.integers(-2, 3, 2), axis=(1, 2))
        image = 128 + gains[silo] * 30 * moved + shifts[silo] + stream.normal(0, 60, moved.shape)
        images[place] = image.clip(0, 255)
    np.savez(FOLDER / "data.npz", images=images, targets=targets)
    torch.manual_seed(0)
    torch.save(SmallCNN().state_dict(), FOLDER / "weights.pt")


@cache
def _data() -> tuple[Tensor, Tensor]:
    with np.load(FOLDER / "data.npz") as found:
        return torch.from_numpy(found["images"]), torch.from_numpy(found["targets"])


def silo(number: int) -> tuple[Tensor, Tensor]:
    """Images (uint8) and targets that a silo trains on."""
    images, targets = _data()
    some = slice(number * SAMPLES, (number + 1) * SAMPLES)
    return images[some], targets[some]


def test() -> tuple[Tensor, Tensor]:
    images, targets = _data()
    return images[-TEST:], targets[-TEST:]


def order(number: int, round_: int) -> Tensor:
    """In which a silo sees its images in a round."""
    return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1_000 * round_ + number))


def batches(number: int, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch of a silo. Faster than a DataLoader, which fetches image by image, and so for every side."""
    images, targets = silo(number)
    for some in order(number, round_).split(BATCH):
        yield images[some], targets[some]


# ------------------------------------------------------------------------------------------------------- the training
class SmallCNN(nn.Module):
    """The layers of fairsilo's `small-cnn`; takes images as bytes."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inside, outside in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outside)]
            layers += [nn.ReLU(inplace=True)]
        layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(as_floats(images)))


def as_floats(images: Tensor) -> Tensor:
    """As fairsilo scales bytes; what it scaled already stays as it is."""
    return images.float().div_(127.5).sub_(1) if images.dtype == torch.uint8 else images


def network() -> SmallCNN:
    """With the initial weights."""
    made = SmallCNN()
    made.load_state_dict(torch.load(FOLDER / "weights.pt", weights_only=True))
    return made


def averaged(module: nn.Module) -> dict[str, Tensor]:
    """What FedAvg takes the mean of: parameters, and the statistics of batch normalisation."""
    return {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}


def optimizer(module: nn.Module) -> torch.optim.Optimizer:
    """The fastest SGD that PyTorch has on a CPU."""
    return torch.optim.SGD(module.parameters(), LR, MOMENTUM, weight_decay=WEIGHT_DECAY, fused=True)


def train(module: nn.Module, some: Iterator[tuple[Tensor, Tensor]]) -> int:
    """One local epoch with a new optimiser; returns the number of samples."""
    module.train()
    steps, count = optimizer(module), 0
    for images, targets in some:
        steps.zero_grad()
        F.cross_entropy(module(images), targets).backward()
        steps.step()
        count += len(targets)
    return count


# ---------------------------------------------------------------------------------------------------- the measurement
@torch.no_grad()
def accuracy(module: nn.Module) -> float:
    """On the test images, in percent."""
    module.eval()
    images, targets = test()
    right = sum((module(a).argmax(1) == b).sum() for a, b in zip(images.split(250), targets.split(250), strict=True))
    return 100 * float(right) / len(targets)


class Clock:
    """When each round ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def round_ended(self) -> None:
        self.ends.append(time.monotonic())

    def report(self, percent: float, *packages: str) -> None:
        """One line of JSON: what run.py reads."""
        later = [end - before for before, end in zip(self.ends, self.ends[1:], strict=False)]
        if len(later) != ROUNDS - 1:
            raise RuntimeError(f"{len(self.ends)} rounds instead of {ROUNDS}")
        versions = {name: version(name) for name in ("torch", *packages)}
        found = {"first": self.ends[0] - BEGUN, "rounds": later, "accuracy": percent, "versions": versions}
        print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    prepare()
