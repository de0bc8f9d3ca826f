"""What a table shows of a run: one number, from what the ledger keeps of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fairsilo.analysis.chance import EvaluationSet, Judge
from fairsilo.analysis.metrics import tail_means

Record = Mapping[str, Any]  # a run, as a line of the ledger has it


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        title: Of its column.
        of: Reads it from a record; None where the run does not have it.
        higher: Whether more is better; None where neither is.
        decimals: That are shown.
    """

    title: str
    of: Callable[[Record], float | None]
    higher: bool | None = True
    decimals: int = 1

    @property
    def rounding(self) -> float:
        """What is nothing but rounding: a thousandth of the last decimal; a ledger keeps six digits of a share."""
        return 10.0 ** -(self.decimals + 3)

    @property
    def better(self) -> str:
        """Which end is good, in words."""
        return {True: "more is better", False: "less is better", None: "neither end is better"}[self.higher]


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def by_domain(record: Record) -> dict[str, float]:
    """Domain -> the global model's result there, over the silos that train; that of their own models where a method has
    no global one."""
    silos = [silo for silo in record["silos"].values() if not silo["unseen"]]
    model = "global" if any(silo["global"] is not None for silo in silos) else "personal"
    found: dict[str, list[float]] = {}
    for silo in silos:
        if silo.get(model) is not None:
            found.setdefault(silo["domain"], []).append(silo[model])
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


def by_silo(record: Record) -> list[float]:
    """The results of all silos that train: of the global model, or of their own where the method is about those."""
    model = record.get("about", "global")
    found = (silo.get(model) for silo in record["silos"].values() if not silo["unseen"])
    return [value for value in found if value is not None]


def _silos(record: Record) -> float | None:
    found = by_silo(record)
    return _percent(statistics.fmean(found)) if found else None


def _tail(end: int) -> Callable[[Record], float | None]:
    """The mean of the worst (0) or of the best tenth (1) of the silos."""
    return lambda record: _percent(tail_means(found)[end]) if (found := by_silo(record)) else None


def _variance(record: Record) -> float | None:
    found = by_silo(record)
    return 1e4 * statistics.pvariance(found) if found else None


def _beyond(record: Record) -> float | None:
    """The variance less that which equally good silos would show on test sets of these sizes; below 0 where that is
    more."""
    found, model = _variance(record), record.get("about", "global")
    known = {name: one for name, one in record["silos"].items() if not one["unseen"] and one.get(model) is not None}
    if found is None or record.get("metric") != "accuracy":
        return None
    judge = Judge({name: EvaluationSet(one["domain"], one["samples"] or 0) for name, one in known.items()})
    equal = judge.apart({name: one[model] for name, one in known.items()}, {}, 0)["std_if_equal"]
    return None if equal is None else found - 1e4 * equal**2


def validated(record: Record, model: str = "global") -> list[float]:
    """The results of all silos that train on their validation samples; older lines do not have them."""
    found = ((silo.get("validation") or {}).get(model) for silo in record["silos"].values() if not silo["unseen"])
    return [value for value in found if value is not None]


def _validation(model: str) -> Callable[[Record], float | None]:
    return lambda record: _percent(statistics.fmean(found)) if (found := validated(record, model)) else None


def _validation_worst(record: Record) -> float | None:
    found = validated(record)
    return _percent(min(found)) if found else None


def _drawn(figure: str, number: str) -> Callable[[Record], float | None]:
    """A number of a figure, where the run's line has it."""
    return lambda record: ((record.get("figures") or {}).get(figure) or {}).get(number)


def _share(figure: str, number: str) -> Callable[[Record], float | None]:
    return lambda record: _percent(_drawn(figure, number)(record))


def _loss(number: str) -> Callable[[Record], float | None]:
    return lambda record: (record.get("loss") or {}).get(number)


MEASURES = {
    "unseen": Measure("held-out domain", lambda record: _percent(record["generalisation"])),
    "personal": Measure("own models at home", lambda record: _percent(record["personalisation"])),
    "average": Measure("average over domains", _average),
    "deviation": Measure("deviation over domains", _deviation, higher=False),
    "worst": Measure("worst domain", _worst),
    "silos": Measure("mean over silos", _silos),
    "worst-tenth": Measure("worst tenth of silos", _tail(0)),
    "best-tenth": Measure("best tenth of silos", _tail(1)),
    "variance": Measure("variance over silos, percent²", _variance, higher=False),
    "variance-beyond": Measure("variance over silos beyond chance, percent²", _beyond, higher=False),
    "gap-variance": Measure("variance of gaps", lambda record: record["gap_variance"], higher=False, decimals=4),
    "loss": Measure("training loss, last round", _loss("last"), higher=False, decimals=3),
    "loss-rises": Measure("training loss, sum of its rises", _loss("rises"), higher=False, decimals=3),
    "slope": Measure("slope of gap against weight", _drawn("weight-gap", "slope"), higher=None, decimals=3),
    "pearson": Measure("Pearson, gap against weight", _drawn("weight-gap", "pearson"), higher=None, decimals=2),
    "gaps-fedavg": Measure("variance of gaps, FedAvg", _drawn("gap-variance", "fedavg"), higher=False, decimals=4),
    "gaps-ga": Measure("variance of gaps, GA", _drawn("gap-variance", "ga"), higher=False, decimals=4),
    "gaps-faa": Measure("variance of gaps, FAA", _drawn("gap-variance", "faa"), higher=False, decimals=4),
    "unseen-loss": Measure("loss, global model, unseen", _drawn("loss-surface", "global"), higher=False, decimals=3),
    "local-loss": Measure("loss, local models, unseen", _drawn("loss-surface", "local"), higher=False, decimals=3),
    "rise": Measure("mean rise of the loss around it", _drawn("loss-surface", "rise"), higher=False, decimals=3),
    "mixing": Measure("mixing of domains in t-SNE", _drawn("t-sne", "mixing"), decimals=2),
    "a-distance-first": Measure("A-distance, first round", _drawn("a-distance", "first"), higher=False, decimals=2),
    "a-distance-last": Measure("A-distance, last round", _drawn("a-distance", "last"), higher=False, decimals=2),
    "a-distance": Measure("A-distance, all rounds", _drawn("a-distance", "mean"), higher=False, decimals=2),
    **{
        f"steady-{window.replace(' ', '-')}{'-chance' if chance else ''}": Measure(
            f"one way in 9 of 10, {window} rounds{', by chance' if chance else ''}",
            _share("update-consistency", f"{window} rounds{', by chance' if chance else ''}"),
            higher=None,
        )
        for window in ("first 10", "first 100", "last 10")
        for chance in (False, True)
    },
    "validation": Measure("validation: global model", _validation("global")),
    "validation-personal": Measure("validation: own models", _validation("personal")),
    "validation-worst": Measure("validation: worst silo", _validation_worst),
}
