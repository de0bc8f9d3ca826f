"""What every drawing stands on: its frame, its scales, and the lines and numbers along them.

Drawings are SVG texts, pure functions of numbers, coloured by the page's style sheet and readable without script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fairsilo.report.downloads import Chart
from fairsilo.report.texts import signed, size, text

WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 14.0, 30.0, 38.0

Form = Callable[[float], str]

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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


def frame(height: float, title: str, said: str, body: str, csv: str) -> Chart:
    """A drawing of the usual width with its numbers, and what it says for those who cannot see it."""
    label = text(f"{title}. {said}" if said else title)
    drawing = f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{label}">'
    return Chart(f"{drawing}<title>{text(title)}</title>{body}</svg>", title, csv)


def nothing(title: str, said: str = "nothing was recorded") -> Chart:
    """A small empty chart that says why it is empty."""
    body = f'<text class="label" x="{WIDTH / 2:g}" y="45" text-anchor="middle">{text(said)}</text>'
    return frame(80, title, said, body, "")


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
    written = f"{value:.6g}"
    if 0 < abs(value) < 1e-3:  # shorter so, and there is room for eight letters
        digits, power = f"{value:.2e}".split("e")
        written = f"{float(digits):g}e{int(power)}"
    return signed(written).replace("e-0", "e−").replace("e-", "e−").replace("e+", "e")


def round_scale(values: Sequence[float]) -> tuple[Scale, list[float]]:
    low, high = min(values), max(values)
    if low == high:  # a single round stands in the middle
        return Scale(low - 1, high + 1, LEFT, WIDTH - RIGHT), [low]
    inside = [tick for tick in nice_ticks(low, high, 6, whole=True) if low <= tick <= high]
    if not inside or inside[0] - low > (high - low) / 8:  # the first round is named unless that would crowd
        inside = [low, *inside]
    return Scale(low, high, LEFT + 6, WIDTH - RIGHT - 6), inside


def height_scale(values: Sequence[float], log: bool, limits: tuple[float, float] | None) -> tuple[Scale, list[float]]:
    ticks = decades(min(values), max(values)) if log else nice_ticks(min(values), max(values))
    if limits:
        ticks = [tick for tick in ticks if limits[0] <= tick <= limits[1]] or list(limits)
        ticks = ticks if len(ticks) > 1 else list(limits)
    return Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP, log), ticks


def y_axis(scale: Scale, ticks: Sequence[float], log: bool) -> str:
    parts = []
    for tick in ticks:
        y = scale(tick)
        zero = " zero" if tick == 0 and ticks[0] < 0 else ""
        parts.append(f'<path class="grid{zero}" d="M{LEFT:g} {y:.1f}H{WIDTH - RIGHT:g}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{_tick(tick, log)}</text>')
    return "".join(parts)


def x_axis(scale: Scale, ticks: Sequence[float], label: str, log: bool = False) -> str:
    bottom = HEIGHT - BOTTOM
    parts = [
        f'<text class="tick" x="{scale(tick):.1f}" y="{bottom + 16:g}" text-anchor="middle">{_tick(tick, log)}</text>'
        for tick in ticks
    ]
    parts.append(f'<text class="label" x="{WIDTH - RIGHT:g}" y="{HEIGHT - 5:g}" text-anchor="end">{text(label)}</text>')
    return "".join(parts)


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
