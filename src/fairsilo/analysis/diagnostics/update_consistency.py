"""How steadily silos push parameters one way (FedHEAL, Fig. 2 and equation 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.analysis.diagnostics.replay import Numbers, Replay, Row, answered, kept_round, mean_of, measured
from fairsilo.core.vectors import Layout, Slot
from fairsilo.errors import FairsiloError, nearest

EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the histogram; a bin holds its lower edge, the last one both
ALL_TENSORS = "all"
_WINDOWS = (slice(10), slice(100), slice(-10, None))


@dataclass(frozen=True)
class Consistency:
    """How steadily one silo pushes each parameter the same way over some rounds.

    `shares` are shares of parameters per bin of `EDGES`. What signs drawn by coin would give stands beside, because
    over few rounds it is far above one half.
    """

    window: str
    silo: str
    tensor: str
    rounds: int
    mean: float
    mean_by_chance: float
    shares: tuple[float, ...]
    shares_by_chance: tuple[float, ...]


@dataclass(frozen=True)
class UpdateConsistency:
    found: tuple[Consistency, ...]

    def rows(self) -> list[Row]:
        return [
            {"window": item.window, "silo": item.silo, "tensor": item.tensor, "rounds_of_silo": item.rounds}
            | {"mean_consistency": item.mean, "mean_by_chance": item.mean_by_chance}
            | {"consistency_from": EDGES[place], "consistency_to": EDGES[place + 1]}
            | {"share_of_parameters": share, "share_by_chance": item.shares_by_chance[place]}
            for item in self.found
            for place, share in enumerate(item.shares)
        ]

    def numbers(self) -> Numbers:
        """The share of parameters that go one way in nine of ten rounds, mean over silos, by window; and by chance."""
        windows = dict.fromkeys(item.window for item in self.found)
        steady = {name: [item for item in self.found if item.window == name] for name in windows}
        found = {name: mean_of(item.shares[-1] for item in some) for name, some in steady.items()}
        tossed = {
            f"{name}, by chance": mean_of(item.shares_by_chance[-1] for item in some) for name, some in steady.items()
        }
        return measured({**found, **tossed})


def update_consistency(
    replay: Replay, tensor: str | None = None, rounds: Sequence[int] | None = None
) -> UpdateConsistency:
    """How consistently each silo raises or lowers each parameter (FedHEAL's Fig. 2 and equation 5).

    f = share of the rounds with w_i - W >= 0 (no change counts as a raise, as in the paper); consistency max(f, 1 - f).
    Windows: the first 10, the first 100 and the last 10 rounds kept, or `rounds`. `tensor` is a name, `all` for
    every tensor that comes back from the server, or by default the largest tensor of the network's body.
    """
    name, place = _stretch(replay.layout, tensor)
    windows = _windows(replay.rounds) if rounds is None else {_listed(replay, rounds): frozenset(rounds)}
    raised: dict[tuple[str, str], Tensor] = {}
    counted: dict[tuple[str, str], int] = {}
    for number in replay.rounds:
        inside = [window for window, numbers in windows.items() if number in numbers]
        if not inside:
            continue
        before = replay.sent(number)[place]
        for silo, model in answered(replay, number).items():
            up = (model[place] >= before).int()
            for key in ((window, silo) for window in inside):
                raised[key] = raised[key] + up if key in raised else up
                counted[key] = counted.get(key, 0) + 1
    keys = [(window, silo) for window in windows for silo in replay.silos if (window, silo) in raised]
    return UpdateConsistency(tuple(_consistency(*key, name, raised[key], counted[key]) for key in keys))


def _stretch(layout: Layout, tensor: str | None) -> tuple[str, slice]:
    slots = {slot.name: slot for slot in layout.shared_slots()}
    if tensor == ALL_TENSORS:
        return ALL_TENSORS, slice(0, layout.shared)
    if not slots:
        raise FairsiloError("no tensor of this model comes back from the server")
    if tensor is None:
        found = _largest(list(slots.values()))
    elif tensor in slots:
        found = slots[tensor]
    else:
        raise FairsiloError(f"no shared tensor is named {tensor!r}{nearest(tensor, (*slots, ALL_TENSORS))}")
    return found.name, found.place


def _largest(slots: Sequence[Slot]) -> Slot:
    body = [slot for slot in slots if slot.group == "body"]
    return max(body or slots, key=lambda slot: slot.length)


def _windows(rounds: Sequence[int]) -> dict[str, frozenset[int]]:
    """Name -> rounds; a window that holds the same rounds as one before is left out."""
    found: dict[str, frozenset[int]] = {}
    for window in _WINDOWS:
        numbers = frozenset(rounds[window])
        word = "all" if len(numbers) == len(rounds) else "last" if window.start else "first"
        if numbers and numbers not in found.values():
            found[f"{word} {len(numbers)} rounds" if len(numbers) > 1 else "one round"] = numbers
    return found


def _listed(replay: Replay, rounds: Sequence[int]) -> str:
    for number in rounds:
        kept_round(replay, number)
    return f"rounds {min(rounds)} to {max(rounds)}" if rounds else "no round"


def _consistency(window: str, silo: str, tensor: str, raised: Tensor, rounds: int) -> Consistency:
    steady = torch.maximum(raised, rounds - raised)
    bins = torch.bincount(_bins(steady, rounds), minlength=len(EDGES) - 1)
    shares = tuple((bins.double() / len(raised)).tolist())
    mean = float(steady.double().mean()) / rounds
    mean_by_chance, by_chance = _by_chance(rounds)
    return Consistency(window, silo, tensor, rounds, mean, mean_by_chance, shares, by_chance)


def _bins(steady: Tensor, rounds: int) -> Tensor:
    """From counts in integers, so that 6 of 10 rounds is exactly 0.6."""
    return ((10 * steady.long() - 5 * rounds) // rounds).clamp(max=len(EDGES) - 2)


def _by_chance(rounds: int) -> tuple[float, tuple[float, ...]]:
    """Mean and shares where every sign is the toss of a coin."""
    heads = torch.arange(rounds + 1)
    chances = torch.tensor([math.comb(rounds, k) / 2**rounds for k in range(rounds + 1)], dtype=torch.float64)
    steady = torch.maximum(heads, rounds - heads)
    shares = torch.bincount(_bins(steady, rounds), weights=chances, minlength=len(EDGES) - 1)
    return float((steady * chances).sum()) / rounds, tuple(shares.tolist())
