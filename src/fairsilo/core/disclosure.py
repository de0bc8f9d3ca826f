"""Which groups of its samples a silo tells results of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

MINIMUM = 5  # test samples of a group at a silo, below which the silo keeps its result to itself


def told(labels: Sequence[str], least: int = MINIMUM) -> set[str]:
    """The groups that a silo tells of: those with so many samples at least.

    Where too few samples are left over, their results would follow from those of the whole split: then the smallest of
    the other groups stays at the silo too.
    """
    counts = Counter(labels)
    large = sorted((count, value) for value, count in counts.items() if count >= least)
    hidden = len(labels) - sum(count for count, _ in large)
    return {value for _, value in (large[1:] if 0 < hidden < least else large)}
