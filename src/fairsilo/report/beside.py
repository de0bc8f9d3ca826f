"""A run beside another one: whether their results may be compared, and what a difference of them is called."""

from __future__ import annotations

import math
from typing import NamedTuple

from fairsilo.analysis.metrics import of_own_models
from fairsilo.report.blocks import Run, paragraph, points
from fairsilo.report.tables import OWN
from fairsilo.report.units import unit

# settings of the data that leave the silos' own data as they are; of the held-out domain the runs themselves tell
NOT_OF_THE_DATA = ("held_out", "root", "server", "synthetic", "synthetic_share", "synthetic_bad", "augment")


def apart(run: Run, other: Run) -> list[str]:
    """In what two runs differ that makes a difference of their results say nothing of what is compared."""
    held_out = set(run.held_out) != set(other.held_out)
    found = {
        "data": _other_data(run, other) or (not held_out and _other_tests(run, other)),
        "held-out domain": held_out,
        "metric": run.summary["metric"] != other.summary["metric"],
        "complete rounds": run.done != other.done,
    }
    return [name for name, differs in found.items() if differs]


def _other_data(run: Run, other: Run) -> bool:
    """By their settings and by the name of the federation, as far as both say it."""
    one, two = (dict(item.config.get("data") or {}) for item in (run, other))
    names = {item.info["data"] for item in (run, other) if "data" in item.info}
    return len(names) > 1 or any(one[key] != two[key] for key in (one.keys() & two.keys()).difference(NOT_OF_THE_DATA))


def _other_tests(run: Run, other: Run) -> bool:
    """Whether a silo that both have has not as many test samples; one that pools all others is in one run alone."""
    one, two = (
        {silo.get("name"): silo.get("test") for silo in (*item.members("silos"), *item.members("unseen"))}
        for item in (run, other)
    )
    return any(one[name] != two[name] for name in one.keys() & two.keys())


def why_not_compared(run: Run, other: Run) -> str:
    """A sentence; empty where the results of two runs may be compared."""
    found = apart(run, other)
    if not found:
        return ""
    if found == ["complete rounds"]:
        words = f"The two are not equally far, round {run.done} and round {other.done} of {other.method}"
        return f"{words}: their difference is not shown."
    *first, last = found
    both = f"{', '.join(first)} and {last}" if first else last
    return f"The two differ in {both}: their difference is not shown."


class Change(NamedTuple):
    """One result minus another: how much, whether that is `good` or `bad` (or nothing), and in words for a spread."""

    much: str
    kind: str
    even: str = ""


def change(value: float, other: float, spread: bool = False) -> Change:
    """Of a spread, less is better."""
    by = value - other
    if float(unit().number(by)) == 0:
        return Change("no difference", "")
    better = by < 0 if spread or not unit().higher else by > 0
    even = f"{'more' if better else 'less'} even" if spread else ""
    return Change(f"{'+' if by > 0 else ''}{points(by)} {unit().points}", "good" if better else "bad", even)


def against(value: float, other: float | None, name: str, spread: bool = False) -> str:
    """The difference to the result of what has this name, in words."""
    if other is None or math.isnan(value - other):
        return ""
    much, kind, even = change(value, other, spread)
    if not kind:
        return paragraph(f"{much} to {name}", "difference")
    return paragraph(f"{much} against {name}" + (f": {even}" if even else ""), f"difference {kind}")


def whose(run: Run, other: Run) -> str:
    """Which models a run's fairness is of, where those of it or of the other are silos' own; else empty."""
    mine, theirs = (of_own_models(item.summary) for item in (run, other))
    return OWN if mine else "global model" if theirs else ""


def whose_models(run: Run, other: Run) -> str:
    """A method with whose models its fairness is of, where that is not plain."""
    models = whose(run, other)
    return f"{run.method} ({models})" if models else run.method
