"""The silo side of every engine: holds one network for all silos it serves, answers requests one at a time."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core import streams
from fairsilo.core.answers import EXCHANGE, SAVED
from fairsilo.core.messages import Failure, Message, Request
from fairsilo.core.method import Method
from fairsilo.core.needs import Facts
from fairsilo.core.output import aligned, as_output
from fairsilo.core.samples import SiloData
from fairsilo.core.silo import Memory, Silo, prepare
from fairsilo.core.vectors import FlatModel, Layout, tensors_of
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import Backbone
from fairsilo.models.networks import Staged
from fairsilo.models.registry import build
from fairsilo.tasks.classify import Classify

ModelMaker = Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class Blueprint:
    """All that a silo must know to take part; the same on every engine."""

    method: Method
    model: str | ModelMaker
    task: Classify
    channels: int
    training: TrainSettings
    seed: int
    augment: str = "none"
    evaluation_batch: int = 256
    device: str = "cpu"
    threads: int = 1
    classes: tuple[str, ...] = ()  # names, for networks that read them
    precision: str = "float32"  # of a pretrained backbone
    silos: tuple[str, ...] = ()  # who trains
    stemmed: bool = False  # silos hold what the network's frozen first stage made of their data

    def network(self, name: str | ModelMaker) -> nn.Module:
        if isinstance(name, str):
            return build(name, self.task.classes, self.channels, self.seed)
        with streams.ambient(self.seed, "initial weights"):
            return name(self.task.classes, self.channels)

    @property
    def names(self) -> tuple[str, ...]:
        return self.classes or tuple(map(str, range(self.task.classes)))

    def _silo_network(self) -> nn.Module:
        module = self.network(self.model)
        adaptation = self.method.owners("network")
        with streams.ambient(self.seed, "adaptation weights"):
            if adaptation:
                module = adaptation[0].network(module, self.names)
            elif isinstance(module, Backbone):
                module = module.whole()
        if isinstance(module, Staged):
            module.stemmed = self.stemmed
        _set_precision(module, self.precision)
        return self.method.extended(module, self.seed)

    def start(self) -> tuple[Layout, Tensor]:
        """Layout and initial vector of the silos' network, its tensors of the kinds the method gives them."""
        module = self._silo_network()
        layout = self.method.layout(Layout.of(module))
        return layout, layout.pack(tensors_of(module)).to(self.device)

    def check(self, federation: Federation, server_data: bool, synthetic: bool = False) -> Facts:
        """Refuse what the method cannot do with this model and these data; returns what was found out about them."""
        model = self.flat()
        model.eval()
        self._check_size(model.module, str(self.model), federation)
        own = self.server_flat()
        if own:
            self._check_size(own.module, "the server's model", federation)
        sample = prepare(federation.silos[0].train.inputs[:1], torch.device(self.device), model.layout.dtype)
        output = as_output(model.module(sample))
        features = output.features
        without = tuple(silo.name for silo in federation.silos if not len(silo.validation))
        sizes = {"classes": self.task.classes}
        if sample.dim() == 4:
            sizes |= dict(zip(("channels", "height", "width"), sample.shape[1:], strict=True))
        if features is not None:
            sizes["features"] = features.flatten(1).shape[1]
        staged = isinstance(model.module, Staged)
        facts = Facts(
            layout=model.layout,
            training=self.training,
            task=self.task.name,
            without_validation=without,
            features=features is not None,
            trained_features=features is not None and features.requires_grad,
            server_data=server_data,
            staged=staged,
            synthetic=synthetic,
            sizes=sizes,
            trained_alignment=features is not None and aligned(output).requires_grad,
        )
        self.method.check(facts)
        return facts

    def _check_size(self, module: nn.Module, whose: str, federation: Federation) -> None:
        wanted = next((one.image_size for one in module.modules() if isinstance(one, Backbone)), None)
        height, width = federation.silos[0].train.inputs.shape[-2:] if not self.stemmed else (wanted, wanted)
        if wanted is not None and (height, width) != (wanted, wanted):
            raise FairsiloError(
                f"the images are {height}x{width}, and {whose} takes {wanted}x{wanted}; set data.size={wanted}"
            )

    def flat(self) -> FlatModel:
        """The silos' network, ready to train."""
        module = self._silo_network()
        return FlatModel(module, self.method.layout(Layout.of(module)), self.device)

    def server_flat(self) -> FlatModel | None:
        """The server's own network, where the method has one."""
        owner = self.method.owners("server_network")
        if not owner:
            return None
        with streams.ambient(self.seed, "server weights"):
            module = owner[0].server_network(self.network(self.model), self.names, self.silos)
        _set_precision(module, self.precision)
        return FlatModel(module, Layout.of(module), self.device)

    def silo(self, model: FlatModel, data: SiloData, request: Request, memory: Memory) -> Silo:
        """A silo ready to answer one request, with a copy of its memory.

        The schedule of the learning rate is that of the rounds: what is tuned after one has the whole rate.
        """
        return Silo(
            data=data,
            model=model,
            method=self.method,
            task=self.task,
            training=self.training.at(request.round) if request.kind == "train" else self.training,
            memory=memory.copy(),
            message=request.message,
            round=request.round,
            rounds=self.training.rounds,
            seed=self.seed,
            untrained=lambda: self.start()[1],  # rarely needed and as large as the model: made on demand
            augment=self.augment,
            evaluation_batch=self.evaluation_batch,
        )


def _set_precision(module: nn.Module, precision: str) -> None:
    for one in module.modules():
        if isinstance(one, Backbone):
            one.short_floats = precision == "bfloat16"


class Answer(NamedTuple):
    message: Message | Failure
    memory: Memory | None = None  # what the silo remembers from now on; None: as before
    saved: dict[str, Tensor] | None = None  # the silo's own model, to be saved as its `last` or `best` one


class Host:
    """Answers requests for any silo of a federation."""

    def __init__(self, blueprint: Blueprint, federation: Federation, strict: bool = False) -> None:
        self.blueprint = blueprint
        self.federation = federation
        self.strict = strict
        self.model = blueprint.flat()
        self.server_model = blueprint.server_flat()

    def answer(self, name: str, request: Request, memory: Memory) -> Answer:
        """One silo's answer. A silo that raises is a failure with its reason, and remembers nothing of the step."""
        plan = self.blueprint
        on_server_model = request.message.numbers.get("network") == "server" and self.server_model is not None
        model = self.server_model if on_server_model else self.model
        assert model is not None
        silo = plan.silo(model, self.federation[name], request, memory)
        try:
            with streams.ambient(plan.seed, request.round, name, request.kind):
                message = EXCHANGE[request.kind](silo)
        except Exception as problem:
            if self.strict:
                raise
            return Answer(Failure("error", _reason(problem)))
        keeps = request.kind in ("train", "share", "personalise")
        return Answer(message, silo.memory if keeps else None, silo.scratch.get(SAVED))


def _reason(problem: Exception) -> str:
    """The exception and the line that raised it: enough to find it, nothing of the data."""
    frames = traceback.extract_tb(problem.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(problem).__name__}: {problem}{where}"


def use_threads(count: int) -> None:
    torch.set_num_threads(count)
