"""What differential privacy was spent in a run, from what silos told with their updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def spent(rounds: Sequence[Mapping[str, Any]], claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each part that makes updates private claims (`Method.privacy`), with epsilon by silo after these rounds."""
    found = []
    for claim in claims:
        epsilon: dict[str, float] = {}
        for record in rounds:
            epsilon |= (record.get("shown") or {}).get(f"{claim['part']}.epsilon", {})
        found.append({**claim, "epsilon": epsilon})
    return found


def words(epsilon: float) -> str:
    """Three digits, rounded up: a promise is not made larger by printing it.

    Example:
        >>> words(8.9986), words(0.12341), words(1234.5), words(float("inf"))
        ('9.00', '0.124', '1235', 'inf')
    """
    if not math.isfinite(epsilon) or epsilon <= 0:
        return f"{epsilon:g}"
    places = max(2 - math.floor(math.log10(epsilon)), 0)
    return f"{math.ceil(round(epsilon * 10**places, 6)) / 10**places:.{places}f}"
