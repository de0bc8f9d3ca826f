"""How many runs stand behind the numbers of a comparison, of which some may be left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Count(NamedTuple):
    """How many there are behind a number at most, and whether there are as many behind each."""

    most: int
    each: bool

    @classmethod
    def of(cls, counts: Iterable[int]) -> Count:
        known = list(counts)
        return cls(max(known, default=0), len(set(known)) < 2)

    def words(self, word: str) -> str:
        return f"{'' if self.each else 'up to '}{self.most} {word}s"


@dataclass(frozen=True)
class Repeats:
    """What a method's numbers are made of.

    Attributes:
        runs: All of a method.
        domains: Held-out domains of a method.
        seeds: Of a method and a held-out domain.
        varied: Whether a mean over held-out domains may have a deviation over seeds, which takes several in each.
        paired: Whether a difference to the first method may have a margin, which takes several in common in each.
    """

    runs: Count
    domains: Count
    seeds: Count
    varied: bool
    paired: bool

    @property
    def over_seeds(self) -> str:
        """In words."""
        return self.seeds.words("seed") if self.seeds.most > 1 else "one seed"


def repeats(comparison: Mapping[str, Any]) -> Repeats:
    """Counted in the runs themselves: seeds that were asked for may be left out."""
    found: dict[str, dict[str, set[int]]] = {}
    for cell in comparison["cells"]:
        found.setdefault(cell["method"], {}).setdefault(cell["held_out"], set()).add(cell["seed"])
    first, *others = (found.get(name, {}) for name in comparison["methods"])
    common = [{name: one[name] & first[name] for name in one.keys() & first.keys()} for one in others]
    return Repeats(
        Count.of(sum(map(len, one.values())) for one in found.values()),
        Count.of(map(len, found.values())),
        Count.of(len(seeds) for one in found.values() for seeds in one.values()),
        any(map(_several, found.values())),
        any(map(_several, common)),
    )


def _several(seeds: Mapping[str, set[int]]) -> bool:
    """Whether every held-out domain, of those that have any, has several seeds."""
    return min((len(some) for some in seeds.values() if some), default=0) > 1
