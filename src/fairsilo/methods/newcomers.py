"""What the server kept of all silos when there are more of them than before: a site joined a run under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor


def with_newcomers(weights: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Weights that sum to 1, carried over rounds: a newcomer has an equal share, which the others make room for."""
    new = [name for name in names if name not in weights]
    room = 1 - len(new) / len(names)
    return {name: room * weight for name, weight in weights.items()} | dict.fromkeys(new, 1 / len(names))


def mean_with_newcomers(mean: Tensor, before: int, now: int) -> Tensor:
    """A mean over so many silos as one over more of them, whose terms are zero so far."""
    return mean if now == before else mean * (before / now)
