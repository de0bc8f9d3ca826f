"""The server's side of a round: the global model, what it remembers, and the updates it received."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core import streams
from fairsilo.core.attachments import Sizes
from fairsilo.core.hooks import Hooks
from fairsilo.core.messages import Message, Reply
from fairsilo.core.samples import Split
from fairsilo.core.silo import Memory
from fairsilo.core.task import Task
from fairsilo.core.vectors import FlatModel, Layout, weighted_mean

Exchange = Callable[[str, dict[str, Message]], Iterator[Reply]]


@dataclass
class Updates:
    """What the silos sent in a round, one row each, in name order.

    Attributes:
        silos: Their names.
        deltas: Row i is w_i - W over the whole vector: the silo's model minus the global one (silos x size).
        samples: Training samples of each silo, in float64.
        messages: What each silo sent besides.
        layout: Which tensors of the network lie where in a row.

    Example:
        Weights that are proportional to how far each silo's model moved:

        ```python
        def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
            norms = updates.parameters.norm(dim=1).double()
            return norms / norms.sum()
        ```
    """

    silos: tuple[str, ...]
    deltas: Tensor
    samples: Tensor  # float64
    messages: list[Message]
    layout: Layout

    @property
    def parameters(self) -> Tensor:
        """The shared trainable tensors of every update (silos x shared): what norms, cosines and masks use."""
        return self.deltas[:, : self.layout.shared]

    def numbers(self, key: str) -> Tensor:
        """One reported number per silo, in float64; NaN where a silo did not report it."""
        values = [message.numbers.get(key, float("nan")) for message in self.messages]
        return torch.tensor([float(value) for value in values], dtype=torch.float64)

    def mean(self, weights: Tensor) -> Tensor:
        """The default direction: the weights as they are for shared parameters, normalised for everything else."""
        direction = weighted_mean(self.deltas[:, : self.layout.floats], weights)
        total = float(weights.sum())
        if abs(total - 1) > 1e-12 and total > 0:
            direction[self.layout.shared :].div_(total)
        return direction

    def without(self, names: Container[str]) -> Updates:
        """The same without the updates of some silos."""
        kept = [row for row, silo in enumerate(self.silos) if silo not in names]
        if len(kept) == len(self):
            return self
        silos, messages = tuple(self.silos[row] for row in kept), [self.messages[row] for row in kept]
        return Updates(silos, self.deltas[kept], self.samples[kept], messages, self.layout)

    def __len__(self) -> int:
        return len(self.silos)


@dataclass
class Server:
    """What the server half of a part works with: the global model, and what it may use.

    Attributes:
        vector: The global model, as a vector.
        layout: Which tensors of the network lie where in that vector.
        names: All silos that train.
        training: The settings `train.*` of the run.
        round: The round, from 1.
        rounds: How many rounds the run has.
        seed: The run's seed.
        domains: How many domains the silos come from. Parts are not told which silo has which.
        memory: What parts keep at the server between rounds; `memory.of(part)` is one part's dictionary.
        facts: What a part found in this round, for other parts.
        weights: Silo -> weight of its update in this round.
        left_out: Silo -> why a part does not let its update count.
        data: Samples at the server (`data.server`), where the method uses them.
        synthetic: Silo -> labelled images in its style, where the method uses them.
        task: The task: its loss and its metrics.
        network: Makes the silos' network, for parts that train at the server.
    """

    method: Hooks
    vector: Tensor  # the global model
    layout: Layout
    silo_layout: Layout  # of what silos send; differs where the server holds another model
    names: tuple[str, ...]  # every silo that trains
    training: TrainSettings
    rounds: int
    seed: int
    exchange: Exchange
    round: int = 0
    domains: int = 1  # how many the silos come from; parts are not told which silo has which
    memory: Memory = field(default_factory=Memory)
    facts: dict[str, Any] = field(default_factory=dict)  # found in this round, for other parts
    notes: list[str] = field(default_factory=list)  # said in the log with the round
    left_out: dict[str, str] = field(default_factory=dict)  # silo -> why a part does not let its update count
    weights: dict[str, float] = field(default_factory=dict)  # of the round's aggregation, for the report
    received: dict[str, Tensor] = field(default_factory=dict)  # means and sums of declared attachments, for `step`
    own_model: FlatModel | None = None  # the server's own network, where the method has one
    data: Split | None = None  # given to the server (synthetic or public), where the method uses it
    synthetic: dict[str, Split] = field(
        default_factory=dict
    )  # silo -> labelled images in its style, made by a generator
    task: Task | None = None
    sizes: Sizes = field(default_factory=dict)  # by name: classes, features, channels, height, width, input, ...
    network: Callable[[], FlatModel] | None = None  # makes the silos' network, for parts that train on the server

    def sizes_for(self, silo: str) -> Sizes:
        """The named sizes of what a silo sends: of model and data, of its synthetic images, and those of parts."""
        sizes = dict(self.sizes)
        if silo in self.synthetic:
            sizes["synthetic"] = len(self.synthetic[silo])
        for more in self.method.hooks("sizes"):
            sizes |= more(sizes)
        return sizes

    def note(self, text: str) -> None:
        """Say something in the run's log, with the round."""
        self.notes.append(text)

    def stream(self, *purpose: object) -> torch.Generator:
        """The random stream of the server and this round for one purpose."""
        return streams.generator(self.seed, self.round, "server", *purpose)

    def ask(self, kind: str, messages: dict[str, Message]) -> dict[str, Message]:
        """Ask silos and wait for their answers. Failures are logged, and those silos are missing from the result."""
        replies = self.exchange(kind, messages)
        return {reply.silo: reply.answer for reply in replies if isinstance(reply.answer, Message)}


def base_weights(samples: Tensor, weighting: str) -> Tensor:
    """FedAvg's shares: by samples, or equal."""
    counts = samples if weighting == "samples" else torch.ones_like(samples)
    return counts / counts.sum()


def ordered(names: Iterable[str], values: dict[str, float]) -> Tensor:
    """Values of a dictionary in the order of names, in float64."""
    return torch.tensor([values[name] for name in names], dtype=torch.float64)


def named(names: Sequence[str], values: Tensor) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))
