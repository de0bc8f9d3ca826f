"""The silo side of every engine: holds one network for all silos it serves, answers requests one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.answers import EXCHANGE, SAVED
from fairsilo.core.files import on_device
from fairsilo.core.messages import Failure, Message, Request
from fairsilo.core.screening import DIVERGED
from fairsilo.core.silo import Measured, Memory, Recorder
from fairsilo.core.vault import Vault
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.features import Encoded
from fairsilo.engine.resident import Data, beside
from fairsilo.engine.styles import STYLE, learn_style
from fairsilo.errors import reason_of

REMEMBERED = ("train", "share", "personalise")  # exchanges that change what a silo remembers


class Answer(NamedTuple):
    message: Message | Failure
    memory: Memory | None = None  # what the silo remembers from now on; None: as before
    saved: dict[str, Tensor] | None = None  # the silo's own model, to be saved as its `last` or `best` one


class Host:
    """Answers requests for any silo whose data it holds."""

    def __init__(
        self,
        blueprint: Blueprint,
        federation: Data,
        strict: bool = False,
        vaults: Mapping[str, Vault] | None = None,
    ) -> None:
        self.blueprint = blueprint
        self.strict = strict
        self.vaults = vaults or {}  # silo -> what only it knows; a simulation's follow from its seed
        self.model = blueprint.flat()
        self.data = beside(self.model.parameters.device, federation)
        self.server_model = blueprint.server_flat()
        self.encoded = Encoded(self.server_model) if self.server_model is not None and blueprint.encoded else None
        self.measured = Measured(shared_splits(federation))
        self.recorder: Recorder | None = None
        self.ambient: Callable[..., AbstractContextManager[object]] = streams.ambient

    def answer(self, name: str, request: Request, memory: Memory) -> Answer:
        """One silo's answer. A silo that raises is a failure with its reason, and remembers nothing of the step."""
        plan = self.blueprint
        if request.kind == STYLE:
            return self._tried(lambda: Answer(learn_style(self.data[name], request.message)))
        tensors = on_device(request.message.tensors, self.model.parameters.device)  # off a wire they are on the CPU
        request = replace(request, message=Message(tensors, request.message.numbers))
        on_server_model = request.message.numbers.get("network") == "server" and self.server_model is not None
        model = self.server_model if on_server_model else self.model
        assert model is not None
        data = self.data[name]
        if on_server_model and self.encoded is not None:
            data = self.encoded.of(data)
        silo = plan.silo(model, data, request, memory, self.vaults.get(name))
        silo.measured, silo.recorder = self.measured, self.recorder

        def answered() -> Answer:
            with self.ambient(plan.seed, request.round, name, request.kind):
                message = EXCHANGE[request.kind](silo)
            keeps = request.kind in REMEMBERED
            return Answer(message, silo.memory if keeps else None, silo.scratch.get(SAVED))

        return self._tried(answered)

    def _tried(self, answered: Callable[[], Answer]) -> Answer:
        try:
            return answered()
        except Exception as problem:
            if self.strict:
                raise
            if isinstance(problem, FloatingPointError):  # no fault of the program: its line would help nobody
                return Answer(Failure(DIVERGED, str(problem)))
            return Answer(Failure("error", reason_of(problem)))


def shared_splits(federation: Data) -> frozenset[tuple[str, str]]:
    """Silo and name of the splits whose samples another silo of a simulation has too."""
    people = (*federation.silos, *federation.unseen) if isinstance(federation, Federation) else ()
    named = [(silo.split(split).place, silo.name, split) for silo in people for split in ("validation", "test")]
    often = Counter(place for place, *_ in named)
    return frozenset((silo, split) for place, silo, split in named if often[place] > 1)
