"""What silos send, declared: the source of the sentence a user reads, the screening of replies, and sizes in bytes.

Every part lists the tensors and numbers that its `finish` attaches and its `share` answers. A reply with anything else
is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from fairsilo.core.groups import asked_of, keys
from fairsilo.core.messages import MODEL, Message
from fairsilo.core.task import Task
from fairsilo.core.vectors import Layout

Shape = str | tuple[int | str, ...]
Sizes = Mapping[str, int | tuple[int, ...]]  # by name; some names stand for a whole shape
NUMBER, SHARED, PARAMETERS, WIRE = "number", "shared", "parameters", "wire"
_STRETCHES = (SHARED, PARAMETERS, WIRE)
_DTYPES = ("model", "float", "float64", "int", "int64", "uint8")
_USES = ("silo", "mean", "sum")
_RECEIVERS = ("server", "everybody", "silos")


@dataclass(frozen=True)
class Sends:
    """One tensor or number that a silo sends besides the model, declared so that a reply can be checked.

    Attributes:
        name: Its key in the message.
        words: What a user reads about it. Attachments with the same words are listed once; those without are not.
        shape: `number`; a range of the model's vector (`shared`: its shared trainable tensors, `parameters`: all
            trainable tensors that are sent, `wire`: everything that is sent); or a tuple of sizes. A size is a number
            or a name: `classes`, `features`, `channels`, `height`, `width`, `synthetic`, `tally`, or one that the
            part's `sizes` gives; `input` and `prediction` stand for all sizes of what the network sees of a sample and
            of what it makes of it. A name without a size is free, and has one size within a reply.
        dtype: `model`, the model's own; `float` and `int`, any of that kind; `float64`, `int64`, `uint8`.
        per: What the server uses: each silo's own (`silo`), or a `mean` or `sum` over the silos.
        exchange: The exchange that carries it: `train`, `share`, `probe`; anything else is outside the rounds.
        topic: Which question of a part's `share` exchanges it answers, where the part asks more than one.
        optional: When it may be missing, in words; empty where it never may.
        to: `server`; `everybody` where the server sends it on as it is; `silos` for what the server makes and sends.
        least: The smallest value that it may have.

    Example:
        >>> Sends("my-part.loss", "the loss on its training data", least=0).is_number
        True
    """

    name: str
    words: str = ""
    shape: Shape = NUMBER
    dtype: str = "model"
    per: str = "silo"
    exchange: str = "train"
    topic: str = ""
    optional: str = ""
    to: str = "server"
    least: float = -math.inf

    def __post_init__(self) -> None:
        known = isinstance(self.shape, tuple) or self.shape in (NUMBER, *_STRETCHES)
        if not known or self.dtype not in _DTYPES or self.per not in _USES or self.to not in _RECEIVERS:
            raise TypeError(f"attachment {self.name!r}: {self.shape!r}, {self.dtype!r}, {self.per!r} or {self.to!r}")

    @property
    def is_number(self) -> bool:
        return self.shape == NUMBER

    @property
    def is_single_update(self) -> bool:
        return (self.name, self.exchange, self.per) == (MODEL, "train", "silo")


EACH_UPDATE = Sends(MODEL, shape=WIRE)  # of a part whose `collect`, `weights` or `combine` looks at single updates

Group = tuple[Sends, ...]  # sent together or, where all are optional, not at all


def measured(key: str, task: Task | None, optional: str = "") -> list[Group]:
    """One measurement of a model: loss, reported metric and samples, the other metrics of the task and their errors."""
    loss, metric = (Sends(f"{key}{what}", optional=optional) for what in ("loss", "metric"))
    samples = Sends(f"{key}samples", dtype="int", optional=optional, least=1)
    if task is None:
        return [(loss, metric, samples)]
    named = [Sends(f"{key}metrics.{one.name}", optional="it is undefined on these samples") for one in task.metrics]
    errors = [Sends(f"{key}errors.{one.name}", optional="the task knows none here", least=0) for one in task.metrics]
    counts = [
        Sends(f"{key}per_class.{one}", shape=("classes",), dtype="float64", optional=_ABSENT) for one in task.per_class
    ]
    tables = [
        Sends(f"{key}per_pair.{one}", shape=("classes", "classes"), dtype="float64", optional=_ABSENT)
        for one in task.per_pair
    ]
    return [(loss, metric, samples), *((one,) for one in (*named, *errors, *counts, *tables))]


_SPLITS = ("validation", "test")
_ABSENT = "the silo has no samples of this split"
_COLUMN = "the silo's test samples have no such column"


def _always(kind: str, asked: Message, task: Task | None) -> list[Group]:
    """What every method sends in an exchange."""
    if kind == "train":
        update = [(Sends(MODEL, shape=WIRE, per="mean"),), (Sends("samples", dtype="int", least=1),), (Sends("loss"),)]
        return [*update, *(_splits("personal", asked, task) if asked.numbers.get("evaluate") else ())]
    if kind == "probe":
        return measured("", task)[:1]
    if kind == "adapt":
        return [*measured("adapted.test.", task), *grouped("adapted.test", asked)]
    models = {"evaluate": "global", "personalise": "personal"}
    return _splits(models[kind], asked, task) if kind in models else []


def _splits(model: str, asked: Message, task: Task | None) -> list[Group]:
    found = [group for split in _SPLITS for group in measured(f"{model}.{split}.", task, _ABSENT)]
    return [*found, *grouped(f"{model}.test", asked)]


def grouped(key: str, asked: Message) -> list[Group]:
    """The tallies of the groups that are asked for, and how many samples each holds, by column."""
    found: list[Group] = []
    for column, values in asked_of(asked).items():
        tallies, samples = keys(key, column)
        counts = Sends(samples, shape=(len(values),), dtype="int", per="sum", optional=_COLUMN, least=0)
        shape = (len(values), "tally")
        found.append((Sends(tallies, shape=shape, dtype="float64", per="sum", optional=_COLUMN), counts))
    return found


def expected(kind: str, asked: Message, parts: Sequence[Declaring], task: Task | None) -> list[Group]:
    """What a reply to this request holds: what every method sends, and what the method's parts declare."""
    groups = _always(kind, asked, task)
    known = {one.name for group in groups for one in group}
    for part in parts:
        if kind == "train" or (kind == "share" and asked.numbers.get("part") == part.name):
            topic = asked.numbers.get("topic", "")
            mine = (one for one in part.sends if one.exchange == kind and one.to != "silos")
            own = [one for one in mine if one.topic == topic and one.name not in known]
            groups += [(one,) for one in own]
            known |= {one.name for one in own}
    if kind == "train" and any("masks-updates" in part.does for part in parts):
        groups = [tuple(map(_masked, group)) for group in groups]
    return groups


def _masked(one: Sends) -> Sends:
    """An attachment as it travels where the server can read sums alone: whole numbers in the place of its tensor."""
    return one if one.is_number or one.per == "silo" else replace(one, dtype="int64")


class Declaring(Protocol):
    """What this module needs of a part."""

    @property
    def name(self) -> str: ...

    @property
    def sends(self) -> tuple[Sends, ...]: ...

    @property
    def does(self) -> frozenset[str]: ...


def extents(one: Sends, layout: Layout, sizes: Sizes) -> tuple[int | str, ...]:
    """The shape of an attachment; a size that is not known stays a name."""
    if isinstance(one.shape, tuple):
        known = [sizes.get(size, size) if isinstance(size, str) else size for size in one.shape]
        return tuple(size for some in known for size in (some if isinstance(some, tuple) else (some,)))
    lengths = {SHARED: layout.shared, PARAMETERS: layout.parameters, WIRE: layout.size}
    return () if one.is_number else (lengths[one.shape],)


def bytes_of(groups: Iterable[Group], layout: Layout, sizes: Sizes) -> int:
    """How large a reply is, as far as its sizes are known; what is optional counts as sent."""
    width = torch.empty((), dtype=layout.dtype).element_size()
    total = 0
    for one in (one for group in groups for one in group):
        known = [size for size in extents(one, layout, sizes) if isinstance(size, int)]
        total += 8 if one.is_number else math.prod(known) * (8 if one.dtype in ("float64", "int64") else width)
    return total
