"""Series of points as lines and scatters show them: colours, a shape for each colour, and the key beneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairsilo.report.texts import shorten, text, usable

COLOURS = 8  # of the palette in page.css; colour 0 is the muted one
MARKED = 40  # a line with more points than this has a marker only here and there
MARKS = 10  # then so many
# by colour: where the outline of a marker begins, from its middle, and how it goes on; colour 1 is a circle
SHAPES: tuple[tuple[float, float, str], ...] = (
    (-3.8, 0.0, "l6.2 -3.6v7.2"),  # a triangle to the left
    (0.0, 0.0, ""),
    (-2.7, -2.7, "h5.4v5.4h-5.4"),  # a square
    (0.0, -3.6, "l3.6 6.2h-7.2"),  # a triangle
    (0.0, -3.8, "l3.8 3.8l-3.8 3.8l-3.8 -3.8"),  # a diamond
    (0.0, 3.6, "l3.6 -6.2h-7.2"),  # a triangle upside down
    (-1.2, -3.6, "h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4"),  # a plus
    (0.0, -1.5, "l2 -2l1.5 1.5l-2 2l2 2l-1.5 1.5l-2 -2l-2 2l-1.5 -1.5l2 -2l-2 -2l1.5 -1.5"),  # a cross
    (0.0, -4.4, "l1.1 3h3.1l-2.4 2l.9 3l-2.7 -1.8l-2.7 1.8l.9 -3l-2.4 -2h3.1"),  # a star
)

Point = tuple[float, float | None]


@dataclass(frozen=True)
class Series:
    """One line: its points in order, its colour (1 to 8, or 0 for muted) and its stroke."""

    name: str
    points: Sequence[Point]
    colour: int = 1
    dashed: bool = False


def last_value(line: Series) -> float | None:
    return next((y for _, y in reversed(line.points) if usable(y)), None)


def marker(colour: int, x: float, y: float, hollow: bool = False) -> str:
    """A shape of its own for every colour, so that colour is never the only difference."""
    kind = "dot hollow" if hollow else "dot"
    if colour == 1:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.8"/>'
    right, down, outline = SHAPES[colour]
    return f'<path class="{kind}" d="M{x + right:.1f} {y + down:.1f}{outline}z"/>'


def emphasised(lines: Mapping[str, Sequence[Point]], like: Sequence[Series] = ()) -> list[Series]:
    """A colour for each of few lines; of many only for the highest and the lowest three at the end.

    `like` gives every name the colour it has in another chart.
    """
    if like:
        colours = {line.name: line.colour for line in like}
        return [Series(name, points, colours.get(name, 0)) for name, points in lines.items()]
    names = list(lines)
    if len(names) > COLOURS:
        known = {name: last_value(Series(name, points)) for name, points in lines.items()}
        ranked = sorted((name for name in names if usable(known[name])), key=lambda name: known[name] or 0.0)
        names = list(dict.fromkeys([*reversed(ranked[-3:]), *ranked[:3][::-1]]))
    return [Series(name, points, names.index(name) + 1 if name in names else 0) for name, points in lines.items()]


def legend(series: Sequence[Series], points: bool = False) -> str:
    """Samples and names beneath a chart of lines or of points; a list, so that it wraps and is never scaled."""
    items = []
    for line in sorted((line for line in series if line.colour), key=lambda line: line.colour):
        stroke = "" if points else f'<path class="line{" dashed" if line.dashed else ""}" d="M0 6H26"/>'
        sample = stroke + marker(line.colour, 13, 6)
        items.append((line.colour, sample, line.name))
    rest = sum(1 for line in series if not line.colour)
    if rest:
        sample = marker(0, 13, 6) if points else '<path class="line" d="M0 6H26"/>'
        items.append((0, sample, f"{rest} others in between" if rest > 1 else "one other in between"))
    drawn = "".join(
        f'<li class="s{colour}"><svg viewBox="0 0 26 12" aria-hidden="true">{sample}</svg>'
        f'<span title="{text(name)}">{text(shorten(name, 40))}</span></li>'
        for colour, sample, name in items
    )
    return f'<ul class="legend">{drawn}</ul>' if drawn else ""
