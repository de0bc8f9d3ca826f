"""A finished run as it was left: its settings, its server and models, and silos that hold them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from fairsilo.core.answers import EXCHANGE
from fairsilo.core.arithmetic import EXACT
from fairsilo.core.files import on_device
from fairsilo.core.messages import MODEL, Message, Reply, Request
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.core.roster import Roster
from fairsilo.core.round import open_evaluation
from fairsilo.core.samples import SiloData
from fairsilo.core.server import Server
from fairsilo.core.silo import Memory, Silo
from fairsilo.engine.blueprint import Blueprint, ModelMaker
from fairsilo.engine.silo_store import memory_of
from fairsilo.errors import FairsiloError, nearest
from fairsilo.runs.joining import nobody
from fairsilo.runs.opened import read_finished, refuse_code
from fairsilo.runs.saved import SavedRun
from fairsilo.runs.seen import Seen, read_seen
from fairsilo.runs.setup import Objects, as_method, plan_of
from fairsilo.tasks.registry import names_code


class FinishedRun:
    """What a finished run kept, without the training data; `Trained` puts it to use and says what it has."""

    def __init__(
        self,
        folder: str | Path,
        *,
        method: Method | Part | None = None,
        model: ModelMaker | None = None,
        trust: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.run_folder = SavedRun(self.folder)
        self.experiment, self.facts = read_finished(self.folder, trust)
        for kind, given in (("model", model), ("method", method)):
            if kind in self.facts.get("objects", ()) and given is None:
                raise FairsiloError(
                    f"{folder} was begun from Python with a {kind} of its own; use it there: "
                    f"fairsilo.load(folder, {kind}=...)"
                )
        if "roster" not in self.facts:
            raise FairsiloError(f"{folder} was written by an earlier version, without the roster of its silos")
        if self.experiment.engine.device == "cuda" and not torch.cuda.is_available():
            engine = dataclasses.replace(self.experiment.engine, device="cpu")
            self.experiment = dataclasses.replace(self.experiment, engine=engine)
        self.roster = Roster.from_dict(self.facts["roster"])
        refuse_code(self.folder, [self.roster.task] if names_code(self.roster.task) else [], trust)
        self.classes, self.shape, self.silos = self.roster.classes, self.roster.shape, self.roster.names
        own = {} if method is None else {self.experiment.method: as_method(method)}
        self.plan: Blueprint = plan_of(self.experiment, self.roster, Objects(None, model, own))
        self.model = self.plan.flat()

    @cached_property
    def seen(self) -> Seen | None:
        """What the run trained on and validated with, by fingerprints."""
        return read_seen(self.folder)

    @cached_property
    def memories(self) -> dict[str, Memory]:
        """What each silo remembered at the end."""
        saved = self.run_folder.read_checkpoint()
        kept = self.run_folder.read_memories(saved[0]) if saved else {}
        device = torch.device(self.plan.device)
        return {name: memory_of(memory, device) for name, memory in kept.items()}

    @cached_property
    def server(self) -> Server:
        """The server as it was at the end."""
        plan, saved = self.plan, self.run_folder.read_checkpoint()
        own = plan.server_flat()
        layout = plan.layout.wire
        held = own.layout if own else layout
        vector = held.pack(self.run_folder.read_model(("global",))).to(plan.device) if held.size else torch.empty(0)
        memory = Memory(on_device(saved[1]["memory"], torch.device(plan.device))) if saved else Memory()
        return Server(
            method=plan.method,
            vector=vector,
            layout=held,
            silo_layout=layout,
            names=self.silos,
            training=plan.training,
            rounds=plan.training.rounds,
            seed=plan.seed,
            exchange=self._exchange,
            round=plan.training.rounds,
            memory=memory,
            own_model=own,
            task=plan.task,
        )

    def _exchange(self, kind: str, messages: dict[str, Message]) -> Iterator[Reply]:
        """Silos that are not here answer from what they remembered."""
        for name, message in messages.items():
            silo = self._silo(nobody(name), Request(kind, self.plan.training.rounds, message), self.memories.get(name))
            yield Reply(name, EXCHANGE[kind](silo))

    def personal(self, silo: str, which: str = "best") -> Tensor:
        """A silo's own model: its best one by validation, or its last."""
        kept = self.run_folder.read_model(("personal", self.kept(silo, which), silo))
        return self.model.layout.pack(kept).to(self.plan.device)

    def kept(self, silo: str, which: str) -> str:
        """Which of a silo's models there is: without validation data there is no best, and the last is taken."""
        _check(which)
        for one in dict.fromkeys((which, "last")):
            if self.run_folder.model_path(("personal", one, silo)).exists():
                return one
        if silo not in self.silos:
            raise FairsiloError(f"{self.folder} has no silo {silo!r}{nearest(silo, self.silos)}")
        raise FairsiloError(f"{self.folder} kept no model of silo {silo!r}: it was not there at the end")

    def _silo(self, data: SiloData, request: Request, memory: Memory | None = None, model: Any = None) -> Silo:
        return self.plan.silo(model or self.model, data, request, memory or Memory())

    def _holding(self, data: SiloData, silo: str | None, which: str) -> Silo:
        """A silo with these data that holds the global model, or that silo's own one."""
        _check(which)
        server = self.server
        message = open_evaluation(server, [silo] if silo else (), () if silo else [data.name])
        request = Request("evaluate", server.round, message[silo or data.name])
        if silo is None and server.own_model is not None:
            held = self._silo(data, request, model=server.own_model)
        else:
            held = self._silo(data, request, self.memories.get(silo or ""))
        if silo:
            held.model.load(self.personal(silo, which))
        elif not server.layout.size:
            raise FairsiloError(f"{self.plan.method.name} has no global model; name a silo with --silo")
        else:
            held.load(request.message.tensors[MODEL])
        return held

    def holding(self, silo: str | None, which: str) -> Silo:
        """A silo without data that holds the global model, or that silo's own one: what answers in `predict`."""
        return self._holding(nobody("images"), silo, which)

    @property
    def rounds_otherwise(self) -> bool:
        """Whether the run computes otherwise than in float32 on a CPU."""
        return self.plan.device != "cpu" or self.plan.arithmetic.precision != EXACT.precision

    def on_cpu(self) -> Self:
        """The same models on the CPU in plain float32, in a network that nobody else holds."""
        twin = copy.copy(self)
        for kept in ("memories", "server"):  # made anew, on the CPU
            twin.__dict__.pop(kept, None)
        twin.plan = dataclasses.replace(self.plan, device="cpu", arithmetic=EXACT)
        twin.model = twin.plan.flat()
        return twin


def _check(which: str) -> None:
    if which not in ("best", "last"):
        raise FairsiloError(f"which is {which!r}; it must be best or last")
