"""Lying bars in groups, with a spread and its means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairsilo.report.axes import WIDTH, Form, Scale, frame, nothing, ruler
from fairsilo.report.downloads import Chart, numbers_as_csv
from fairsilo.report.texts import plain, shorten, text, usable


@dataclass(frozen=True)
class Bar:
    """One bar of a group; a hollow one stands apart from the others (an unseen domain)."""

    name: str
    value: float | None
    colour: int = 1
    hollow: bool = False


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
    values = [bar.value for _, bars in groups for bar in bars if usable(bar.value)]
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
    if band and all(map(usable, band)):
        start, end = (scale(min(max(edge, 0.0), scale.high)) for edge in band)
        body += f'<rect class="band" x="{start:.1f}" y="{top:g}" width="{end - start:.1f}" height="{y - top:g}"/>'
    for (name, bars), place in zip(groups, places, strict=True):
        body += _group(name, bars, place, thick, scale, form)
    for mean in means:
        if usable(mean.value):
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


def _group(name: str, bars: Sequence[Bar], y: float, thick: float, scale: Scale, form: Form) -> str:
    middle = y + len(bars) * (thick + 2) / 2 + 3
    parts = [
        f'<text class="name" x="{scale.start - 8:g}" y="{middle:.1f}" text-anchor="end">'
        f"<title>{text(name)}</title>{text(shorten(name, 14))}</text>"
    ]
    for index, bar in enumerate(bars):
        if not usable(bar.value):
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
