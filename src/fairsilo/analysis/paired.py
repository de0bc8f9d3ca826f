"""Differences between two methods, paired by what both met alike, over several federations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

CONFIDENCE = 0.95


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


def over_federations(differences: Sequence[Sequence[float]], smallest: float = 1e-4) -> Difference:
    """From the paired differences in each federation.

    The federations are these and no sample of others, so that the error is made of the spread inside each of them; as
    these may differ, the degrees of freedom are Welch's and Satterthwaite's. A spread below `smallest` is rounding.
    """
    mean = statistics.fmean(statistics.fmean(some) for some in differences)
    if any(len(some) < 2 for some in differences):
        return Difference(mean, None, None)
    parts = [statistics.variance(some) / len(some) / len(differences) ** 2 for some in differences]
    squared = math.fsum(parts)
    if math.sqrt(squared) <= smallest:
        return Difference(mean, None, None)
    free = squared**2 / math.fsum(part**2 / (len(some) - 1) for part, some in zip(parts, differences, strict=True))
    t = stats.t(free)  # type: ignore[attr-defined]
    error = math.sqrt(squared)
    return Difference(mean, float(t.ppf((1 + CONFIDENCE) / 2)) * error, float(2 * t.sf(abs(mean) / error)))
