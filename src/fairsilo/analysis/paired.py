"""Differences between methods, paired by what both met alike; which of several methods are ahead."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from fairsilo.analysis.chance import CONFIDENCE

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


def over_federations(differences: Sequence[Sequence[float]]) -> Difference:
    """From the paired differences in each federation.

    The federations are these and no sample of others, so that the error is made of the spread inside each of them; as
    these may differ, the degrees of freedom are Welch's and Satterthwaite's. Of one federation it is Student's t test.
    """
    mean = statistics.fmean(statistics.fmean(some) for some in differences)
    if any(len(some) < 2 for some in differences):
        return Difference(mean, None, None)
    parts = [statistics.variance(some) / len(some) / len(differences) ** 2 for some in differences]
    error = math.sqrt(math.fsum(parts))
    if error <= SAME:  # nothing but rounding
        return Difference(mean, None, None)
    free = error**4 / math.fsum(part**2 / (len(some) - 1) for part, some in zip(parts, differences, strict=True))
    p = float(2 * stats.t.sf(abs(mean) / error, free))  # type: ignore[attr-defined]
    return Difference(mean, margin_of(error, free), p)


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
