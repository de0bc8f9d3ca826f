"""How long a run will still take, from how long its rounds took, and a comparison, from how long its runs took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairsilo.engine.scheduling import makespan

RECENT = 8  # rounds: a machine gets busy or free while a run goes on


def seconds_left(
    took: Sequence[float], rounds: int, every: int = 1, spent: float = 0.0, first: int = 1
) -> float | None:
    """What is left, in seconds; None before a round is complete.

    The first round makes things ready that later ones have, so it does not count once there are others. Rounds that
    evaluate take longer, so they have a mean of their own as soon as there is one. The last round always evaluates.

    Args:
        took: Seconds of each complete round, as far as they are known.
        rounds: How many there will be.
        every: Which rounds evaluate: every so many-th.
        spent: Seconds of the round under way.
        first: The number of the round that `took` begins with.

    Example:
        >>> seconds_left([9.0, 2.0, 2.0], 10)
        14.0
        >>> seconds_left([9.0, 2.0, 2.0], 10, spent=0.5)
        13.5
        >>> seconds_left([9.0, 5.0, 2.0, 5.0], 7, every=2)  # 2, 5 and, as the last round evaluates, 5
        12.0
    """
    if not took:
        return None
    kinds: dict[bool, list[float]] = {True: [], False: []}
    for number, seconds in list(enumerate(took, first))[1:] or [(first, took[0])]:
        kinds[_evaluates(number, rounds, every)].append(seconds)

    def expected(number: int) -> float:
        kind = _evaluates(number, rounds, every)
        recent = (kinds[kind] or kinds[not kind])[-RECENT:]
        return sum(recent) / len(recent)

    left = [expected(number) for number in range(first + len(took), rounds + 1)]
    return max(sum(left) - min(spent, left[0]), 0.0) if left else 0.0


def runs_left(
    took: Mapping[str, Sequence[float]], open_runs: Sequence[tuple[str, float]], at_once: int = 1
) -> float | None:
    """What is left of several runs, in seconds; None before one of them is finished.

    A run is expected to take the mean of its method's runs or, where there are none, of all runs.

    Args:
        took: Method -> seconds of each of its finished runs.
        open_runs: The others, in the order in which they are made: the method, and which share of the run is left.
        at_once: How many are made side by side.

    Example:
        >>> runs_left({"fedavg": [10.0, 14.0], "faa": [30.0]}, [("fedavg", 0.5), ("faa", 1.0), ("afl", 1.0)])
        54.0
        >>> runs_left({"fedavg": [10.0]}, [("fedavg", 1.0)] * 3, at_once=2)
        20.0
    """
    if not open_runs:
        return 0.0
    everything = [seconds for some in took.values() for seconds in some]
    if not everything:
        return None
    known = {method: sum(some) / len(some) for method, some in took.items() if some}
    usual = sum(everything) / len(everything)
    return makespan([share * known.get(method, usual) for method, share in open_runs], at_once)


def roughly(seconds: float) -> str:
    """A time in words, as exact as an estimate is."""
    if seconds < 99.5:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(round(minutes, -1) if minutes >= 600 else minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def _evaluates(number: int, rounds: int, every: int) -> bool:
    return number == rounds or number % every == 0
