"""How methods differ where they were tried at the same settings, which a search tells besides what it chose.

In the first trials the value of a setting follows from its name, the trial's number and the seed (`Study.ask`), and not
from the method or the held-out domain. So trials of one number are pairs, and held-out domains are no further looks at
the settings: domains are averaged, as those of one seed are in `analysis/paired.py`. The first trial is no draw: it has
the settings as they are, and where methods differ otherwise there than on average, the margin is the wider for it. All
trials have one seed, so that nothing here tells what another one would give.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairsilo.analysis.paired import Compared, from_pairs, holm

Found = Mapping[str, Mapping[str, Any]]  # held-out domain -> method -> its trials, and what was searched


@dataclass
class Alike:
    """A method beside the first one, at the settings that both were tried at.

    Attributes:
        shared: The settings that both search.
        tried: Held-out domain -> the numbers of the trials that were first at their values of the shared settings.
        scored: Held-out domain and such a number -> the method's score minus the first one's, of every pair of trials
            with these values.
        left_out: Pairs of trials of which one has no score.
        guessed: Pairs of trials of which neither is better than guessing.
        compared: The mean difference; its `seeds` are settings. None where no pair has both scores, or all are guesses.
    """

    shared: tuple[str, ...] = ()
    tried: dict[str, set[int]] = field(default_factory=dict)
    scored: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    left_out: int = 0
    guessed: int = 0
    compared: Compared | None = None

    @property
    def pairs(self) -> int:
        """Of trials."""
        return sum(map(len, self.scored.values()))

    @property
    def settings(self) -> tuple[int, int]:
        """How many the held-out domains with the fewest and with the most pairs have."""
        counts = Counter(domain for domain, _ in self.scored).values()
        return (min(counts), max(counts)) if counts else (0, 0)

    @property
    def domains(self) -> int:
        """That have a pair."""
        return len({domain for domain, _ in self.scored})

    @property
    def repeated(self) -> bool:
        """Whether several settings were tried: a correction must not hang on how the trials ended."""
        return max(map(len, self.tried.values()), default=0) > 1


def differences(methods: Sequence[str], found: Found) -> dict[str, Alike]:
    """Every other method beside the first, p corrected for all of them (Holm)."""
    first, *others = methods
    told = {name: _beside(first, name, found) for name in others}
    p = [None if one.compared is None else one.compared.difference.p for one in told.values()]
    fixed = holm(p, looked(told))
    for one, value in zip(told.values(), fixed, strict=True):
        if one.compared is not None:
            one.compared = replace(one.compared, difference=replace(one.compared.difference, p=value))
    return told


def looked(told: Mapping[str, Alike]) -> int:
    """How many comparisons are corrected for."""
    return sum(one.repeated for one in told.values())


def _beside(first: str, name: str, found: Found) -> Alike:
    alike = Alike()
    for domain, methods in found.items():
        mine, theirs = methods[name], methods[first]
        alike.shared = tuple(setting for setting in theirs["space"] if setting in mine["space"])
        seen: dict[tuple[Any, ...], int] = {}
        for one, other in zip(mine["trials"], theirs["trials"], strict=True):
            values = tuple(other["values"][setting] for setting in alike.shared)
            same = values == tuple(one["values"][setting] for setting in alike.shared)
            if not (values and same and one["alike"] and other["alike"]):
                continue
            number = seen.setdefault(values, one["number"])  # the same values again are no further look
            alike.tried.setdefault(domain, set()).add(number)
            if one["score"] is None or other["score"] is None:
                alike.left_out += 1
            else:
                alike.scored.setdefault((domain, number), []).append(one["score"] - other["score"])
                alike.guessed += bool(one.get("at_chance") and other.get("at_chance"))
    if alike.guessed < alike.pairs:
        alike.compared = from_pairs({place: statistics.fmean(values) for place, values in alike.scored.items()})
    return alike
