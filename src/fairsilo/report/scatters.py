"""Points without lines, and how far each may be off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairsilo.report.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Form,
    Scale,
    decades,
    frame,
    height_scale,
    nice_ticks,
    nothing,
    x_axis,
    y_axis,
)
from fairsilo.report.downloads import Chart, numbers_as_csv
from fairsilo.report.series import Series, marker
from fairsilo.report.texts import plain, text, usable


def scatter_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    form: Form = plain,
    log: bool = False,
    least: float = 0.0,
    reach: Mapping[str, tuple[float, float]] | None = None,
    hollow: bool = False,
) -> Chart:
    """Points without lines; `log` is about the x axis. Axes are at least so long that a hair is no mile (`least`).

    `reach` has by name how far a point may be off, across and up: a thin cross, of coloured points only. What is not
    finite is left out.
    `hollow` is what nobody tested, as in a forest plot.
    """
    found = [point for one in series for point in _usable(one)]
    if not found:
        return nothing(title)
    count, reach = len(found), reach or {}
    coloured = [one.name for one in series if one.colour and one.name in reach]
    crossed = {name: (_or_nothing(reach[name][0]), _or_nothing(reach[name][1])) for name in coloured}
    for one in series:
        across, up = crossed.get(one.name, (0.0, 0.0))
        found += [(x + way * across, y + way * up) for x, y in _usable(one) for way in (-1, 1)]
    ticks = decades(min(x for x, _ in found), max(x for x, _ in found)) if log else None
    ticks = ticks or nice_ticks(*_ends([x for x, _ in found], least))
    x_scale = Scale(ticks[0], ticks[-1], LEFT + 6, WIDTH - RIGHT - 6, log)
    y_scale, y_ticks = height_scale(_ends([y for _, y in found], least), False, None)
    body = y_axis(y_scale, y_ticks, False) + x_axis(x_scale, ticks, x_label, log)
    if ticks[0] < 0 <= ticks[-1] and not log:
        body += f'<path class="grid zero" d="M{x_scale(0):.1f} {TOP:g}V{HEIGHT - BOTTOM:g}"/>'
    body += f'<text class="label" x="4" y="14">{text(y_label)}</text>'
    for one in series:
        points = _usable(one)
        said = [f"<title>{text(f'{one.name}: {x:.4g}, {form(y)}')}</title>" for x, y in points]
        marks = [marker(one.colour, x_scale(x), y_scale(y), hollow) for x, y in points]
        drawn = [f"<g>{words}{mark}</g>" for words, mark in zip(said, marks, strict=True)]
        if one.name in crossed:
            drawn = [_cross(x, y, *crossed[one.name], x_scale, y_scale) for x, y in points] + drawn
        body += f'<g class="s{one.colour}">{"".join(drawn)}</g>'
    columns = ["name", x_label, y_label, *([f"margin of {x_label}", f"margin of {y_label}"] if reach else [])]
    margins = {one.name: reach.get(one.name, (None, None)) if reach else () for one in series}
    rows = ([one.name, x, y, *margins[one.name]] for one in series for x, y in one.points)
    return frame(HEIGHT, title, f"{count} points", body, numbers_as_csv(columns, rows))


def _usable(one: Series) -> list[tuple[float, float]]:
    return [(x, y) for x, y in one.points if usable(x) and usable(y)]


def _or_nothing(margin: float) -> float:
    return margin if usable(margin) else 0.0


def _cross(x: float, y: float, across: float, up: float, x_scale: Scale, y_scale: Scale) -> str:
    """How far a point may be off."""
    lying = f"M{x_scale(x - across):.1f} {y_scale(y):.1f}H{x_scale(x + across):.1f}"
    return f'<path class="reach" d="{lying}M{x_scale(x):.1f} {y_scale(y - up):.1f}V{y_scale(y + up):.1f}"/>'


def _ends(values: Sequence[float], least: float) -> tuple[float, float]:
    """The smallest and the largest, as far apart as is asked for at least."""
    low, high = min(values), max(values)
    more = max(least - (high - low), 0.0) / 2
    return low - more, high + more
