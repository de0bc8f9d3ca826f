"""Differences between methods, paired by what both met alike; which of several methods are ahead."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from fairsilo.analysis.chance import CONFIDENCE
from fairsilo.analysis.metrics import HEADLINES, paired_cells

SURE = 0.05  # what is less likely by chance, after correction, is called sure
SEEDS, DOMAINS = "seeds", "held-out domains"
SAME = 1e-4  # values this close (percent) are equal: a ledger keeps six digits of a share


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences.

    Attributes:
        mean: Over the federations, each of which counts once, however many pairs it has.
        margin: How far the true mean over these federations may be from it (95 %); None where one has a single pair.
        p: How likely so large a mean is by chance; None likewise.
    """

    mean: float
    margin: float | None
    p: float | None


def over_federations(differences: Sequence[Sequence[float]], same: float = SAME) -> Difference:
    """From the paired differences in each federation.

    The federations are these and no sample of others, so that the error is made of the spread inside each of them; as
    these may differ, the degrees of freedom are Welch's and Satterthwaite's. Of one federation it is Student's t test.
    """
    mean = statistics.fmean(statistics.fmean(some) for some in differences)
    if any(len(some) < 2 for some in differences):
        return Difference(mean, None, None)
    parts = [statistics.variance(some) / len(some) / len(differences) ** 2 for some in differences]
    error = math.sqrt(math.fsum(parts))
    if error <= same:  # nothing but rounding
        return Difference(mean, None, None)
    free = error**4 / math.fsum(part**2 / (len(some) - 1) for part, some in zip(parts, differences, strict=True))
    p = float(2 * stats.t.sf(abs(mean) / error, free))  # type: ignore[attr-defined]
    return Difference(mean, margin_of(error, free), p)


@dataclass(frozen=True)
class Compared:
    """A method beside the first one, in one of the three answers.

    Attributes:
        difference: The mean of the paired differences, each held-out domain counting once; p is corrected for all that
            are compared together.
        pairs: How many runs stand behind it.
        over: What its margin is over: with two seeds or more over seeds, on these very domains; with one seed over
            the domains; empty where there is one pair, and no margin.
    """

    difference: Difference
    pairs: int
    over: str

    @property
    def sure(self) -> bool:
        return self.difference.p is not None and self.difference.p < SURE


def compared(
    methods: Sequence[str], cells: Sequence[Mapping[str, Any]], factor: float = 1.0
) -> dict[str, dict[str, Compared]]:
    """Headline -> method -> how it compares with the first method; without those that have no pair.

    Args:
        methods: The first is the one that the others are compared with.
        cells: The runs: method, held-out domain, seed and summary.
        factor: What differences are multiplied with, such as 100 for percent.
    """
    found: dict[tuple[str, str], Compared] = {}
    for key in HEADLINES:
        for name in methods[1:]:
            pairs = paired_cells(cells, name, methods[0], key)
            scaled = [[factor * one for one in some] for some in pairs.values()]
            if not scaled:
                continue
            count = sum(map(len, scaled))
            seeds = min(map(len, scaled)) > 1
            difference = over_federations(scaled if seeds else [[one for some in scaled for one in some]], 1e-9)
            found[key, name] = Compared(difference, count, SEEDS if seeds else DOMAINS if count > 1 else "")
    fixed = corrected([one.difference for one in found.values()])
    told: dict[str, dict[str, Compared]] = {}
    for ((key, name), one), difference in zip(found.items(), fixed, strict=True):
        told.setdefault(key, {})[name] = replace(one, difference=difference)
    return told


def margin_of(error: float, free: float) -> float:
    """Half the width of the interval (95 %) around a mean with this standard error and these degrees of freedom."""
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, free)) * error  # type: ignore[attr-defined]


def corrected(found: Sequence[Difference]) -> list[Difference]:
    """With p corrected for all that are looked at together (Holm)."""
    return [replace(one, p=p) for one, p in zip(found, holm([one.p for one in found]), strict=True)]


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's correction: all that are below a level hold together, but for a chance of at most that level."""
    known = sorted((value, place) for place, value in enumerate(p) if value is not None)
    found: list[float | None] = [None] * len(p)
    reached = 0.0
    for rank, (value, place) in enumerate(known):
        reached = max(reached, min(1.0, (len(known) - rank) * value))
        found[place] = reached
    return found


def front(scores: Sequence[Mapping[str, float]]) -> list[str]:
    """The names that no other is at least as good as in every score and better than in one; more is better."""
    points = {name: tuple(one[name] for one in scores) for name in scores[0]}

    def beaten(point: tuple[float, ...]) -> bool:
        return any(
            all(a >= b for a, b in zip(other, point, strict=True)) and other != point for other in points.values()
        )

    return [name for name, point in points.items() if not beaten(point)]


def mean_ranks(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Name -> its rank (1 has the most, equals share theirs) in each of several scores, averaged."""
    names = list(scores[0])
    ranks = [stats.rankdata([-round(one[name], 6) for name in names]) for one in scores]
    return {name: float(rank) for name, rank in zip(names, np.mean(ranks, axis=0), strict=True)}
