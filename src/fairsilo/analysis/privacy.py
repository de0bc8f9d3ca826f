"""What differential privacy was spent in a run, from what silos told with their updates."""

from __future__ import annotations

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
