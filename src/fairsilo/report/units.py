"""The unit in which results are shown: shares in percent, any other metric in units of the data.

A document is about one metric, so its unit is set once, around the whole of it (`shown_in`), and not handed from
function to function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from fairsilo.tasks.registry import METRICS

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Unit:
    """How numbers of a metric are written.

    Attributes:
        factor: What they are multiplied with.
        sign: What stands behind them on a page.
        word: What they are in, in a sentence or a title.
        points: What differences and spreads are in.
    """

    factor: float = 100.0
    sign: str = "\u00a0%"
    word: str = "percent"
    points: str = "points"

    def number(self, value: float, power: int = 1) -> str:
        """A result or, with power 2, a variance."""
        return f"{self.factor**power * value:.1f}" if self.factor != 1 else f"{value:.4g}"

    @property
    def squared(self) -> str:
        """What variances are in."""
        return f"{self.word}²"

    @property
    def label(self) -> str:
        """Behind the name of the metric, on an axis or above a column."""
        return ", %" if self.sign else ""


PERCENT = Unit()
_NUMBERS = {one.name for metrics in METRICS.values() for one in metrics if not one.share}
_unit: ContextVar[Unit] = ContextVar("unit", default=PERCENT)


def unit() -> Unit:
    return _unit.get()


@contextmanager
def shown_in(metric: str) -> Iterator[None]:
    """Inside the block results are written in the unit of this metric."""
    token = _unit.set(Unit(1.0, "", metric, metric) if metric in _NUMBERS else PERCENT)
    try:
        yield
    finally:
        _unit.reset(token)


def in_its_unit(metric_of: Callable[P, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: what the function writes is in the unit of the metric that its arguments are about."""

    def decorated(write: Callable[P, R]) -> Callable[P, R]:
        @wraps(write)
        def written(*args: P.args, **given: P.kwargs) -> R:
            with shown_in(metric_of(*args, **given)):
                return write(*args, **given)

        return written

    return decorated
