"""How long a run will still take, from how long its rounds took."""

from __future__ import annotations

from collections.abc import Sequence

RECENT = 8  # rounds: a machine gets busy or free while a run goes on


def seconds_left(took: Sequence[float], rounds: int, every: int = 1, spent: float = 0.0) -> float | None:
    """What is left, in seconds; None before a round is complete.

    The first round makes things ready that later ones have, so it does not count once there are others. Rounds that
    evaluate take longer, so the mean is over whole spans from one evaluation to the next where there are enough.

    Args:
        took: Seconds of each complete round.
        rounds: How many there will be.
        every: How many rounds lie between evaluations.
        spent: Seconds of the round under way.

    Example:
        >>> seconds_left([9.0, 2.0, 2.0], 10)
        14.0
        >>> seconds_left([9.0, 2.0, 2.0], 10, spent=0.5)
        13.5
    """
    if not took:
        return None
    steady = took[1:] or took
    span = max(every, RECENT // every * every)
    whole = len(steady) // every * every
    recent = steady[-min(span, whole) :] if whole else steady
    each = sum(recent) / len(recent)
    left = each * (rounds - len(took))
    return max(left - min(spent, each), 0.0)
