"""What the halves of compositions contribute: rows x columns, each composition measured in the same looks.

A look is what all compositions met alike, independent of the other looks: one of several federations, or a seed of the
only one, with the mean over the rest. A value is taken to be
    look + row + column + row and column together + what differs from look to look,
and as every composition is measured in every look, the sums of squares of these add up to the whole. What holds beyond
these looks is tested against how much it differs between them (looks are random), so that one look tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairsilo.analysis.distributions import fisher_tail
from fairsilo.analysis.paired import SAME, Difference, over_values

SOURCES = ("rows", "columns", "together", "looks")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shares:
    """Where differences between compositions come from, the looks' own levels taken out.

    Attributes:
        of: Source -> its share of the sum of squares; empty where all compositions are the same. `looks` is what
            differs from look to look, chance included; with one look it is part of `together`, and 0.
        p: Source -> how likely so much is by chance (F test against how much the same differs between looks, as if all
            rows, and all columns, differed alike). None
            where there is nothing to hold it against.
    """

    of: Mapping[str, float]
    p: Mapping[str, float | None]


def shares(values: Array) -> Shares:
    """Of values by row, column and look."""
    rows, columns, looks = values.shape
    left = values - values.mean((0, 1), keepdims=True)
    by_row, by_column = left.mean((1, 2), keepdims=True), left.mean((0, 2), keepdims=True)
    together = left.mean(2, keepdims=True) - by_row - by_column
    row_by_look = left.mean(1, keepdims=True) - by_row
    column_by_look = left.mean(0, keepdims=True) - by_column
    rest = left - by_row - by_column - together - row_by_look - column_by_look
    parts = {"rows": by_row, "columns": by_column, "together": together}
    against = {"rows": row_by_look, "columns": column_by_look, "together": rest}
    freedom = {"rows": rows - 1, "columns": columns - 1, "together": (rows - 1) * (columns - 1)}
    squares = {name: _squares(part, values.shape) for name, part in parts.items()}
    other = {name: _squares(part, values.shape) for name, part in against.items()}
    whole = math.fsum((*squares.values(), *other.values()))
    smallest = values.size * SAME**2
    if whole <= smallest:
        return Shares({}, dict.fromkeys(parts))
    p = {
        name: _f_test(squares[name], freedom[name], other[name], freedom[name] * (looks - 1), smallest)
        for name in parts
    }
    found = {**squares, "looks": math.fsum(other.values())}
    return Shares({name: square / whole for name, square in found.items()}, p)


def _squares(part: Array, shape: tuple[int, ...]) -> float:
    return float(np.square(np.broadcast_to(part, shape)).sum())


def _f_test(square: float, free: int, other: float, other_free: int, smallest: float) -> float | None:
    if not free or not other_free or other <= smallest:
        return None
    return fisher_tail((square / free) / (other / other_free), free, other_free)


def contributions(values: Array, rows: Sequence[str], columns: Sequence[str]) -> tuple[dict[str, Difference], ...]:
    """What every row adds to the first, and every column to the first, whatever the other half is.

    Tested by how much it differs from look to look. With one look the margin is over the other halves, so that it
    tells how much a contribution depends on what it stands beside, and nothing about chance.
    """
    turned = values.transpose(1, 0, 2)
    return (
        {name: _contribution(values[place] - values[0]) for place, name in enumerate(rows) if place},
        {name: _contribution(turned[place] - turned[0]) for place, name in enumerate(columns) if place},
    )


def _contribution(differences: Array) -> Difference:
    """From differences by other half and look."""
    if differences.shape[1] > 1:
        return over_values(differences.mean(0).tolist())
    return replace(over_values(differences.mean(1).tolist()), p=None, repeated=False)
