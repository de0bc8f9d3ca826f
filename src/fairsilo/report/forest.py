"""A forest plot: differences to one row, each with its interval, and what somebody else found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairsilo.report.charts import WIDTH, Scale, frame, nice_ticks, nothing, ruler, shorten, signed, text, usable
from fairsilo.report.downloads import Chart, numbers_as_csv

LEFT, RIGHT, LINE = 150.0, 96.0, 20.0  # pixels for names, for numbers, and for each row
NAME = 19  # letters of a name


@dataclass(frozen=True)
class Effect:
    """One row.

    Attributes:
        name: Of the row.
        mean: The difference.
        margin: How far the true one may be from it; None where that is not known.
        other: What somebody else found, such as a paper.
    """

    name: str
    mean: float | None
    margin: float | None = None
    other: float | None = None


def forest_chart(effects: Sequence[Effect], *, title: str, x_label: str, decimals: int = 1) -> Chart:
    """A dot with its interval for each row, a diamond for what somebody else found, and an upright line at zero."""
    ends = [0.0]
    for one in effects:
        margin = one.margin or 0.0
        ends += [] if one.mean is None else [one.mean - margin, one.mean + margin]
        ends += [] if one.other is None else [one.other]
    if len(ends) == 1:
        return nothing(title)
    ticks = nice_ticks(min(ends), max(ends))
    scale = Scale(ticks[0], ticks[-1], LEFT, WIDTH - RIGHT)
    bottom = 14 + LINE * len(effects)
    body = ruler(scale, 6, bottom, x_label, lambda value: f"{value:g}")
    body += "".join(_row(one, 6 + LINE * (place + 0.5), scale, decimals) for place, one in enumerate(effects))
    said = "; ".join(f"{one.name} {told(one, decimals)}" for one in effects)
    papers = any(one.other is not None for one in effects)
    rows = [[one.name, one.mean, one.margin, *([one.other] if papers else [])] for one in effects]
    csv = numbers_as_csv(["name", x_label, "margin (95 %)", *(["paper"] if papers else [])], rows)
    return frame(bottom + 34, title, said, body, csv)


def told(one: Effect, decimals: int = 1) -> str:
    """The difference and its interval in words."""
    if one.mean is None:
        return "–"
    margin = "" if one.margin is None else f" ± {one.margin:.{decimals}f}"
    return ("+" if one.mean > 0 else "") + signed(f"{one.mean:.{decimals}f}") + margin


def _row(one: Effect, y: float, scale: Scale, decimals: int) -> str:
    parts = [
        f'<text class="name" x="{LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">'
        f"<title>{text(one.name)}</title>{text(shorten(one.name, NAME))}</text>"
    ]
    if one.mean is not None and usable(one.mean):
        margin = one.margin or 0.0
        low, high = scale(one.mean - margin), scale(one.mean + margin)
        parts.append(
            f'<g class="s1"><title>{text(f"{one.name}: {told(one, decimals)}")}</title>'
            f'<path class="line" d="M{low:.1f} {y:.1f}H{high:.1f}"/>'
            f'<circle class="dot" cx="{scale(one.mean):.1f}" cy="{y:.1f}" r="3.4"/></g>'
        )
    if one.other is not None and usable(one.other):
        x = scale(one.other)
        parts.append(
            f'<g class="s2"><title>{text(f"the paper: {one.other:+.{decimals}f}")}</title>'
            f'<path class="bar hollow" d="M{x:.1f} {y - 4.6:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6z"/></g>'
        )
    parts.append(
        f'<text class="value s1" x="{WIDTH - 4:g}" y="{y + 4:.1f}" text-anchor="end">{text(told(one, decimals))}</text>'
    )
    return "".join(parts)
