"""The unit in which results are shown: shares in percent, any other metric in units of the data.

A document is about one metric, so its unit is set once, around the whole of it (`shown_in`), and not handed from
function to function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from fairsilo.tasks.metrics import kept

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
        metric: What the numbers are of; empty where nobody says.
        higher: Whether more is better.
    """

    factor: float = 100.0
    sign: str = "\u00a0%"
    word: str = "percent"
    points: str = "points"
    metric: str = ""
    higher: bool = True

    def number(self, value: float, power: int = 1) -> str:
        """A result or, with power 2, a variance."""
        return f"{self.factor**power * value:.1f}" if self.factor != 1 else f"{value:.4g}"

    @property
    def title(self) -> str:
        """What a table is of: the metric, its unit, and whether less of it is better."""
        named = f"{self.metric} in {self.word}" if self.metric and self.metric != self.word else self.word
        return named if self.higher else f"{named}, lower is better"

    @property
    def squared(self) -> str:
        """What variances are in."""
        return f"{self.word}²"

    @property
    def label(self) -> str:
        """Behind the name of the metric, on an axis or above a column."""
        return ", %" if self.sign else ""


PERCENT = Unit()
_unit: ContextVar[Unit] = ContextVar("unit", default=PERCENT)


def unit() -> Unit:
    return _unit.get()


@contextmanager
def shown_in(metric: str, share: bool | None = None, higher: bool | None = None) -> Iterator[None]:
    """Inside the block results are written in the unit of this metric.

    `share` says whether it is one (`Metric.share`), `higher` whether more of it is better; None, as in run folders of
    older versions: what its name tells.
    """
    one, name = kept(metric, share, higher), metric.replace("-", " ")
    shown = PERCENT if one.share else Unit(1.0, "", name, name)
    token = _unit.set(replace(shown, metric=name, higher=one.higher_is_better))
    try:
        yield
    finally:
        _unit.reset(token)


def shown_as(summary: Mapping[str, Any]) -> AbstractContextManager[None]:
    """The same for the metric that a summary has."""
    return shown_in(str(summary.get("metric", "")), summary.get("share"), summary.get("higher_is_better"))


def as_summarised(metric: Mapping[str, Any]) -> dict[str, Any]:
    """A metric that a search or an advice keeps (`Metric.as_dict`), under the names that it has in a summary."""
    return {"metric": metric["name"], **{key: metric.get(key) for key in ("share", "higher_is_better")}}


def in_its_unit(summary_of: Callable[..., Mapping[str, Any]]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: what the function writes is in the unit of the metric that the summary among its arguments has."""

    def decorated(write: Callable[P, R]) -> Callable[P, R]:
        @wraps(write)
        def written(*args: P.args, **given: P.kwargs) -> R:
            with shown_as(summary_of(*args, **given)):
                return write(*args, **given)

        return written

    return decorated
