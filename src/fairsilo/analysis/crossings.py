"""What the halves of compositions contribute: rows x columns, each composition measured in the same blocks.

A block is what all compositions met alike: a federation with one domain held out, and a seed. A value is taken to be
    block + row + column + row and column together + what differs from block to block,
and as every composition is measured in every block, the sums of squares of these add up to the whole. What holds beyond
these blocks is tested against how much it differs between them (blocks are random), so that one block tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
SOURCES = ("rows", "columns", "together", "blocks")
SAME = 1e-4  # values this close (percent) are equal: a ledger keeps six digits of a share

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shares:
    """Where differences between compositions come from, the blocks' own levels taken out.

    Attributes:
        of: Source -> its share of the sum of squares; empty where all compositions are the same. `blocks` is what
            differs from block to block, chance included; with one block it is part of `together`, and 0.
        p: Source -> how likely so much is by chance (F test against how much the same differs between blocks). None
            where there is nothing to hold it against.
    """

    of: Mapping[str, float]
    p: Mapping[str, float | None]


@dataclass(frozen=True)
class Contribution:
    """What a half adds to the plain one, whatever the other half is.

    Attributes:
        name: Of the half.
        mean: Over the other halves and the blocks.
        margin: How far the true mean may be from it (95 %), by how much it differs from block to block. With one block
            how far it may be for other halves that could stand beside it: nothing about chance.
        p: How likely so large a mean is by chance; None with one block.
    """

    name: str
    mean: float
    margin: float | None
    p: float | None


def shares(values: Array) -> Shares:
    """Of values by row, column and block."""
    rows, columns, blocks = values.shape
    left = values - values.mean((0, 1), keepdims=True)
    by_row, by_column = left.mean((1, 2), keepdims=True), left.mean((0, 2), keepdims=True)
    together = left.mean(2, keepdims=True) - by_row - by_column
    row_by_block = left.mean(1, keepdims=True) - by_row
    column_by_block = left.mean(0, keepdims=True) - by_column
    rest = left - by_row - by_column - together - row_by_block - column_by_block
    parts = {"rows": by_row, "columns": by_column, "together": together}
    against = {"rows": row_by_block, "columns": column_by_block, "together": rest}
    freedom = {"rows": rows - 1, "columns": columns - 1, "together": (rows - 1) * (columns - 1)}
    squares = {name: _squares(part, values.shape) for name, part in parts.items()}
    other = {name: _squares(part, values.shape) for name, part in against.items()}
    whole = math.fsum((*squares.values(), *other.values()))
    smallest = values.size * SAME**2
    if whole <= smallest:
        return Shares({}, dict.fromkeys(parts))
    p = {
        name: _f_test(squares[name], freedom[name], other[name], freedom[name] * (blocks - 1), smallest)
        for name in parts
    }
    found = {**squares, "blocks": math.fsum(other.values())}
    return Shares({name: square / whole for name, square in found.items()}, p)


def _squares(part: Array, shape: tuple[int, ...]) -> float:
    return float(np.square(np.broadcast_to(part, shape)).sum())


def _f_test(square: float, free: int, other: float, other_free: int, smallest: float) -> float | None:
    if not free or not other_free or other <= smallest:
        return None
    return float(stats.f.sf((square / free) / (other / other_free), free, other_free))  # type: ignore[attr-defined]


def contributions(values: Array, rows: Sequence[str], columns: Sequence[str]) -> tuple[list[Contribution], ...]:
    """Of every row but the first, and of every column but the first; the first of each is the plain half."""
    turned = values.transpose(1, 0, 2)
    return (
        [_contribution(name, values[place] - values[0]) for place, name in enumerate(rows) if place],
        [_contribution(name, turned[place] - turned[0]) for place, name in enumerate(columns) if place],
    )


def _contribution(name: str, differences: Array) -> Contribution:
    """From differences by other half and block."""
    several = differences.shape[1] > 1
    units = differences.mean(0 if several else 1)
    count, mean = len(units), float(differences.mean())
    error = float(units.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    if error * math.sqrt(count) <= SAME:
        return Contribution(name, mean, None, None)
    t = stats.t(count - 1)  # type: ignore[attr-defined]
    p = float(2 * t.sf(abs(mean) / error)) if several else None
    return Contribution(name, mean, float(t.ppf((1 + CONFIDENCE) / 2)) * error, p)


def corrected(found: Sequence[Contribution]) -> list[Contribution]:
    """With p corrected for all that are looked at together (Holm)."""
    return [replace(one, p=p) for one, p in zip(found, holm([one.p for one in found]), strict=True)]


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's correction: all that are below a level hold together, but for a chance of at most that level."""
    known = sorted((value, place) for place, value in enumerate(p) if value is not None)
    found: list[float | None] = [None] * len(p)
    reached = 0.0
    for rank, (value, place) in enumerate(known):
        reached = max(reached, min(1.0, (len(known) - rank) * value))
        found[place] = reached
    return found


def front(points: Mapping[str, Sequence[float]], higher: Sequence[bool]) -> list[str]:
    """The points that no other is at least as good as in every way and better than in one."""
    signs = [1 if more else -1 for more in higher]
    turned = {
        name: tuple(sign * value for sign, value in zip(signs, point, strict=True)) for name, point in points.items()
    }

    def beaten(point: tuple[float, ...]) -> bool:
        return any(
            all(a >= b for a, b in zip(other, point, strict=True)) and other != point for other in turned.values()
        )

    return [name for name, point in turned.items() if not beaten(point)]


def mean_ranks(scores: Sequence[Mapping[str, float]], higher: Sequence[bool]) -> dict[str, float]:
    """Name -> its rank (1 is the best, equals share theirs) in each of several scores, averaged."""
    names = list(scores[0])
    ranks = [
        stats.rankdata([round(-one[name] if more else one[name], 6) for name in names])
        for one, more in zip(scores, higher, strict=True)
    ]
    return {name: float(rank) for name, rank in zip(names, np.mean(ranks, axis=0), strict=True)}
