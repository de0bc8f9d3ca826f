"""A silo at work: its data, the model it holds, what it remembers. Hooks receive it; it knows no method's rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core import streams
from fairsilo.core.hooks import Hooks, Named
from fairsilo.core.messages import Message, digest
from fairsilo.core.output import Output
from fairsilo.core.pixels import Pixels
from fairsilo.core.samples import Pooled, SiloData, Split
from fairsilo.core.task import Task
from fairsilo.core.vault import Vault, seed_of
from fairsilo.core.vectors import FlatModel

Choice = Callable[[int], list[Tensor]]  # epoch -> which samples each of its batches has
Batches = Callable[[int], Iterator[Tensor]]  # the inputs of a silo's test split, without labels, so many at a time


class Memory(dict[str, dict[str, Any]]):
    """What a silo or the server keeps between rounds: part name -> entries (tensors, numbers, texts, dicts of these).

    Entries are replaced, never changed in place, so that a step that fails half-way leaves nothing behind.
    """

    def of(self, part: Named) -> dict[str, Any]:
        return self.setdefault(part.name, {})

    def copy(self) -> Memory:
        return Memory({name: dict(entries) for name, entries in self.items()})


@dataclass(frozen=True)
class Batch:
    inputs: Tensor
    targets: Tensor
    indices: Tensor
    last: bool = False  # of the last local epoch
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # what parts drew for it (`draw`), on the device

    def tensors(self) -> list[Tensor]:
        """All that it holds, in an order that `with_tensors` knows."""
        return [self.inputs, self.targets, self.indices, *self.extra.values()]

    def with_tensors(self, tensors: list[Tensor]) -> Batch:
        inputs, targets, indices, *extra = tensors
        return Batch(inputs, targets, indices, self.last, dict(zip(self.extra, extra, strict=True)))


@dataclass(frozen=True)
class Planned:
    """What is decided about one step before training: which samples, and every random choice, one row per sample."""

    indices: Tensor
    places: Tensor  # where they lie in a storage of several silos
    last: bool  # of the last local epoch
    augmentation: dict[str, Tensor]
    extra: dict[str, Tensor]

    def tensors(self) -> list[Tensor]:
        """All that it holds, in an order that `with_tensors` knows."""
        return [self.indices, self.places, *self.augmentation.values(), *self.extra.values()]

    def with_tensors(self, tensors: list[Tensor]) -> Planned:
        indices, places, *rest = tensors
        changes, extra = rest[: len(self.augmentation)], rest[len(self.augmentation) :]
        return Planned(
            indices,
            places,
            self.last,
            dict(zip(self.augmentation, changes, strict=True)),
            dict(zip(self.extra, extra, strict=True)),
        )


class Recorder(Protocol):
    """Replays steps that it has seen before (`core/recording.py`)."""

    def taken(self, kind: tuple[object, ...], given: Any, step: Callable[[Any], Tensor]) -> Tensor:
        """A step on a batch or several: made, or replayed where some of its kind were made before; its result."""
        ...


class Measured:
    """Tallies of one exchange by model and samples: silos of a domain often test on the same samples, once is enough.

    Args:
        shared: Silo and name of its splits whose samples another silo has too.
    """

    def __init__(self, shared: Container[tuple[str, str]] = ()) -> None:
        self.shared = shared
        self._exchange: object = None
        self._found: dict[tuple[object, ...], Future[Any]] = {}
        self._lock = threading.Lock()

    def of(self, exchange: object, key: tuple[object, ...], made: Callable[[], Any]) -> Any:
        """What was found before in this exchange under a key, or is being found by another thread; else what is made
        now."""
        with self._lock:
            if exchange != self._exchange:
                self._exchange, self._found = exchange, {}
            before = self._found.get(key)
            mine = self._found.setdefault(key, Future())
        if before is not None:
            return before.result()
        try:
            mine.set_result(made())
        except BaseException as problem:
            with self._lock:
                self._found.pop(key, None)  # the next silo may do better
            mine.set_exception(problem)
            raise
        return mine.result()


@dataclass
class Silo:
    """What the silo half of a part works with: one silo during one exchange.

    State between rounds is in `memory.of(part)`; random numbers come from `stream`.

    Attributes:
        data: The silo's samples: `train`, `validation` and `test`.
        model: Its network as one vector of parameters, with their gradients.
        task: The task: its loss and its metrics.
        training: The settings `train.*` of the run.
        memory: What parts keep at this silo between rounds; `memory.of(part)` is one part's dictionary.
        message: What the server sent.
        round: The round, from 1.
        rounds: How many rounds the run has.
        seed: The run's seed.
        start: The model that local training starts from, as a vector.
        sent: The server's model as it was sent, as a vector.
        steps: Optimiser steps taken in this exchange.
        scratch: What parts hold during this exchange only.

    Example:
        A part that shrinks gradients with the rounds in which this silo has trained:

        ```python
        def gradients(self, silo: Silo) -> None:
            silo.model.gradients.mul_(0.9 ** silo.memory.of(self).get("rounds", 0))
        ```
    """

    data: SiloData
    model: FlatModel
    method: Hooks
    task: Task
    training: TrainSettings
    memory: Memory
    message: Message  # what the server sent
    round: int
    rounds: int
    seed: int
    untrained: Callable[[], Tensor]  # the model before round 1: where tensors start that never come from the server
    vault: Vault  # what only this silo knows
    augment: str = "none"
    evaluation_batch: int = 256
    recorder: Recorder | None = None  # replays steps; without one they are simply made
    measured: Measured = field(default_factory=lambda: Measured())  # by silos before it in this exchange
    sent: Tensor = field(default_factory=lambda: torch.empty(0))  # the server's model, as it was sent
    start: Tensor = field(
        default_factory=lambda: torch.empty(0)
    )  # the model this silo starts from (its own tensors kept)
    steps: int = 0  # optimiser steps taken in this exchange
    scratch: dict[str, Any] = field(default_factory=dict)  # what parts hold during this exchange only

    @property
    def name(self) -> str:
        """The silo's name."""
        return self.data.name

    @property
    def parameters(self) -> Tensor:
        """All trainable tensors as one vector; a term of the loss written in it reaches every gradient."""
        return self.model.parameters

    @property
    def start_parameters(self) -> Tensor:
        """The trainable tensors of the model that local training starts from, as one vector."""
        return self.start[: self.model.layout.parameters]

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self.model.parameters.device

    def stream(self, *purpose: object) -> torch.Generator:
        """The random stream of this silo and round for one purpose."""
        return streams.generator(self.seed, self.round, self.name, *purpose)

    @cached_property
    def asked(self) -> str:
        """What identifies the request that is being answered."""
        return digest([self.round, self.message])

    def secret(self, *purpose: object) -> bytes:
        """32 random bytes that only this silo knows, for one purpose of this answer.

        Another answer gets other bytes, since the same noise on two updates would show their difference.
        """
        return self.vault.randomness("\x1f".join(map(str, (self.asked, *purpose))), 32)

    def load(self, sent: Tensor) -> None:
        """Take the server's model, except for the tensors this silo keeps as its own."""
        layout = self.model.layout
        self.sent = sent
        own = self.memory.get("silo", {}).get("own")
        if not layout.own:
            self.start_from(sent)
        else:
            if layout.wire is layout:
                vector = sent.clone()
            else:
                vector = self.untrained() if own is None else sent.new_empty(layout.size)
                layout.write_wire(sent, vector)
            position = 0
            if own is not None:
                for slot in layout.own:
                    vector[slot.place] = own[position : position + slot.length]
                    position += slot.length
            self.start_from(vector)

    def start_from(self, vector: Tensor) -> None:
        """Let local training start from this model."""
        self.start = self.hold("start", vector)
        self.model.load(vector)

    def hold(self, name: str, value: Tensor) -> Tensor:
        """Keep a tensor for the steps of this exchange, as `scratch[name]`; tensors that steps change are kept so.

        The next silo may use the same storage. Put a copy of the tensor into a message or into memory, never itself.
        """
        self.scratch[name] = held = self.model.hold(name, value)
        return held

    def keep_own(self) -> None:
        """Remember the tensors that do not come back from the server."""
        layout = self.model.layout
        if layout.own:
            vector = self.model.read()
            own = torch.cat([vector[slot.place] for slot in layout.own])
            self.memory.setdefault("silo", {})["own"] = own

    def change(self) -> Tensor:
        """What is sent back: the local model minus the server's, as sent."""
        vector = self.model.layout.to_wire(self.model.read())
        return vector.sub_(self.sent)

    def forward(self, inputs: Tensor, vector: Tensor | None = None) -> Output:
        """The network's output, of the model held or of another one given as a vector."""
        return self.model.forward(inputs, vector)

    @torch.no_grad()
    def reference(self, inputs: Tensor, vector: Tensor) -> Output:
        """The output of a fixed model (the received one, an earlier one): evaluation mode, no gradient."""
        self.model.eval()
        output = self.forward(inputs, vector)
        self.model.train()
        return output

    def batches(
        self, purpose: str = "train", epochs: int | None = None, chosen: Choice | None = None
    ) -> Iterator[Batch]:
        """Shuffled batches of the training split, the same for every method with the same seed; or as `chosen`.

        A trailing batch of one sample is dropped: batch normalisation cannot take it.
        """
        return map(self.made, self.drawn(purpose, epochs, chosen))

    def drawn(self, purpose: str = "train", epochs: int | None = None, chosen: Choice | None = None) -> list[Planned]:
        """The same batches before they are made, with all that was drawn for them on the device."""
        split = self.data.train
        steps = uploaded(self.planned(purpose, epochs, chosen), self.device, split.targets.device)
        return located(steps, split) if isinstance(split.storage, Pooled) else steps

    def made(self, step: Planned) -> Batch:
        """A training batch, changed as it was drawn: images before they become what the network sees."""
        split = self.data.train
        if isinstance(split.storage, Pooled):
            inputs, targets = split.storage.both(step.places)
        else:
            inputs, targets = split.take(step.indices.to(split.targets.device))
        if not step.augmentation:
            values, targets = inputs_for(self.model, inputs), targets.to(self.device)
            return Batch(values, targets, step.indices, step.last, step.extra)
        images = inputs.dtype == torch.uint8
        values = inputs.to(self.device, self.model.layout.dtype) if images else inputs.to(self.device)
        values, targets = self.task.augment(values, targets.to(self.device), step.augmentation)
        values = self.model.pixels.from_bytes(values) if images else values
        return Batch(values, targets, step.indices, step.last, step.extra)

    def planned(self, purpose: str = "train", epochs: int | None = None, chosen: Choice | None = None) -> list[Planned]:
        """Everything random about the steps of a local training, decided before the first of them.

        So a step itself is a function of tensors alone, which a machine may record and replay.
        """
        split = self.data.train
        epochs = self.training.epochs if epochs is None else epochs
        # one stream for each part that draws, for all batches in turn
        own = () if purpose == "train" else (purpose,)
        drawing = [(part, self.stream(part.name, "draw", *own)) for part in self.method.owners("draw")]
        steps, changed = [], []
        for epoch in range(epochs):
            for number, indices in enumerate(chosen(epoch) if chosen else self._shuffled(purpose, epoch)):
                if self.augment != "none":
                    stream = self.stream(purpose, "augment", epoch, number)
                    if chosen:  # who chooses samples in secret also changes them in secret
                        stream = torch.Generator().manual_seed(seed_of(self.secret("augment", epoch, number)))
                    changed.append((len(indices), stream))
                extra = {
                    f"{part.name}.{key}": drawn
                    for part, stream in drawing
                    for key, drawn in part.draw(self, indices, stream).items()
                }
                steps.append(Planned(indices, indices, epoch == epochs - 1, {}, extra))
        if not changed:
            return steps
        drawn = self.task.draws(self.augment, split.shape, streams.Batches(changed))
        pieces = {key: torch.split(values, [count for count, _ in changed]) for key, values in drawn.items()}
        return [
            replace(step, augmentation={key: piece[number] for key, piece in pieces.items()})
            for number, step in enumerate(steps)
        ]

    def _shuffled(self, purpose: str, epoch: int) -> list[Tensor]:
        size = self.training.batch_size
        found = torch.split(self._order(self.stream(purpose, "order", epoch)), size)
        return list(found[:-1] if len(found) > 1 and len(found[-1]) == 1 and size > 1 else found)

    def _order(self, stream: torch.Generator) -> Tensor:
        """Which training samples an epoch takes: each once, or so that all strata (classes) come equally often."""
        targets = self.data.train.targets
        if not self.training.balance:
            return torch.randperm(len(targets), generator=stream)
        _, place, counts = torch.unique(self.task.strata(targets.cpu()), return_inverse=True, return_counts=True)
        return torch.multinomial(1 / counts.double()[place], len(targets), replacement=True, generator=stream)

    def evaluation_batches(self, split: Split) -> Iterator[Batch]:
        for start in range(0, len(split), self.evaluation_batch):
            stop = min(start + self.evaluation_batch, len(split))
            yield self.batch(split, torch.arange(start, stop, device=split.targets.device))

    def batch(self, split: Split, indices: Tensor) -> Batch:
        """These samples of a split, as they are."""
        inputs, targets = split.take(indices.to(split.targets.device))
        return Batch(inputs_for(self.model, inputs), targets.to(self.device), indices)


def uploaded(steps: list[Planned], device: torch.device, data: torch.device) -> list[Planned]:
    """The same steps with their draws on the device, their order where the data are; each kind of draw in one copy."""
    if device.type == "cpu" or not steps:
        return steps
    sizes = [len(step.indices) for step in steps]

    def moved(tensors: list[Tensor], to: torch.device) -> tuple[Tensor, ...]:
        return torch.split(torch.cat(tensors).to(to), sizes)

    def each(of: Callable[[Planned], dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        pieces = {key: moved([of(step)[key] for step in steps], device) for key in of(steps[0])}
        return [{key: piece[number] for key, piece in pieces.items()} for number in range(len(steps))]

    orders = moved([step.indices for step in steps], data)
    changes, extras = each(lambda step: step.augmentation), each(lambda step: step.extra)
    return [
        replace(step, indices=order, augmentation=change, extra=extra)
        for step, order, change, extra in zip(steps, orders, changes, extras, strict=True)
    ]


def located(steps: list[Planned], split: Split) -> list[Planned]:
    """The same steps with the places of their samples in the split's storage."""
    if not steps or split.indices is None:
        return steps
    places = split.indices[torch.cat([step.indices for step in steps])]
    each = torch.split(places, [len(step.indices) for step in steps])
    return [replace(step, places=some) for step, some in zip(steps, each, strict=True)]


def prepare(inputs: Tensor, device: torch.device, dtype: torch.dtype, pixels: Pixels | None = None) -> Tensor:
    """Images (uint8) as floats on the device, in [-1, 1] or as a network wants them; anything else passes."""
    return (pixels or Pixels()).seen(inputs, device, dtype)


def inputs_for(model: FlatModel, inputs: Tensor) -> Tensor:
    """Samples as this network wants them, on its device."""
    return prepare(inputs, model.parameters.device, model.layout.dtype, model.pixels)
