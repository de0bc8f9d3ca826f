"""What the halves of compositions contribute: rows x columns, each composition measured in the same blocks.

A block is what all compositions met alike: a federation with one domain held out, and a seed. A value is taken to be
    block + row + column + row and column together + chance,
and as every composition is measured in every block, the sums of squares of these add up to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
SOURCES = ("rows", "columns", "together", "chance")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shares:
    """Where differences between compositions come from, blocks taken out.

    Attributes:
        of: Source -> its share of the sum of squares. With one block `together` holds chance too, which is then 0.
        p: Source -> how likely so large a share is by chance alone (F test): against chance or, with one block, against
            what rows and columns do together. None where there is nothing to hold it against.
    """

    of: Mapping[str, float]
    p: Mapping[str, float | None]


@dataclass(frozen=True)
class Contribution:
    """What a half adds to the plain one, whatever the other half is.

    Attributes:
        name: Of the half.
        mean: Over the other halves and the blocks.
        margin: How far the true mean may be from it (95 %), by how much it differs from one other half to the next.
        p: How likely so large a mean is by chance, corrected for all halves that are looked at (Holm).
    """

    name: str
    mean: float
    margin: float | None
    p: float | None


def shares(values: Array) -> Shares:
    """Of values by row, column and block.

    The mean square of a source is its sum of squares over its degrees of freedom.
    """
    rows, columns, blocks = values.shape
    left = values - values.mean((0, 1), keepdims=True)
    by_row, by_column = left.mean((1, 2), keepdims=True), left.mean((0, 2), keepdims=True)
    together = left.mean(2, keepdims=True) - by_row - by_column
    chance = left - by_row - by_column - together
    squares = {
        name: float(np.square(np.broadcast_to(part, values.shape)).sum())
        for name, part in zip(SOURCES, (by_row, by_column, together, chance), strict=True)
    }
    freedom = {
        "rows": rows - 1,
        "columns": columns - 1,
        "together": (rows - 1) * (columns - 1),
        "chance": (blocks - 1) * (rows * columns - 1),
    }
    against = "chance" if blocks > 1 else "together"
    whole = math.fsum(squares.values())
    p = {name: None if name == against else _f_test(name, against, squares, freedom) for name in SOURCES[:3]}
    return Shares({name: square / whole if whole else 0.0 for name, square in squares.items()}, p)


def _f_test(name: str, against: str, squares: Mapping[str, float], freedom: Mapping[str, int]) -> float | None:
    if not freedom[name] or not freedom[against] or not squares[against]:
        return None
    ratio = (squares[name] / freedom[name]) / (squares[against] / freedom[against])
    return float(stats.f.sf(ratio, freedom[name], freedom[against]))  # type: ignore[attr-defined]


def contributions(values: Array, rows: Sequence[str], columns: Sequence[str]) -> tuple[list[Contribution], ...]:
    """Of every row but the first, and of every column but the first; the first of each is the plain half."""
    of_rows = [_paired(name, _over_blocks(values)[place] - _over_blocks(values)[0]) for place, name in enumerate(rows)]
    turned = _over_blocks(values).T
    of_columns = [_paired(name, turned[place] - turned[0]) for place, name in enumerate(columns)]
    found = [*of_rows[1:], *of_columns[1:]]
    corrected = [
        Contribution(one.name, one.mean, one.margin, p)
        for one, p in zip(found, holm([one.p for one in found]), strict=True)
    ]
    return corrected[: len(rows) - 1], corrected[len(rows) - 1 :]


def _over_blocks(values: Array) -> Array:
    return np.asarray(values.mean(2))


def _paired(name: str, differences: Array) -> Contribution:
    """A mean of differences, one for each other half."""
    count, mean = len(differences), float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    if not error:
        return Contribution(name, mean, None, None)
    t = stats.t(count - 1)  # type: ignore[attr-defined]
    return Contribution(name, mean, float(t.ppf((1 + CONFIDENCE) / 2)) * error, float(2 * t.sf(abs(mean) / error)))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's correction: all that are below a level hold together, but for a chance of at most that level."""
    known = sorted((value, place) for place, value in enumerate(p) if value is not None)
    corrected: list[float | None] = [None] * len(p)
    reached = 0.0
    for rank, (value, place) in enumerate(known):
        reached = max(reached, min(1.0, (len(known) - rank) * value))
        corrected[place] = reached
    return corrected


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
        stats.rankdata([-one[name] if more else one[name] for name in names])
        for one, more in zip(scores, higher, strict=True)
    ]
    return {name: float(rank) for name, rank in zip(names, np.mean(ranks, axis=0), strict=True)}
