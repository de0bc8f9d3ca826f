"""Small charts as SVG texts: pure functions of numbers, coloured by the page's style sheet, readable without script.

Values that are None or not finite are left out; a line is interrupted there.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from fairsilo.report.downloads import Chart, numbers_as_csv

WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 14.0, 30.0, 38.0
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

Form = Callable[[float], str]
Point = tuple[float, float | None]

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Series:
    """One line: its points in order, its colour (1 to 8, or 0 for muted) and its stroke."""

    name: str
    points: Sequence[Point]
    colour: int = 1
    dashed: bool = False


@dataclass(frozen=True)
class Bar:
    """One bar of a group; a hollow one stands apart from the others (an unseen domain)."""

    name: str
    value: float | None
    colour: int = 1
    hollow: bool = False


@dataclass(frozen=True)
class Scale:
    """From values to places, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


# ------------------------------------------------------------------------------------------------------- texts
def text(value: object) -> str:
    """Anything as text that is safe in HTML and in XML."""
    return html.escape(_CONTROL.sub("�", str(value)))


def usable(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def signed(written: str) -> str:
    """A true minus sign in front of a negative number, and none in front of zero."""
    if written.startswith("-"):
        return "−" + written[1:] if float(written[1:]) else written[1:]
    return written


def plain(value: float | None) -> str:
    """A number with three to four digits, or a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    return signed(f"{value:.2e}" if value and (abs(value) < 1e-3 or abs(value) >= 1e5) else f"{value:.3f}")


def percent(value: float | None) -> str:
    """A number that is in percent already, as 87.4 %."""
    return "–" if value is None or not math.isfinite(value) else f"{signed(f'{value:.1f}')}\u00a0%"


def size(value: float | None) -> str:
    """Bytes in decimal units."""
    if value is None or not math.isfinite(value):
        return "–"
    power = min(int(math.log10(abs(value)) // 3), 4) if abs(value) >= 1 else 0
    return f"{value / 1000**power:.3g}\u00a0{('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def duration(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if value < 1:
        return f"{value * 1000:.0f}\u00a0ms"
    if value < 60:
        return f"{value:.1f}\u00a0s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}\u00a0h {minutes}\u00a0min" if hours else f"{minutes}\u00a0min {seconds}\u00a0s"


def shorten(name: str, length: int) -> str:
    """The beginning and the end of a long name; numbers that tell silos apart usually stand at the end."""
    if len(name) <= length:
        return name
    tail = (length - 1) // 3
    return f"{name[: length - 1 - tail]}…{name[-tail:]}"


# ------------------------------------------------------------------------------------------------------- axes
def nice_ticks(low: float, high: float, count: int = 4, whole: bool = False) -> list[float]:
    """Round numbers that enclose low and high; a constant gets room on both sides."""
    if high <= low:
        room = abs(low) * 0.1 or 1.0
        low, high = low - room, high + room
    raw = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(f * magnitude for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * magnitude >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, math.ceil(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten that enclose low and high, at most seven of them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    stride = max(1, math.ceil((last - first) / 6))
    return [10.0**power for power in range(first, last + stride, stride)]


def spans_decades(values: Iterable[float | None]) -> bool:
    """Whether positive values differ by more than two decades, so that a logarithmic axis is needed."""
    found = [value for value in values if value is not None and math.isfinite(value) and value > 0]
    return bool(found) and max(found) / min(found) > 100


def _tick(value: float, log: bool) -> str:
    if log:
        return "10" + str(round(math.log10(value))).translate(_RAISED)
    return signed(f"{value:.6g}").replace("e-0", "e−").replace("e-", "e−").replace("e+", "e")


def _x_scale(values: Sequence[float]) -> tuple[Scale, list[float]]:
    low, high = min(values), max(values)
    if low == high:  # a single round stands in the middle
        return Scale(low - 1, high + 1, LEFT, WIDTH - RIGHT), [low]
    inside = [tick for tick in nice_ticks(low, high, 6, whole=True) if low <= tick <= high]
    if not inside or inside[0] - low > (high - low) / 8:  # the first round is named unless that would crowd
        inside = [low, *inside]
    return Scale(low, high, LEFT + 6, WIDTH - RIGHT - 6), inside


def _y_scale(values: Sequence[float], log: bool, limits: tuple[float, float] | None) -> tuple[Scale, list[float]]:
    ticks = decades(min(values), max(values)) if log else nice_ticks(min(values), max(values))
    if limits:
        ticks = [tick for tick in ticks if limits[0] <= tick <= limits[1]] or list(limits)
        ticks = ticks if len(ticks) > 1 else list(limits)
    return Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP, log), ticks


def frame(height: float, title: str, said: str, body: str, csv: str) -> Chart:
    """A drawing of the usual width with its numbers, and what it says for those who cannot see it."""
    label = text(f"{title}. {said}" if said else title)
    drawing = f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{label}">'
    return Chart(f"{drawing}<title>{text(title)}</title>{body}</svg>", title, csv)


def nothing(title: str, said: str = "nothing was recorded") -> Chart:
    """A small empty chart that says why it is empty."""
    body = f'<text class="label" x="{WIDTH / 2:g}" y="45" text-anchor="middle">{text(said)}</text>'
    return frame(80, title, said, body, "")


# ------------------------------------------------------------------------------------------------------- lines
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
    x_scale, x_ticks = _x_scale([x for x, _ in found])
    values = [y for _, y in found] + [y for y in include if usable(y) and (y > 0 or not log)]
    y_scale, y_ticks = _y_scale(values, log, limits)
    body = _grid(y_scale, y_ticks, log) + _rounds(x_scale, x_ticks, x_label)
    body += f'<text class="label" x="4" y="14">{text(y_label + (", logarithmic" if log else ""))}</text>'
    body += "".join(_mark(x_scale, *mark) for mark in marks)
    # the muted lines lie underneath
    body += "".join(_line(line, x_scale, y_scale) for line in sorted(lines, key=lambda line: line.colour > 0))
    body += _columns(lines, x_scale, x_label, form)
    last = [(line.name, _last(line)) for line in lines if line.colour][:COLOURS]
    said = "Last: " + "; ".join(f"{name} {form(y)}" for name, y in last if y is not None)
    places = sorted({x for line in series for x, _ in line.points})
    known = [dict(line.points) for line in series]
    csv = numbers_as_csv([x_label, *(s.name for s in series)], ([x, *(line.get(x) for line in known)] for x in places))
    return frame(HEIGHT, title, said, body, csv)


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
) -> Chart:
    """Points without lines; `log` is about the x axis. Axes are at least so long that a hair is no mile (`least`).

    `reach` has by name how far a point may be off, across and up: a thin cross, of coloured points only.
    """
    found = [(x, y) for one in series for x, y in one.points if y is not None and math.isfinite(y)]
    if not found:
        return nothing(title)
    count, reach = len(found), reach or {}
    crossed = {one.name: reach[one.name] for one in series if one.colour and one.name in reach}
    for one in series:
        across, up = crossed.get(one.name, (0.0, 0.0))
        found += [(x + way * across, y + way * up) for x, y in one.points if y is not None for way in (-1, 1)]
    found = [(x, y) for x, y in found if math.isfinite(y)]
    ticks = decades(min(x for x, _ in found), max(x for x, _ in found)) if log else None
    ticks = ticks or nice_ticks(*_ends([x for x, _ in found], least))
    x_scale = Scale(ticks[0], ticks[-1], LEFT + 6, WIDTH - RIGHT - 6, log)
    y_scale, y_ticks = _y_scale(_ends([y for _, y in found], least), False, None)
    body = _grid(y_scale, y_ticks, False) + _rounds(x_scale, ticks, x_label, log)
    if ticks[0] < 0 <= ticks[-1] and not log:
        body += f'<path class="grid zero" d="M{x_scale(0):.1f} {TOP:g}V{HEIGHT - BOTTOM:g}"/>'
    body += f'<text class="label" x="4" y="14">{text(y_label)}</text>'
    for one in series:
        points = [(x, y) for x, y in one.points if y is not None and math.isfinite(y)]
        said = [f"<title>{text(f'{one.name}: {x:.4g}, {form(y)}')}</title>" for x, y in points]
        marks = [marker(one.colour, x_scale(x), y_scale(y)) for x, y in points]
        drawn = [f"<g>{words}{mark}</g>" for words, mark in zip(said, marks, strict=True)]
        if one.name in crossed:
            drawn = [_cross(x, y, *crossed[one.name], x_scale, y_scale) for x, y in points] + drawn
        body += f'<g class="s{one.colour}">{"".join(drawn)}</g>'
    columns = ["name", x_label, y_label, *([f"margin of {x_label}", f"margin of {y_label}"] if reach else [])]
    margins = {one.name: reach.get(one.name, (None, None)) if reach else () for one in series}
    rows = ([one.name, x, y, *margins[one.name]] for one in series for x, y in one.points)
    return frame(HEIGHT, title, f"{count} points", body, numbers_as_csv(columns, rows))


def _cross(x: float, y: float, across: float, up: float, x_scale: Scale, y_scale: Scale) -> str:
    """How far a point may be off."""
    lying = f"M{x_scale(x - across):.1f} {y_scale(y):.1f}H{x_scale(x + across):.1f}"
    return f'<path class="reach" d="{lying}M{x_scale(x):.1f} {y_scale(y - up):.1f}V{y_scale(y + up):.1f}"/>'


def _ends(values: Sequence[float], least: float) -> tuple[float, float]:
    """The smallest and the largest, as far apart as is asked for at least."""
    low, high = min(values), max(values)
    more = max(least - (high - low), 0.0) / 2
    return low - more, high + more


def _clean(line: Series, log: bool) -> Series:
    points = [(x, y if y is not None and math.isfinite(y) and (y > 0 or not log) else None) for x, y in line.points]
    return replace(line, points=points)


def _last(line: Series) -> float | None:
    return next((y for _, y in reversed(line.points) if usable(y)), None)


def _grid(scale: Scale, ticks: Sequence[float], log: bool) -> str:
    parts = []
    for tick in ticks:
        y = scale(tick)
        zero = " zero" if tick == 0 and ticks[0] < 0 else ""
        parts.append(f'<path class="grid{zero}" d="M{LEFT:g} {y:.1f}H{WIDTH - RIGHT:g}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{_tick(tick, log)}</text>')
    return "".join(parts)


def _rounds(scale: Scale, ticks: Sequence[float], label: str, log: bool = False) -> str:
    bottom = HEIGHT - BOTTOM
    parts = [
        f'<text class="tick" x="{scale(tick):.1f}" y="{bottom + 16:g}" text-anchor="middle">{_tick(tick, log)}</text>'
        for tick in ticks
    ]
    parts.append(f'<text class="label" x="{WIDTH - RIGHT:g}" y="{HEIGHT - 5:g}" text-anchor="end">{text(label)}</text>')
    return "".join(parts)


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


def marker(colour: int, x: float, y: float) -> str:
    """A shape of its own for every colour, so that colour is never the only difference."""
    if colour == 1:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.8"/>'
    right, down, outline = SHAPES[colour]
    return f'<path class="dot" d="M{x + right:.1f} {y + down:.1f}{outline}z"/>'


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


def emphasised(lines: Mapping[str, Sequence[Point]], like: Sequence[Series] = ()) -> list[Series]:
    """A colour for each of few lines; of many only for the highest and the lowest three at the end.

    `like` gives every name the colour it has in another chart.
    """
    if like:
        colours = {line.name: line.colour for line in like}
        return [Series(name, points, colours.get(name, 0)) for name, points in lines.items()]
    names = list(lines)
    if len(names) > COLOURS:
        known = {name: _last(Series(name, points)) for name, points in lines.items()}
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


# ------------------------------------------------------------------------------------------------------- bars
def bar_chart(
    groups: Sequence[tuple[str, Sequence[Bar]]],
    *,
    title: str,
    x_label: str,
    form: Form = plain,
    high: float | None = None,
    band: tuple[float, float] | None = None,
    means: Sequence[Bar] = (),
) -> Chart:
    """Lying bars from zero, in groups; a band and upright lines show a spread and its means."""
    values = [bar.value for _, bars in groups for bar in bars if bar.value is not None and math.isfinite(bar.value)]
    if not values:
        return nothing(title)
    left, thick, right = 118.0, 13.0, 84.0  # on the right the values stand in a column, clear of the lines
    most = max(high or 0.0, *values, 0.0)
    scale = Scale(0.0, most or 1.0, left, WIDTH - right)
    top, places, y = 12.0, [], 18.0
    for _, bars in groups:
        places.append(y)
        y += len(bars) * (thick + 2) + 10
    body = ruler(scale, top, y, x_label, form)
    if band:
        start, end = (scale(min(max(edge, 0.0), scale.high)) for edge in band)
        body += f'<rect class="band" x="{start:.1f}" y="{top:g}" width="{end - start:.1f}" height="{y - top:g}"/>'
    for (name, bars), place in zip(groups, places, strict=True):
        body += _group(name, bars, place, thick, scale, form)
    for mean in means:
        if mean.value is not None and math.isfinite(mean.value):
            dashed = " dashed" if mean.colour != 1 else ""
            path = f'd="M{scale(mean.value):.1f} {top:g}V{y:g}"'
            body += f'<path class="halo" {path}/><path class="mean{dashed}" {path}>'
            body += f"<title>{text(f'{mean.name}: {form(mean.value)}')}</title></path>"
    said = "; ".join(
        f"{name} {form(bar.value)}" for name, bars in groups[:12] for bar in bars[:1] if bar.value is not None
    )
    rows: list[tuple[str, str, float | None]] = [(name, bar.name, bar.value) for name, bars in groups for bar in bars]
    rows += [("", bar.name, bar.value) for bar in means]
    rows += [("", f"{end} end of the band", edge) for end, edge in zip(("lower", "upper"), band or (), strict=False)]
    return frame(y + 34, title, said, body, numbers_as_csv(["group", "name", x_label], rows))


def ruler(scale: Scale, top: float, bottom: float, label: str, form: Form) -> str:
    """Upright lines at round numbers, and what they are, beneath."""
    parts = []
    ticks = [tick for tick in nice_ticks(scale.low, scale.high, 4) if scale.low <= tick <= scale.high * (1 + 1e-9)]
    for tick in ticks:
        x = scale(tick)
        zero = " zero" if tick == 0 and scale.low < 0 else ""
        parts.append(f'<path class="grid{zero}" d="M{x:.1f} {top:g}V{bottom:g}"/>')
        written = form(tick) if form is size else _tick(tick, False)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 14:g}" text-anchor="middle">{text(written)}</text>')
    parts.append(f'<text class="label" x="{scale.end:g}" y="{bottom + 30:g}" text-anchor="end">{text(label)}</text>')
    return "".join(parts)


def _group(name: str, bars: Sequence[Bar], y: float, thick: float, scale: Scale, form: Form) -> str:
    middle = y + len(bars) * (thick + 2) / 2 + 3
    parts = [
        f'<text class="name" x="{scale.start - 8:g}" y="{middle:.1f}" text-anchor="end">'
        f"<title>{text(name)}</title>{text(shorten(name, 14))}</text>"
    ]
    for index, bar in enumerate(bars):
        if bar.value is None or not math.isfinite(bar.value):
            continue
        place, end = y + index * (thick + 2), max(scale(bar.value), scale.start)
        hollow = " hollow" if bar.hollow else ""
        parts.append(
            f'<g class="s{bar.colour}"><rect class="bar{hollow}" x="{scale.start:g}" y="{place:.1f}" '
            f'width="{max(end - scale.start, 1):.1f}" height="{thick:g}">'
            f"<title>{text(f'{name}, {bar.name}: {form(bar.value)}')}</title></rect></g>"
            f'<text class="value s{bar.colour}" x="{WIDTH - 8:g}" y="{place + thick - 2.5:.1f}" text-anchor="end">'
            f"{text(form(bar.value))}</text>"
        )
    return "".join(parts)
