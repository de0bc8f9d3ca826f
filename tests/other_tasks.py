"""Small federations and networks of the tasks that are no classification of images, for the laws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tiny
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.vectors import BATCH_NORMS
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.loop import History, Loop
from fairsilo.laws.tiny import looped
from fairsilo.methods.text import method
from fairsilo.models.networks import Network
from fairsilo.tasks.registry import task_of

VOCABULARY, WINDOW = 5, 8


class TinyMaps(Network):
    """A prediction for each pixel."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(channels, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.head = nn.Conv2d(6, classes, 1)


class TinyReader(Network):
    """A prediction for a window of characters."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Embedding(VOCABULARY, 4), nn.Flatten(), nn.Linear(4 * WINDOW, 12), nn.BatchNorm1d(12), nn.ReLU()
        )
        self.head = nn.Linear(12, classes)


class TinyColumns(Network):
    """A number for a row of columns."""

    def __init__(self, values: int, columns: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(columns, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, values)


def masks(count: int, shift: float, seed: int) -> Split:
    """A bright square somewhere on a background that differs per domain."""
    stream = torch.Generator().manual_seed(seed)
    images = 70 + shift + 15 * torch.randn(count, 3, 8, 8, generator=stream)
    targets = torch.zeros(count, 8, 8, dtype=torch.uint8)
    for number, (top, left) in enumerate(torch.randint(0, 5, (count, 2), generator=stream).tolist()):
        images[number, :, top : top + 4, left : left + 4] += 90
        targets[number, top : top + 4, left : left + 4] = 1
    return Split(images.clamp(0, 255).to(torch.uint8), targets)


def windows(count: int, shift: float, seed: int) -> Split:
    """The next character is the one after the last one; silos prefer other characters."""
    stream = torch.Generator().manual_seed(seed)
    liked = torch.ones(VOCABULARY).index_fill(0, torch.tensor([int(shift // 25) % VOCABULARY]), 2.0)
    codes = torch.multinomial(liked.expand(count, -1), WINDOW, replacement=True, generator=stream)
    return Split(codes, (codes[:, -1] + 1) % VOCABULARY)


def rows(count: int, shift: float, seed: int) -> Split:
    """A line with noise; silos stand at other places of it."""
    stream = torch.Generator().manual_seed(seed)
    columns = torch.randn(count, 4, generator=stream) + shift / 50
    numbers = columns @ torch.tensor([0.5, -0.3, 0.2, 0.0]) + 0.05 * torch.randn(count, generator=stream)
    return Split(columns, numbers)


@dataclasses.dataclass(frozen=True)
class Grouped:
    """A network with groups in the place of batches, for methods that must tell samples apart."""

    make: Callable[[int, int], nn.Module]

    def __call__(self, classes: int, channels: int) -> nn.Module:
        network = self.make(classes, channels)
        for name, module in list(network.named_modules()):
            if isinstance(module, BATCH_NORMS):
                owner, _, leaf = name.rpartition(".")
                setattr(network.get_submodule(owner), leaf, nn.GroupNorm(2, module.num_features))
        return network


@dataclasses.dataclass(frozen=True)
class Ground:
    """A task with data and a network."""

    task: str
    classes: tuple[str, ...]
    samples: Callable[[int, float, int], Split]
    network: Callable[[int, int], nn.Module]

    def federation(self) -> Federation:
        def silo(name: str, shift: float, count: int, seed: int) -> SiloData:
            return SiloData(name, name, *(self.samples(n, shift, seed + i) for i, n in enumerate((count, 12, 18))))

        sizes = {"a": 24, "b": 18, "c": 30}
        silos = [silo(name, 25.0 * i - 25, count, 10 * i) for i, (name, count) in enumerate(sizes.items())]
        return Federation("tiny", self.classes, tuple(silos), (silo("u", 50.0, 9, 99),), self.task)

    def plan(self, how: str, people: Federation, **changes: Any) -> Blueprint:
        # squared errors are unbounded: at a larger rate FedDyn's correction overshoots
        training = dataclasses.replace(tiny.TRAINING, lr=0.01 if self.task == "regress" else 0.05, **changes)
        shape, made = people.silos[0].train.shape, method(how)
        network = Grouped(self.network) if made.doing("private-updates") else self.network
        return Blueprint(
            made, network, task_of(self.task, len(self.classes)), shape[0], training, 0, silos=people.names
        )

    def loop(self, how: str, **options: Any) -> Loop:
        changes = {key: options.pop(key) for key in ("rounds", "epochs") if key in options}
        people = self.federation()
        plan = self.plan(how, people, **changes)
        server_data = self.samples(24, 0.0, 7)
        plan.check(people.roster, server_data=True)
        return looped(plan, people, server_data=server_data, **options)

    def run(self, how: str, **options: Any) -> History:
        return self.loop(how, **options).run()


GROUNDS = {
    one.task: one
    for one in (
        Ground("segment", ("background", "square"), masks, TinyMaps),
        Ground("next-character", tuple("abcde"), windows, TinyReader),
        Ground("regress", (), rows, TinyColumns),
    )
}
