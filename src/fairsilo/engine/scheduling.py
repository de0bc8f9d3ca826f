"""In which order silos are handed to workers: so that unequal ones fill the cores, and few answers wait."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

WORTH = 0.02  # of an exchange's time that another order must save


class Expected:
    """How long silos take: as in the last exchange of the kind, before that by their samples."""

    def __init__(self, samples: Mapping[str, int]) -> None:
        self.samples = samples
        self.seconds: dict[tuple[str, str], float] = {}

    def note(self, kind: str, silo: str, seconds: float) -> None:
        self.seconds[kind, silo] = seconds

    def of(self, kind: str, silos: Sequence[str]) -> dict[str, float]:
        """Silo -> time, in seconds or, where not all are known, in samples."""
        known = {silo: self.seconds[kind, silo] for silo in silos if (kind, silo) in self.seconds}
        return known if len(known) == len(silos) else {silo: float(self.samples.get(silo, 1)) for silo in silos}


def order(silos: Sequence[str], times: Mapping[str, float], workers: int) -> list[str]:
    """As they are, unless the longest first ends noticeably earlier.

    Answers are taken in the order of names, and one that comes before its turn waits in memory: where the order as it
    is fills the workers too, it is kept.
    """
    longest = sorted(silos, key=lambda silo: (-times[silo], silo))
    plain, best = (makespan([times[silo] for silo in some], workers) for some in (silos, longest))
    return longest if best < (1 - WORTH) * plain else list(silos)


def makespan(times: Sequence[float], workers: int) -> float:
    """When the last of some jobs ends that free workers take in this order."""
    ends = [0.0] * max(workers, 1)
    for one in times:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)
