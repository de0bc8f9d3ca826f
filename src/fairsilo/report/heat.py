"""Rows x columns of compositions: each cell shaded by how good it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from fairsilo.analysis.chance import GUESSED
from fairsilo.report.blocks import heads, points, table
from fairsilo.report.texts import text, usable
from fairsilo.runs.comparison import composed

STRONGEST = 42  # percent of the series colour in the best cell: text on it stays legible in both themes


def heat_table(
    grid: Mapping[str, Sequence[str]],
    shown: tuple[str, Mapping[str, float | None]],
    beside: tuple[str, Mapping[str, float | None]] | None,
    best: Callable[[list[float]], float],
    guessed: Collection[str] = (),
) -> str:
    """One number of every composition large and shaded, another small below it where there is one.

    A composition of `guessed` has runs at chance: it is shown, but neither shaded nor ranked, because a model that
    names one class everywhere is as even as can be.
    """
    rows, columns = grid["rows"], grid["columns"]
    label, values = shown
    ranked = {name: value for name, value in values.items() if name not in guessed and usable(value)}
    lines = {row: [ranked.get(composed(row, column)) for column in columns] for row in rows}
    known = [value for line in lines.values() for value in line if value is not None]
    of_column = [best_of([lines[row][place] for row in rows], best) for place in range(len(columns))]
    drawn = []
    for row in rows:
        of_row = best_of(lines[row], best)
        line = f'<th scope="row">{text(row)}</th>'
        for column, value, top in zip(columns, lines[row], of_column, strict=True):
            name = composed(row, column)
            marks = ("R" if value == of_row else "") + ("C" if value == top else "")
            below = [f"{beside[0]} {number(beside[1].get(name))}"] if beside else []
            below += [GUESSED] if name in guessed else []
            line += heat_cell(values.get(name), marks, below, strength(value, known, best))
        drawn.append(f"<tr>{line}</tr>\n")
    names = heads([column or "alone" for column in columns])
    head = f'<tr><th scope="col">{label}</th>{names}</tr>'
    return table(head, drawn).replace('class="table"', 'class="table heat"', 1)


def heat_cell(value: float | None, marks: str, below: Sequence[str], shade: float) -> str:
    if value is None:
        return '<td class="number">–</td>'
    main = f"<sup>{marks}</sup><strong>{number(value)}</strong>" if marks else number(value)
    small = "".join(f"<small>{text(one)}</small>" for one in below)
    return f'<td class="number" style="--heat: {shade:.1f}%"><span>{main}</span>{small}</td>'


def best_of(values: Sequence[float | None], best: Callable[[list[float]], float]) -> float:
    """The best of several; NaN, which equals nothing, where there is no choice."""
    known = [value for value in values if value is not None]
    return best(known) if len(known) > 1 else math.nan


def strength(value: float | None, known: Sequence[float], best: Callable[[list[float]], float]) -> float:
    """How strongly a cell is shaded: nothing at the worst value of the table, `STRONGEST` at the best."""
    if value is None or not known or max(known) == min(known):
        return 0.0
    height = (value - min(known)) / (max(known) - min(known))
    return STRONGEST * (height if best is max else 1 - height)


def number(value: float | None) -> str:
    return "–" if value is None or not usable(value) else points(value)
