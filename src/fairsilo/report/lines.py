"""Lines over rounds. A value that is None or not finite is left out; its line is interrupted there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from fairsilo.report.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Form,
    Scale,
    frame,
    height_scale,
    nothing,
    round_scale,
    x_axis,
    y_axis,
)
from fairsilo.report.downloads import Chart, numbers_as_csv
from fairsilo.report.series import COLOURS, MARKED, MARKS, Series, last_value, marker
from fairsilo.report.texts import plain, text, usable


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    y_label: str,
    x_label: str = "round",
    form: Form = plain,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    include: Sequence[float] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> Chart:
    """Lines over rounds. `include` widens the y axis, `marks` are upright rules with a word each."""
    lines = [_clean(line, log) for line in series]
    found = [(x, y) for line in lines for x, y in line.points if y is not None]
    if not found:
        return nothing(title)
    x_scale, x_ticks = round_scale([x for x, _ in found])
    values = [y for _, y in found] + [y for y in include if usable(y) and (y > 0 or not log)]
    y_scale, y_ticks = height_scale(values, log, limits)
    body = y_axis(y_scale, y_ticks, log) + x_axis(x_scale, x_ticks, x_label)
    body += f'<text class="label" x="4" y="14">{text(y_label + (", logarithmic" if log else ""))}</text>'
    body += "".join(_mark(x_scale, *mark) for mark in marks)
    # the muted lines lie underneath
    body += "".join(_line(line, x_scale, y_scale) for line in sorted(lines, key=lambda line: line.colour > 0))
    body += _columns(lines, x_scale, x_label, form)
    last = [(line.name, last_value(line)) for line in lines if line.colour][:COLOURS]
    said = "Last: " + "; ".join(f"{name} {form(y)}" for name, y in last if y is not None)
    places = sorted({x for line in series for x, _ in line.points})
    known = [dict(line.points) for line in series]
    csv = numbers_as_csv([x_label, *(s.name for s in series)], ([x, *(line.get(x) for line in known)] for x in places))
    return frame(HEIGHT, title, said, body, csv)


def _clean(line: Series, log: bool) -> Series:
    points = [(x, y if y is not None and math.isfinite(y) and (y > 0 or not log) else None) for x, y in line.points]
    return replace(line, points=points)


def _mark(scale: Scale, x: float, word: str) -> str:
    place = scale(x)
    right = place > WIDTH * 0.6
    anchor, shift = ("end", -5) if right else ("start", 5)
    return (
        f'<path class="mark" d="M{place:.1f} {TOP:g}V{HEIGHT - BOTTOM:g}"/>'
        f'<text class="label" x="{place + shift:.1f}" y="{TOP - 4:g}" text-anchor="{anchor}">{text(word)}</text>'
    )


def _line(line: Series, x_scale: Scale, y_scale: Scale) -> str:
    path, before, shapes = [], None, []
    for x, y in line.points:
        if y is None:
            before = None
            continue
        place = round(x_scale(x), 1), round(y_scale(y), 1)
        # steps are shorter than places, which tells in pages of many silos; between rounded places no error adds up
        step = (place[0] - before[0], place[1] - before[1]) if before else place
        path.append(f"{'l' if before else 'M'}{_short(step[0])} {_short(step[1])}")
        shapes.append(marker(line.colour, *place))
        before = place
    # a long line has few marks, each colour at points of its own: with none, colour alone would tell lines apart
    every = math.ceil(len(shapes) / MARKS) if len(shapes) > MARKED else 1
    drawn = "".join(shapes[every * line.colour // (COLOURS + 1) :: every]) if line.colour else ""
    dashed = " dashed" if line.dashed else ""
    alone = "" if drawn or len(path) > 1 else "".join(shapes)  # a single point would be invisible as a line
    return f'<g class="s{line.colour}"><path class="line{dashed}" d="{"".join(path)}"/>{drawn}{alone}</g>'


def _short(length: float) -> str:
    """With one decimal where it is not zero."""
    return f"{round(length, 1):g}"


def _columns(lines: Sequence[Series], scale: Scale, label: str, form: Form) -> str:
    """One invisible column per round that names every value when pointed at."""
    said: dict[float, list[str]] = {}
    for line in lines:
        for x, y in line.points:
            if y is not None:
                said.setdefault(x, []).append(f"{line.name}: {form(y)}")
    places = sorted(said)
    edges = [(scale(a) + scale(b)) / 2 for a, b in pairwise(places)]
    starts, ends = [LEFT, *edges], [*edges, WIDTH - RIGHT]
    return "".join(
        f'<rect class="column" x="{start:.1f}" y="{TOP:g}" width="{max(end - start, 0.5):.1f}" '
        f'height="{HEIGHT - BOTTOM - TOP:g}"><title>{text(chr(10).join([f"{label} {x:g}", *said[x]]))}</title></rect>'
        for x, start, end in zip(places, starts, ends, strict=True)
    )
