"""A federation and a network small enough to train hundreds of times, and the ways the laws run a method on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from fairsilo.config import EngineSettings, EvaluateSettings, TrainSettings
from fairsilo.core.method import Method
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.federation import Federation, pooled
from fairsilo.data.groups import groups_of
from fairsilo.engine.base import Engine
from fairsilo.engine.blueprint import Blueprint, ModelMaker
from fairsilo.engine.events import Callback, silent
from fairsilo.engine.features import keep_features
from fairsilo.engine.grouping import Groups
from fairsilo.engine.loop import History, Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.models.backbones import Backbone
from fairsilo.models.networks import Network
from fairsilo.runs.saved import SavedRun
from fairsilo.tasks.classify import Classify

CLASSES = 3
NETWORK = "fairsilo.laws.tiny:TinyNet"  # by name, so that a plan can be written as text
TRAINING = TrainSettings(rounds=3, epochs=1, batch_size=8, lr=0.1, momentum=0.9, weight_decay=1e-4)
Wrap = Callable[[Engine], Engine]


class TinyNet(Network):
    """A convolution with batch normalisation and a linear head: 200 parameters, all kinds of tensors."""

    def __init__(self, classes: int, channels: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 3, padding=1), norm(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(24, classes)


class TinyGroupNet(TinyNet):
    """The same with groups in the place of batches, for methods that must tell samples apart."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__(classes, channels, partial(nn.GroupNorm, 2))


def network_for(how: Method) -> type[TinyNet]:
    """The network from scratch that a method is tried on."""
    return TinyGroupNet if how.doing("private-updates") else TinyNet


def samples(count: int, shift: float, seed: int) -> Split:
    """Images whose class is the channel that is bright in its upper half, on a background that differs per domain."""
    stream = torch.Generator().manual_seed(seed)
    targets = torch.arange(count) % CLASSES
    images = 90 + shift + 25 * torch.randn(count, CLASSES, 6, 6, generator=stream)
    images[torch.arange(count), targets, :3] += 80
    return Split(images.clamp(0, 255).to(torch.uint8), targets)


def silo(name: str, shift: float, count: int, seed: int) -> SiloData:
    parts = (samples(size, shift, seed + i) for i, size in enumerate((count, 12, 18)))
    return SiloData(name, name, *parts)


def federation(sizes: dict[str, int] | None = None) -> Federation:
    """Silos with so many training samples each, and an unseen one."""
    sizes = sizes or {"a": 24, "b": 18, "c": 30}
    silos = [silo(name, 25.0 * i - 25, count, 10 * i) for i, (name, count) in enumerate(sizes.items())]
    return Federation("tiny", tuple("012"), tuple(silos), (silo("u", 50.0, 9, 99),))


def at_odds() -> Federation:
    """The same federation, in which one silo names the classes otherwise, so that updates contradict each other."""
    people = federation()

    def other(split: Split) -> Split:
        return Split(split.inputs, (split.targets + 1) % CLASSES)

    first = people["a"]
    odd = SiloData(first.name, first.domain, other(first.train), other(first.validation), other(first.test))
    return Federation(people.name, people.classes, (odd, people["b"], people["c"]), people.unseen)


def enlarged(people: Federation, size: int = 8, channels: int = 3) -> Federation:
    """The same federation with images of another size; past the third, channels come again."""

    def split(one: Split) -> Split:
        images = F.interpolate(one.inputs.float(), size=(size, size)).to(torch.uint8)
        return Split(images[:, torch.arange(channels) % 3], one.targets)

    def silo(one: SiloData) -> SiloData:
        return SiloData(one.name, one.domain, split(one.train), split(one.validation), split(one.test))

    return Federation(people.name, people.classes, tuple(map(silo, people.silos)), tuple(map(silo, people.unseen)))


def server_images() -> Split:
    """Images of the server's own, for methods that train on some."""
    return samples(60, 0.0, 7)


def looped(
    plan: Blueprint,
    people: Federation,
    *,
    folder: Path | None = None,
    listener: Callback = silent,
    wrap: Wrap = lambda engine: engine,
    engine: Callable[[Blueprint, Federation], Engine] | None = None,
    server_data: Split | None = None,
    synthetic: dict[str, Split] | None = None,
    groups: Sequence[str] = (),
    every: int = 1,
    **settings: Any,
) -> Loop:
    """A run of a plan on a federation, ready to start: from the folder's checkpoint where there is one."""
    made = engine(plan, people) if engine else Sequential(plan, people)
    made.folder = folder  # type: ignore[attr-defined]
    run_folder = SavedRun(folder) if folder else None
    if run_folder:
        run_folder.create()
    return Loop(
        plan,
        people.roster,
        wrap(made),
        evaluate=EvaluateSettings(every=every),
        settings=EngineSettings(**settings),
        records=run_folder,
        listener=listener,
        server_data=server_data,
        synthetic=synthetic,
        groups=Groups.of(groups_of(people, groups).columns, plan, people.silos[0].train),
    )


@dataclasses.dataclass(frozen=True)
class Ground:
    """Where a method is tried: on the network from scratch, or on the backbone that it is built around."""

    model: str | ModelMaker = ""  # empty: from scratch

    def loop(
        self,
        how: Method,
        training: TrainSettings = TRAINING,
        people: Federation | None = None,
        seed: int = 0,
        **options: Any,
    ) -> Loop:
        """A run of a method, ready to start; `options` are those of `looped`."""
        people = people or federation()
        model = self.model or f"{__name__}:{network_for(how).__name__}"  # by name: a plan can be written as text
        plan = Blueprint(how, model, Classify(CLASSES), 3, training, seed, classes=people.classes)
        backbone = next((one for one in plan.network(model).modules() if isinstance(one, Backbone)), None)
        images = server_images()
        if backbone is not None and backbone.image_size is not None:
            people = enlarged(people, backbone.image_size)
            images = people.unseen[0].validation
            plan = dataclasses.replace(plan, training=dataclasses.replace(training, lr=0.2 * training.lr))
        made = {one.name: one.validation for one in people.silos}
        if how.pools:
            people = pooled(people)
        plan = dataclasses.replace(plan, silos=people.names)
        ready = keep_features(plan, people, images)
        return looped(ready.plan, ready.federation, server_data=ready.server_data, synthetic=made, **options)


def numbers(history: History) -> dict[str, Any]:
    """Everything a run found that may not depend on where, when or in how many pieces it ran."""
    records = []
    for record in history.rounds:
        exchanges = [{k: v for k, v in exchange.items() if k != "seconds"} for exchange in record["exchanges"]]
        records.append({k: v for k, v in record.items() if k != "seconds"} | {"exchanges": exchanges})
    return {"vector": history.vector.tolist(), "rows": history.rows, "rounds": records}
