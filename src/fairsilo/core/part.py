"""Part: one idea of one paper, its silo half and its server half, and what describes it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import Sends, Sizes
from fairsilo.core.messages import Message
from fairsilo.core.needs import check_names
from fairsilo.core.output import Output
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Batch, Batches, Silo
from fairsilo.core.vectors import SHARED, Layout, Slot
from fairsilo.errors import FairsiloError
from fairsilo.fields import check_fields


@dataclass(frozen=True)
class About:
    """What describes a part to its readers.

    Attributes:
        paper: Where the idea is from.
        formula: What it computes, in a line.
        sends: What silos send for it besides the model, under any of its settings.
        keeps: What is kept between rounds, at the silo or the server, in words.
        results: Which model the results are about: `global` or `personal`.
        protects: Whose privacy an epsilon is about, of a part that makes updates private.
    """

    paper: str = ""
    formula: str = ""
    sends: tuple[Sends, ...] = ()
    keeps: tuple[str, ...] = ()
    results: str = "global"
    protects: str = ""


@dataclass(frozen=True)
class Part:
    """One idea, with its silo half and its server half; its fields are its hyper-parameters.

    A hook gets the current value and returns the next one; the default changes nothing. Hooks are called by the core,
    in the order of composition; a part calls none itself. A part keeps nothing on itself: what it needs in a later
    round is in `silo.memory.of(self)` or `server.memory.of(self)`.

    Attributes:
        name: Unique within a method; the key of its memory and the name in `method.without(name)`.
        about: What describes it: paper, formula, what silos send for it, what is kept.
        needs: What it needs of model, data, task and other parts: names of `core/needs.py`.
        does: What other parts must know of it: names of `core/needs.py`.

    Raises:
        FairsiloError: A field has a value out of its range.
        TypeError: A subclass names a need or an effect that does not exist.

    Example:
        >>> from dataclasses import dataclass
        >>> from fairsilo import Method, Part
        >>> @dataclass(frozen=True)
        ... class Damped(Part):
        ...     name = "damped"
        ...     factor: float = 0.5
        ...
        ...     def step(self, server, direction):
        ...         return self.factor * direction
        >>> (Method() | Damped(factor=0.1)).parts[0].factor
        0.1
    """

    name: ClassVar[str] = "part"
    about: ClassVar[About] = About()
    needs: ClassVar[frozenset[str]] = frozenset()  # of model, data, task and other parts: names of core/needs.py
    does: ClassVar[frozenset[str]] = frozenset()  # what others must know of it: names of core/needs.py
    recordable: ClassVar[bool] = False  # of another package: a GPU may record its steps (`core/recording.py`)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_names(cls.__name__, cls.needs, cls.does)

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}.")

    def refuse_idle(self, because: str, *names: str) -> None:
        """Raise FairsiloError where one of these settings differs from its default but has no effect with another."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                raise FairsiloError(f"{self.name}.{name} has no effect with {because}; leave one of them out")

    @property
    def sends(self) -> tuple[Sends, ...]:
        """What silos send for it with these settings."""
        return self.about.sends

    @property
    def results(self) -> str:
        """Which model the results are about, with these settings."""
        return self.about.results

    @property
    def weighting(self) -> str:
        """How silos count in the mean where train.weighting is auto: `samples`, `uniform`, or "" for no preference."""
        return ""

    @property
    def trains_bare(self) -> bool:
        """Whether the model that is sent was trained without the loss terms and gradient corrections of other parts."""
        return False

    # at construction
    def kind(self, slot: Slot) -> str:
        """How a tensor of the model is treated: shared, averaged or private."""
        return SHARED

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        """A model adaptation: what is trained around a frozen backbone; one owner per method."""
        return network

    def server_network(self, network: nn.Module, classes: tuple[str, ...], silos: tuple[str, ...]) -> nn.Module:
        """The server's own network, where it holds another than the silos that train; `network` is a new one of
        theirs before any adaptation."""
        return network

    def modules(self, network: nn.Module) -> dict[str, nn.Module]:
        """Auxiliary modules (an adversary, a second head): trained with the network, never sent."""
        return {}

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        """Raise FairsiloError where this part makes no sense, or has no effect, with this model and training."""

    def sizes(self, known: Sizes) -> dict[str, int]:
        """Sizes that the shapes of its attachments name (`Sends`), computed from those of model and data."""
        return {}

    # once
    def prepare(self, server: Server) -> None:
        """Before round 1, by exchanges of kind `share`."""

    def conclude(self, server: Server) -> None:
        """After the last round, before its evaluation: what is changed here is what results are about."""

    # at the silo
    def share(self, silo: Silo, message: Message) -> Message:
        """Answer this part's own `share` exchange."""
        return Message()

    def begin(self, silo: Silo) -> None:
        """Before local training, when the received model is loaded."""

    def draw(self, silo: Silo, indices: Tensor, stream: torch.Generator) -> dict[str, Tensor]:
        """Random choices for one training batch, made before the first step from a stream of this part's own.

        Args:
            silo: The silo, after `begin`.
            indices: Which training samples the batch has.
            stream: Where to draw from; on the CPU, so that engines agree.

        Returns:
            Tensors with one row per sample; the step finds them on its device as `batch.extra["part.key"]`.
        """
        return {}

    def phase(self, silo: Silo, step: int) -> Hashable:
        """Before each step of a local loop: what its hooks depend on beside tensors, such as which step it is. A step
        may be recorded, and later ones of the same phase be replayed without a call of any hook."""
        return None

    def train(self, silo: Silo) -> Tensor:
        """The local loop, which returns its mean loss; one owner per method, by default epochs of `descend`."""
        raise NotImplementedError

    def inputs(self, silo: Silo, inputs: Tensor, batch: Batch, training: bool) -> Tensor:
        """Change what the network sees, also at evaluation; `training` where the method's own objective is computed."""
        return inputs

    def criterion(self, silo: Silo, output: Output, batch: Batch) -> Tensor:
        """The loss that replaces the task's; one owner per method."""
        raise NotImplementedError

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        """Add a term; may call silo.forward again."""
        return loss

    def gradients(self, silo: Silo) -> None:
        """Correct silo.model.gradients in place."""

    def finish(self, silo: Silo, update: Message) -> None:
        """After local training: attach what the server needs, keep what the next round needs."""

    def outgoing(self, silo: Silo, update: Message) -> None:
        """The last step over a complete update, in place: clip, add noise, mask.

        `update.tensors[MODEL]` is the change of the model; all that parts attached is there too. What the silo keeps
        was written before and stays as it is."""

    def personal(self, silo: Silo, vector: Tensor) -> Tensor:
        """The silo's own model (whole vector); by default what it has after local training."""
        return vector

    @property
    def personalises(self) -> bool:
        """Whether `personalise` does anything, with these settings."""
        return type(self).personalise is not Part.personalise

    def personalise(self, silo: Silo) -> None:
        """Turn the new global model, which is loaded, into the silo's own; asked after rounds that are evaluated."""

    def adapt(self, silo: Silo, batches: Batches) -> Iterator[Tensor]:
        """At an unseen silo: predictions for its test inputs, in their order, adapting the loaded model to them without
        labels; one owner per method."""
        raise NotImplementedError

    # at the server
    def assemble(self, server: Server, silos: list[str]) -> list[str]:
        """Who of a round's silos goes on to train; may ask them first, by exchanges of kind `share`."""
        return silos

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        """What is sent to one silo; it may differ per silo."""
        return message

    def accompany(self, server: Server, message: Message) -> Message:
        """What goes with every model that is sent, also to be probed or evaluated, also to unseen silos."""
        return message

    def equip(self, server: Server, message: Message) -> Message:
        """What unseen silos get with the model that they adapt; may ask silos for it."""
        return message

    def collect(self, server: Server, updates: Updates) -> Updates:
        """Screen, mask, cluster; writes memory and facts."""
        return updates

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        """Coefficients of the updates; may probe candidates."""
        return weights

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        """The direction over parameters and float buffers; one owner per method, and without side effects, since
        candidates are combined too."""
        return updates.mean(weights)

    def unmask(self, server: Server, silos: list[str], sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """The means and sums behind the sums of masked tensors that these silos sent; one owner per method. It tells
        `server.weights` how the silos counted."""
        raise NotImplementedError

    def step(self, server: Server, direction: Tensor) -> Tensor:
        """Server optimiser, corrections; writes memory.

        It gets the direction alone, so that a running sum is enough. What it needs of attachments it declares with
        `per="mean"` or `per="sum"` and finds in `server.received`, by name."""
        return direction

    def model_for(self, server: Server, silo: str | None, vector: Tensor) -> Tensor:
        """The model that answers evaluation at a silo (None: an unseen one)."""
        return vector
