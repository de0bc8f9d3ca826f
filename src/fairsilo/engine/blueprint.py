"""The plan of a run: all that a silo must know to take part, the same on every engine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core import streams
from fairsilo.core.arithmetic import Arithmetic
from fairsilo.core.messages import Request
from fairsilo.core.method import Method
from fairsilo.core.needs import Facts
from fairsilo.core.output import Output, aligned, as_output, as_vectors
from fairsilo.core.roster import Roster
from fairsilo.core.samples import SiloData
from fairsilo.core.silo import Memory, Silo, inputs_for
from fairsilo.core.task import Task, blends, separable
from fairsilo.core.vault import Simulated, Vault
from fairsilo.core.vectors import FlatModel, Layout, tensors_of
from fairsilo.errors import FairsiloError
from fairsilo.methods.text import method, text_of
from fairsilo.models.backbones import Backbone
from fairsilo.models.networks import Staged
from fairsilo.models.registry import build
from fairsilo.tasks.augmentation import needs_bytes
from fairsilo.tasks.options import Options
from fairsilo.tasks.registry import has_name, task_of

ModelMaker = Callable[[int, int], nn.Module]


class UnnamedError(FairsiloError):
    """A plan holds a Python object that cannot be written as text."""


@dataclass(frozen=True)
class Blueprint:
    """All that a silo must know to take part; the same on every engine."""

    method: Method
    model: str | ModelMaker
    task: Task
    channels: int
    training: TrainSettings
    seed: int
    augment: str = "none"
    evaluation_batch: int = 256
    device: str = "cpu"
    threads: int = 1
    classes: tuple[str, ...] = ()  # names, for networks that read them
    arithmetic: Arithmetic = field(default_factory=Arithmetic)  # what changes rounding
    silos: tuple[str, ...] = ()  # who trains
    stemmed: bool = False  # silos hold what the network's frozen first stage made of their data
    encoded: bool = False  # what the server's network has of that kind is kept of the samples it is measured on

    # ------------------------------------------------------------------------------------------------------- as text
    def as_text(self) -> str:
        """All of it as JSON, from which a silo is built anywhere: method, model and settings by their names.

        Raises:
            UnnamedError: The model, the method or the task is a Python object that has no name elsewhere.
        """
        if not isinstance(self.model, str):
            raise UnnamedError("the model is a Python object")
        method = text_of(self.method)
        if method is None:
            raise UnnamedError(f"the method {self.method.name} has parts that have no name outside this program")
        content = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        options = getattr(self.task, "options", Options()).changed()
        task = [self.task.name, self.task.classes, self.task.reported.name, options]
        if not has_name(self.task.name):
            raise UnnamedError(f"the task {self.task.name} has no name outside this program")
        plain = {key: dataclasses.asdict(content[key]) for key in ("training", "arithmetic")}
        return json.dumps({**content, **plain, "method": method, "task": task})

    @classmethod
    def from_text(cls, text: str) -> Blueprint:
        """The inverse of `as_text`."""
        content = json.loads(text)
        lists = {key: tuple(content[key]) for key in ("classes", "silos")}
        made = {
            "method": method(content["method"]),
            "task": _task(*content["task"]),
            "training": TrainSettings(**content["training"]),
            "arithmetic": Arithmetic(**content["arithmetic"]),
        }
        return cls(**{**content, **lists, **made})

    # -------------------------------------------------------------------------------------------------- the networks
    def network(self, name: str | ModelMaker) -> nn.Module:
        if isinstance(name, str):
            return build(name, self.task.output.values, self.channels, self.seed)
        with streams.ambient(self.seed, "initial weights"):
            return name(self.task.output.values, self.channels)

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
        _set_precision(module, self.arithmetic.precision)
        return self.method.extended(module, self.seed)

    @cached_property
    def layout(self) -> Layout:
        """Of the silos' network, with what never leaves them."""
        return self.start()[0]

    def start(self) -> tuple[Layout, Tensor]:
        """Layout and initial vector of the silos' network, its tensors of the kinds the method gives them."""
        module = self._silo_network()
        layout = self.method.layout(Layout.of(module))
        return layout, layout.pack(tensors_of(module)).to(self.device)

    def check(self, roster: Roster, server_data: bool, synthetic: bool = False) -> Facts:
        """Refuse what the method cannot do with this model and these silos; returns what was found out about them."""
        model = self.flat()
        model.eval()
        self._check_size(model.module, str(self.model), roster)
        own = self.server_flat()
        if own:
            self._check_size(own.module, "the server's model", roster)
        self._check_augmentation(roster)
        blank = torch.zeros(1, *roster.shape, dtype=getattr(torch, roster.dtype))
        seen = inputs_for(model, blank)
        output = self._tried(model.module, seen)
        self._check_ending(output, roster)
        features = output.features
        sizes: dict[str, int | tuple[int, ...]] = {"classes": self.task.classes}
        sizes |= {"input": tuple(seen.shape[1:]), "prediction": tuple(output.prediction.shape[1:])}
        if len(roster.shape) == 3:
            sizes |= dict(zip(("channels", "height", "width"), roster.shape, strict=True))
        if features is not None:
            sizes["features"] = as_vectors(features).shape[1]
        without = tuple(member.name for member in roster.silos if not member.validation)
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
            blends=blends(self.task),
            separable=separable(self.task),
            continuous=seen.is_floating_point(),
        )
        self.method.check(facts)
        return facts

    def _tried(self, module: nn.Module, sample: Tensor) -> Output:
        """What the network makes of one sample; what it raises is told in a sentence, before anything is written."""
        try:
            return as_output(module(sample))
        except FairsiloError:
            raise
        except Exception as problem:
            shape = "x".join(map(str, sample.shape[1:]))
            raise FairsiloError(
                f"model {self.model!r} raised {type(problem).__name__} on an input of {shape}: {problem}"
            ) from problem

    def _check_augmentation(self, roster: Roster) -> None:
        """A wrong `data.augment` is refused before a run begins, by the task that will draw from it."""
        if self.augment == "none":
            return
        self.task.draws(self.augment, roster.shape, streams.Batches([(2, torch.Generator())]))
        if roster.dtype != "uint8" and needs_bytes(self.augment):
            raise FairsiloError(
                f"data.augment={self.augment} computes with colours, and images are {roster.dtype} numbers of an "
                "unknown range; give them as bytes (uint8), or leave jitter and grayscale out"
            )

    def _check_ending(self, output: Output, roster: Roster) -> None:
        """A task of pixels needs a network that predicts maps of the images' size; other tasks one that does not."""
        found, per_pixel = tuple(output.prediction.shape[1:]), self.task.output.per == "pixel"
        maps = len(found) == 3
        if maps != per_pixel or (maps and found[1:] != roster.shape[-2:]):
            wanted = f"values for each pixel of {'x'.join(map(str, roster.shape[-2:]))}" if per_pixel else "no maps"
            raise FairsiloError(
                f"the task {self.task.name!r} needs a network that predicts {wanted}, and {self.model!r} gives "
                f"{'x'.join(map(str, found)) or 'one number'} for a sample; `fairsilo models` says what each is for"
            )

    def _check_size(self, module: nn.Module, whose: str, roster: Roster) -> None:
        wanted = next((one.image_size for one in module.modules() if isinstance(one, Backbone)), None)
        given = roster.shape[-2:]
        if wanted is not None and not self.stemmed and given != (wanted, wanted):
            raise FairsiloError(
                f"the images are {'x'.join(map(str, given))}, and {whose} takes {wanted}x{wanted}; "
                f"set data.size={wanted}"
            )

    def flat(self) -> FlatModel:
        """The silos' network, ready to train."""
        module = self._silo_network()
        return FlatModel(module, self.method.layout(Layout.of(module)), self.device, self.arithmetic)

    def server_flat(self) -> FlatModel | None:
        """The server's own network, where the method has one."""
        owner = self.method.owners("server_network")
        if not owner:
            return None
        with streams.ambient(self.seed, "server weights"):
            module = owner[0].server_network(self.network(self.model), self.names, self.silos)
        _set_precision(module, self.arithmetic.precision)
        return FlatModel(module, Layout.of(module), self.device, self.arithmetic)

    def silo(
        self, model: FlatModel, data: SiloData, request: Request, memory: Memory, vault: Vault | None = None
    ) -> Silo:
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
            vault=vault or Simulated(self.seed, data.name),
            augment=self.augment,
            evaluation_batch=self.evaluation_batch,
        )


def _task(name: str, classes: int, metric: str, options: dict[str, Any]) -> Task:
    return task_of(name, classes, metric, Options(**options))


def _set_precision(module: nn.Module, precision: str) -> None:
    for one in module.modules():
        if isinstance(one, Backbone):
            one.short_floats = precision == "bfloat16"
