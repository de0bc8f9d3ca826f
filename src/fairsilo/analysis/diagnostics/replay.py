"""What every diagnostic reads: a finished run, its rounds and its global models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor

from fairsilo.core.vectors import Layout
from fairsilo.errors import FairsiloError

Row = dict[str, Any]
Numbers = dict[str, float]
GLOBAL = "global"
SENT, AFTER = "sent", "after"


class Replay(Protocol):
    """A finished run: the vectors of its local models, ways to measure any vector at any silo, and its attention."""

    @property
    def layout(self) -> Layout:
        """Of all vectors below: what crosses the wire."""

    @property
    def silos(self) -> Sequence[str]: ...

    @property
    def unseen(self) -> Sequence[str]: ...

    @property
    def rounds(self) -> Sequence[int]:
        """Rounds whose local models were kept, ascending; the first round of a run is 1. May refuse with a sentence."""

    @property
    def total_rounds(self) -> int: ...

    @property
    def samples(self) -> Mapping[str, int]:
        """Training samples per silo."""

    def sent(self, round: int) -> Tensor:
        """The global model as it was sent at the start of the round."""

    def local(self, round: int) -> Mapping[str, Tensor]:
        """The local model of every silo that answered, after its training."""

    def after(self, round: int) -> Tensor | None:
        """The global model at the end of the round; None where it was not kept."""

    def loss(self, vector: Tensor, silo: str, split: str) -> float:
        """Mean task loss in evaluation mode."""

    def features(self, vector: Tensor, silo: str, split: str, limit: int) -> tuple[Tensor, Tensor]:
        """Features (n x d) and targets of at most `limit` samples, always the same ones, in evaluation mode."""

    @property
    def domains(self) -> Mapping[str, bool]:
        """Domains with test images, those of the silos first -> whether nobody trained on them."""

    @property
    def attends(self) -> bool:
        """Whether the global model is an adapter per silo, which answer together by attention."""

    def attention(self, domain: str) -> Tensor:
        """How much each silo's adapter counts for each test image of a domain (images x silos)."""


class Result(Protocol):
    def rows(self) -> list[Row]:
        """Lines of a table, all with the same columns."""

    def numbers(self) -> Numbers:
        """The few numbers that say what the figure shows, where it shows something."""


def measured(found: Mapping[str, float | None]) -> Numbers:
    """Without what could not be measured."""
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def mean_of(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    found = [value for value in values if value is not None]
    return math.fsum(found) / len(found) if found else None


def answered(replay: Replay, number: int) -> dict[str, Tensor]:
    """The local models of a round, silos in their usual order."""
    local = replay.local(number)
    return {silo: local[silo] for silo in replay.silos if silo in local}


def kept_round(replay: Replay, number: int | None) -> int:
    """The round asked for, by default the last that was kept."""
    if not replay.rounds:
        raise FairsiloError(
            "this run kept no local models, so there is nothing to draw; run it again with evaluate.keep_local=true"
        )
    if number is not None and number not in replay.rounds:
        raise FairsiloError(
            f"the local models of round {number} were not kept; the first kept is {replay.rounds[0]}, "
            f"the last {replay.rounds[-1]}"
        )
    return replay.rounds[-1] if number is None else number


def check_global(which: str) -> None:
    if which not in (SENT, AFTER):
        raise FairsiloError(f"the global model of a round is {SENT!r} or {AFTER!r}, not {which!r}")


def global_model(replay: Replay, number: int, which: str) -> Tensor | None:
    return replay.sent(number) if which == SENT else replay.after(number)


def last_global(replay: Replay, number: int, which: str | None) -> tuple[str, Tensor]:
    """The global model asked for; by default the one after the round, where it was kept."""
    if which is not None:
        check_global(which)
        found = global_model(replay, number, which)
        if found is None:
            raise FairsiloError(f"the global model after round {number} was not kept; take the one that was sent")
        return which, found
    after = replay.after(number)
    return (SENT, replay.sent(number)) if after is None else (AFTER, after)


def one_thread() -> AbstractContextManager[object]:
    """Sums over several threads would differ from run to run; and there is little to gain at these sizes."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # scikit-learn requires it

    limits: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limits
