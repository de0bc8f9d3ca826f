"""Differences between methods, paired by what both met alike; which of several methods are ahead.

Runs of one seed share silos, initial weights and batches, whatever domain is held out, so that they are no independent
looks. Margins and tests are therefore over seeds alone, and a single seed has none.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from fairsilo.analysis.chance import CONFIDENCE
from fairsilo.analysis.distributions import student_quantile, student_tail
from fairsilo.analysis.metrics import AT_HOME, HEADLINES, TAILS, VARIANCE, at_chance, deviation, headline, mean

SURE = 0.05  # what is less likely by chance, after correction, is called sure
SAME = 1e-4  # values this close (percent) are equal: a ledger keeps six digits of a share


Pairs = Mapping[tuple[str, int], float]  # held-out domain and seed -> a method's number minus another's


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences.

    Attributes:
        mean: Over the federations, each of which counts once, and in each over its held-out domains, likewise.
        margin: How far the true mean over these federations and domains may be from it with other seeds (95 %); None
            where a domain has one seed, or where seeds do not differ at all.
        p: How likely so large a mean is by chance; None likewise.
        repeated: Whether every domain has several seeds. Then it is one of the comparisons that are corrected for,
            also where seeds do not differ, so that there is nothing to test it by.
    """

    mean: float
    margin: float | None
    p: float | None
    repeated: bool = True

    @property
    def sure(self) -> bool:
        """Whether chance would hardly give it; p must be corrected for all that are looked at."""
        return self.p is not None and self.p < SURE


def over_federations(federations: Sequence[Pairs], same: float = SAME) -> Difference:
    """From the paired differences in each federation.

    The federations and their domains are these and no sample of others, so that the error is made of the spread over
    seeds in each federation; as these may differ, the degrees of freedom are Welch's and Satterthwaite's. Of one
    federation it is Student's t test over the seeds' means.
    """
    looks = [_over_seeds(pairs) for pairs in federations]
    mean = statistics.fmean(look.mean for look in looks)
    if any(look.variance is None for look in looks):
        return Difference(mean, None, None, repeated=False)
    parts = [(look.variance or 0.0) / len(looks) ** 2 for look in looks]
    error = math.sqrt(math.fsum(parts))
    if error <= same:  # nothing but rounding
        return Difference(mean, None, None)
    free = error**4 / math.fsum(part**2 / look.free for part, look in zip(parts, looks, strict=True))
    return Difference(mean, margin_of(error, free), 2 * student_tail(abs(mean) / error, free))


class _Look(NamedTuple):
    """A federation's mean, the variance of that mean over seeds, and its degrees of freedom."""

    mean: float
    variance: float | None
    free: int


def _over_seeds(pairs: Pairs) -> _Look:
    """Seeds are the looks: what a seed adds to the mean, summed over domains before it is squared.

    Where every domain has every seed this is the variance of the seeds' means over their number. Where some are not
    there, as many seeds count as the domain with the fewest has.
    """
    domains = _by_domain(pairs)
    means = {domain: statistics.fmean(values) for domain, values in domains.items()}
    mean, seeds = statistics.fmean(means.values()), fewest_seeds(pairs)
    if seeds < 2:
        return _Look(mean, None, 0)
    added: dict[int, float] = {}
    for (domain, seed), value in pairs.items():
        share = (value - means[domain]) / (len(domains) * len(domains[domain]))
        added[seed] = added.get(seed, 0.0) + share
    return _Look(mean, math.fsum(one**2 for one in added.values()) * seeds / (seeds - 1), seeds - 1)


def fewest_seeds(pairs: Pairs) -> int:
    """How many seeds the domain with the fewest has."""
    return min(Counter(domain for domain, _ in pairs).values())


def over_values(values: Sequence[float]) -> Difference:
    """From independent differences: Student's t test."""
    return over_federations([{("", place): value for place, value in enumerate(values)}])


@dataclass(frozen=True)
class Compared:
    """A method beside the first one, in one number of its runs.

    Attributes:
        difference: The mean of the paired differences, each held-out domain counting once.
        pairs: How many pairs of runs stand behind it.
        seeds: How many seeds the held-out domain with the fewest has; one has no margin.
    """

    difference: Difference
    pairs: int
    seeds: int

    @property
    def sure(self) -> bool:
        return self.difference.sure


Cells = Sequence[Mapping[str, Any]]  # runs: method, held-out domain, seed and summary
Place = TypeVar("Place", bound=Hashable)


Number = Callable[[Mapping[str, Any]], float | None]  # of a run's summary


def pairs_of(
    cells: Cells, method: str, first: str, number: Number, of_first: Number | None = None
) -> dict[tuple[str, int], float]:
    """Held-out domain and seed -> a method's number minus the first method's, which may be another number of it."""
    runs: dict[str, dict[tuple[str, int], Mapping[str, Any]]] = {method: {}, first: {}}
    for cell in cells:
        if cell["method"] in runs:
            runs[cell["method"]][cell["held_out"], cell["seed"]] = cell["summary"]
    found = {}
    for place, summary in runs[method].items():
        theirs = runs[first].get(place)
        value, other = number(summary), None if theirs is None else (of_first or number)(theirs)
        if value is not None and other is not None:
            found[place] = value - other
    return found


def paired_cells(cells: Cells, method: str, first: str, key: str) -> dict[tuple[str, int], float]:
    """The same of a headline.

    Nothing for the spread of methods of which a run is at chance: such a spread says nothing.
    """
    summaries = (cell["summary"] for cell in cells if cell["method"] in (method, first))
    if key in ("fairness", VARIANCE) and any(at_chance(summary)["fairness"] for summary in summaries):
        return {}
    return pairs_of(cells, method, first, lambda summary: headline(summary)[key])


def from_pairs(pairs: Pairs, same: float = 1e-9) -> Compared | None:
    """None where there is no pair; an error of no more than `same` is rounding."""
    if not pairs:
        return None
    return Compared(over_federations([pairs], same), len(pairs), fewest_seeds(pairs))


def compared(cells: Cells, method: str, first: str, key: str) -> Compared | None:
    """How a method compares with the first one; None where there is no pair."""
    return None if method == first else from_pairs(paired_cells(cells, method, first, key))


def together(methods: Sequence[str], cells: Cells) -> dict[str, dict[str, Compared]]:
    """Headline -> method -> how it compares with the first of them, p corrected for all that are compared."""
    found = {
        (key, name): one
        for key in HEADLINES
        for name in methods[1:]
        if (one := compared(cells, name, methods[0], key)) is not None
    }
    told: dict[str, dict[str, Compared]] = {}
    for (key, name), one in corrected_together(found).items():
        told.setdefault(key, {})[name] = one
    return told


def corrected_together(found: Mapping[Place, Compared]) -> dict[Place, Compared]:
    """Whatever they are kept under; p corrected for all of them (Holm)."""
    fixed = corrected([one.difference for one in found.values()])
    return {place: replace(one, difference=p) for (place, one), p in zip(found.items(), fixed, strict=True)}


def compare_cells(methods: Sequence[str], cells: Cells) -> list[dict[str, Any]]:
    """Per method and number: its mean, two spreads, and the paired difference to the first method.

    A mean is over held-out domains, each of which counts once. `std` is its deviation over seeds; `std_domains` that of
    the domains' own means over seeds. `margin` is that of the difference (95 %, see `Compared`). `at_chance` counts the
    runs whose result is no better than guessing.
    """
    table = []
    for name in methods:
        mine = [cell for cell in cells if cell["method"] == name]
        guessed = [at_chance(cell["summary"]) for cell in mine]
        row: dict[str, Any] = {"method": name, "cells": len(mine)}
        for key in (*HEADLINES, AT_HOME, *TAILS, VARIANCE):
            values = {
                (cell["held_out"], cell["seed"]): value
                for cell in mine
                if (value := headline(cell["summary"])[key]) is not None
            }
            domains = [mean(some) for some in _by_domain(values).values()]
            varied = _over_seeds(values).variance if values else None
            other = compared(cells, name, methods[0], key)
            row[key] = {
                "mean": mean(domains) if domains else None,
                "std": None if varied is None else math.sqrt(fewest_seeds(values) * varied),
                "std_domains": deviation(domains, 1) if len(domains) > 1 else None,
                "difference": other.difference.mean if other else None,
                "margin": other.difference.margin if other else None,
                "at_chance": sum(marks.get(key, marks["fairness"]) for marks in guessed),
            }
        table.append(row)
    return table


def _by_domain(values: Pairs) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (domain, _), value in values.items():
        found.setdefault(domain, []).append(value)
    return found


def margin_of(error: float, free: float) -> float:
    """Half the width of the interval (95 %) around a mean with this standard error and these degrees of freedom."""
    return student_quantile((1 + CONFIDENCE) / 2, free) * error


def corrected(found: Sequence[Difference]) -> list[Difference]:
    """With p corrected for all that are looked at together (Holm).

    How many these are must not hang on what came out: who looks at ten methods may be misled by any of them. So every
    difference of several seeds counts, tested or not; one of a single seed could never have been called sure.
    """
    fixed = holm([one.p for one in found], sum(one.repeated for one in found))
    return [replace(one, p=p) for one, p in zip(found, fixed, strict=True)]


def holm(p: Sequence[float | None], looked: int) -> list[float | None]:
    """Holm's correction: all that are below a level hold together, but for a chance of at most that level.

    Args:
        p: Of each comparison; None (or not finite) where it has no test.
        looked: How many comparisons there are. Those without a test are never called sure, and are the last in order.
    """
    known = sorted((value, place) for place, value in enumerate(p) if value is not None and math.isfinite(value))
    found: list[float | None] = [None] * len(p)
    reached = 0.0
    for rank, (value, place) in enumerate(known):
        reached = max(reached, min(1.0, (looked - rank) * value))
        found[place] = reached
    return found


def front(scores: Sequence[Mapping[str, float]]) -> list[str]:
    """The names that no other is at least as good as in every score and better than in one; more is better."""
    points = {name: tuple(round(one[name], 6) for one in scores) for name in scores[0]}  # sums may differ by a last bit

    def beaten(point: tuple[float, ...]) -> bool:
        return any(
            all(a >= b for a, b in zip(other, point, strict=True)) and other != point for other in points.values()
        )

    return [name for name, point in points.items() if not beaten(point)]


def mean_ranks(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Name -> its rank (1 has the most, equals share theirs) in each of several scores, averaged."""
    rounded = [{name: round(one[name], 6) for name in scores[0]} for one in scores]
    return {name: statistics.fmean(_rank(one[name], list(one.values())) for one in rounded) for name in scores[0]}


def _rank(value: float, among: Sequence[float]) -> float:
    return sum(other > value for other in among) + (among.count(value) + 1) / 2
