"""A method on trial: new copies of it for every run, the runs of it, and one plain run that several laws look at."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.method import Method
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.events import Event
from fairsilo.engine.loop import Loop
from fairsilo.engine.processes import Pool
from fairsilo.errors import FairsiloError
from fairsilo.laws import tiny
from fairsilo.laws.engines import Watching

SHORT = dataclasses.replace(tiny.TRAINING, rounds=2)


class LawError(FairsiloError):
    """A method breaks a law; the sentence says how that showed."""


class NotApplicableError(Exception):
    """A law that says nothing about a method; the sentence says why."""


@dataclass(frozen=True)
class Plain:
    """A run that nothing disturbs."""

    loop: Loop
    before: Tensor  # the global model at the start
    failures: list[str]
    problem: Exception | None = None  # what ended it

    @property
    def malformed(self) -> list[str]:
        return [text for text in self.failures if ": malformed: " in text]


class Trial:
    """A method on trial.

    Args:
        method: The method. It is never run itself, so that each run starts with a copy that no run has touched.
        ground: The network that it is tried on.
    """

    def __init__(self, method: Method, ground: tiny.Ground) -> None:
        self.method = method
        self.ground = ground

    def loop(self, training: TrainSettings = SHORT, method: Method | None = None, **options: Any) -> Loop:
        """A run that is ready to start: of the method, or of a changed one."""
        return self.ground.loop(copy.deepcopy(method or self.method), training, **options)

    def numbers(self, training: TrainSettings = SHORT, method: Method | None = None, **options: Any) -> dict[str, Any]:
        """Everything that a run finds."""
        return tiny.numbers(self.loop(training, method, **options).run())

    @cached_property
    def plain(self) -> Plain:
        failures: list[str] = []

        def listen(event: Event) -> None:
            if event.kind == "failed":
                failures.append(f"silo {event.silo}: {event.text}")

        loop = self.loop(tiny.TRAINING, wrap=Watching, listener=listen)
        before = loop.server.vector.clone()
        try:
            loop.run()
        except Exception as problem:  # noqa: BLE001 - somebody else's code may raise anything; the law says what it was
            return Plain(loop, before, failures, problem)
        return Plain(loop, before, failures)

    @cached_property
    def sound(self) -> dict[str, Any]:
        """The numbers of a short run, computed once."""
        return self.numbers()

    @property
    def plan(self) -> Blueprint:
        return self.plain.loop.blueprint

    @property
    def trains(self) -> bool:
        return not self.method.doing("trains-nothing")

    def needs_a_plain_run(self) -> None:
        if self.plain.problem is not None:
            raise NotApplicableError("a plain run stops already")

    def needs_several_silos(self) -> None:
        if self.method.pools:
            raise NotApplicableError("all data are in one place")

    def needs_updates(self) -> None:
        self.needs_several_silos()
        if not self.plan.layout.wire.size:
            raise NotApplicableError("silos share no model")


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Without oneDNN, whose set-up of each layer takes longer than a tiny network's arithmetic."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@contextmanager
def workers(count: int = 2) -> Iterator[Pool]:
    pool = Pool(count)
    try:
        yield pool
    finally:
        pool.close()
