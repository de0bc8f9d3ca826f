"""What a table shows of a run: one number, from what the ledger keeps of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]  # a run, as a line of the ledger has it


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        title: Of its column.
        of: Reads it from a record; None where the run does not have it.
        higher: Whether more is better.
        decimals: That are shown.
    """

    title: str
    of: Callable[[Record], float | None]
    higher: bool = True
    decimals: int = 1


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def by_domain(record: Record) -> dict[str, float]:
    """Domain -> the global model's result there, over the silos that train."""
    found: dict[str, list[float]] = {}
    for silo in record["silos"].values():
        if not silo["unseen"] and silo["global"] is not None:
            found.setdefault(silo["domain"], []).append(silo["global"])
    return {domain: statistics.fmean(values) for domain, values in found.items()}


def _average(record: Record) -> float | None:
    found = by_domain(record)
    return _percent(statistics.fmean(found.values())) if found else None


def _deviation(record: Record) -> float | None:
    found = by_domain(record)
    return _percent(statistics.stdev(found.values())) if len(found) > 1 else None


def _worst(record: Record) -> float | None:
    found = by_domain(record)
    return _percent(min(found.values())) if found else None


MEASURES = {
    "unseen": Measure("held-out domain", lambda record: _percent(record["generalisation"])),
    "personal": Measure("own models at home", lambda record: _percent(record["personalisation"])),
    "average": Measure("average over domains", _average),
    "deviation": Measure("deviation over domains", _deviation, higher=False),
    "worst": Measure("worst domain", _worst),
    "gap-variance": Measure("variance of gaps", lambda record: record["gap_variance"], higher=False, decimals=4),
}
