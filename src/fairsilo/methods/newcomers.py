"""What the server kept of all silos when there are more of them than before: a site joined a run under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from fairsilo.core.part import Part
from fairsilo.core.server import Server


def with_newcomers(weights: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Weights that sum to 1, carried over rounds: a newcomer has an equal share, which the others make room for.

    In the first round all are new.
    """
    new = [name for name in names if name not in weights]
    room = 1 - len(new) / len(names)
    return {name: room * weight for name, weight in weights.items()} | dict.fromkeys(new, 1 / len(names))


def keep_mean(server: Server, part: Part, key: str, mean: Tensor) -> None:
    """Remember a mean over all silos, and how many they are."""
    server.memory.of(part).update({key: mean, "silos": len(server.names)})


def kept_mean(server: Server, part: Part, key: str) -> Tensor | None:
    """Such a mean over the silos that there are now: of those who are new the terms are zero so far."""
    memory, silos = server.memory.of(part), len(server.names)
    mean, before = memory.get(key), memory.get("silos", silos)
    return mean if mean is None or before == silos else mean * (before / silos)
