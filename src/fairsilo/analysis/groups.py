"""Fairness across groups of samples, from rows by group: how far the worst group is from the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairsilo.analysis.chance import normal, wilson
from fairsilo.analysis.metrics import deviation, mean

Row = Mapping[str, Any]
KINDS = ("global", "personal", "unseen")  # of results: two models at home, and the global one at unseen silos


def by_group(
    rows: Sequence[Row],
    rounds: Sequence[int],
    ddof: int = 0,
    higher: bool = True,
    metric: str = "accuracy",
    share: bool = True,
) -> dict[str, Any]:
    """Results by the values of each column, and how even they are.

    Args:
        rows: As a run writes them into `groups.jsonl`: round, column, model, unseen, left_out and `groups`, which has
            samples, metric and its standard error by value.
        rounds: Those that results are read from; of several the mean is taken.
        ddof: Degrees of freedom taken off in standard deviations over groups.
        higher: Whether more of the metric is better.
        metric: Its name.
        share: Whether it lies between 0 and 1.

    Returns:
        By column: `values` (by value: samples, unseen_samples, and of each kind of result the metric and, among the
        `intervals`, the 95 % one from the number of samples), `left_out` and
        `unseen_left_out` (test samples in groups that stay at their silo), and for each kind of result mean, worst,
        best, gap and std over the groups, with the names of the worst and the best.
    """
    found = {}
    for column in dict.fromkeys(row["column"] for row in rows):
        own = [row for row in rows if row["column"] == column and row["round"] in rounds]
        of = {kind: _of_kind(own, kind) for kind in KINDS}
        names = sorted({value for some in of.values() for row in some for value in row["groups"]})
        metrics = {kind: {name: _metric(of[kind], name) for name in names} for kind in KINDS}
        inside, outside = of["global"] or of["personal"], of["unseen"]
        found[column] = {
            "values": {
                name: {"samples": _samples(inside, name), "unseen_samples": _samples(outside, name)}
                | {kind: metrics[kind][name] for kind in KINDS}
                | {"intervals": {kind: interval(of[kind], name, metric, share) for kind in KINDS}}
                for name in names
            },
            "left_out": _left_out(inside),
            "unseen_left_out": _left_out(outside),
            **{kind: evenness(metrics[kind], ddof, higher) for kind in KINDS},
        }
    return found


def _of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    """The rows of a kind of result; where the model was adapted to unseen silos, that is the answer about them."""
    if kind != "unseen":
        return [row for row in rows if row["model"] == kind and not row["unseen"]]
    adapted = {row["round"] for row in rows if row["model"] == "adapted"}
    return [row for row in rows if row["unseen"] and (row["model"] == "adapted") == (row["round"] in adapted)]


def _metric(rows: Sequence[Row], name: str, key: str = "metric") -> float | None:
    known = [row["groups"][name].get(key) for row in rows if name in row["groups"]]
    known = [value for value in known if value is not None]
    return mean(known) if known else None


def interval(rows: Sequence[Row], name: str, metric: str, share: bool) -> list[float] | None:
    """As for silos: Wilson's of an accuracy, else the normal one; none where all samples of the group agree."""
    value, error = _metric(rows, name), _metric(rows, name, "error")
    if value is None:
        return None
    if metric == "accuracy":
        return list(wilson(value, _samples(rows, name)))
    return list(normal(value, error, share)) if error else None


def _samples(rows: Sequence[Row], name: str) -> int:
    return int(rows[-1]["groups"].get(name, {}).get("samples", 0)) if rows else 0


def _left_out(rows: Sequence[Row]) -> int:
    return int(rows[-1]["left_out"]) if rows else 0


def evenness(values: Mapping[str, float | None], ddof: int, higher: bool) -> dict[str, Any]:
    """Mean, ends and spread over the groups that have a result; empty where none has."""
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return {}
    ranked = sorted(known, key=lambda name: known[name], reverse=not higher)
    worst, best = known[ranked[0]], known[ranked[-1]]
    return {
        "mean": mean(known.values()),
        "worst": worst,
        "worst_group": ranked[0],
        "best": best,
        "best_group": ranked[-1],
        "gap": abs(best - worst),
        "std": deviation(known.values(), ddof),
    }


def judged(about: str, found: Mapping[str, Any]) -> str:
    """The kind of result that says how even a method is over groups: that of the model its results are about."""
    return next(kind for kind in (about, *KINDS) if found[kind] or kind == KINDS[-1])


def by_column(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Of a summary, for a line of a table: the worst group of each column, its metric, and the gap to the best."""
    found: dict[str, Any] = {}
    for column, one in (summary.get("groups") or {}).items():
        even = one[judged(summary["about"], one)]
        found |= {f"{column}_{key}": even.get(key) for key in ("worst_group", "worst", "gap")}
    return found
