"""A forest plot: differences to one row, each with its interval, and what somebody else found."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from fairsilo.report.axes import WIDTH, Scale, frame, nice_ticks, nothing, ruler
from fairsilo.report.downloads import Chart, numbers_as_csv
from fairsilo.report.texts import signed, text, usable

LEFT, RIGHT, LINE = 150.0, 96.0, 20.0  # pixels for names, for numbers, and for each row
NAME = 19  # letters of a name for which there is room beside its row; longer ones stand above theirs, whole
EDGE = 12.0  # pixels at the left of names that stand above
ABOVE = 16.0  # pixels for a line of such a name
LETTERS = 52  # of such a line
GAP = 7.0  # pixels between their rows
DOT = 4.0  # pixels, half a dot's width: a hollow one is told from a full one in print


@dataclass(frozen=True)
class Effect:
    """One row.

    Attributes:
        name: Of the row.
        mean: The difference.
        margin: How far the true one may be from it; None where that is not known.
        other: What somebody else found, such as a paper.
        sure: Whether chance would hardly give it, corrected for all that are looked at; None where nobody judged.
    """

    name: str
    mean: float | None
    margin: float | None = None
    other: float | None = None
    sure: bool | None = None

    @property
    def interval(self) -> tuple[float, ...]:
        """From where to where it goes; nothing where there is no such place, as after a result that is infinite."""
        if not usable(self.mean):
            return ()
        margin = self.margin if usable(self.margin) else 0.0
        return self.mean - margin, self.mean + margin


def forest_chart(effects: Sequence[Effect], *, title: str, x_label: str, decimals: int = 1) -> Chart:
    """A dot with its interval for each row, a diamond for what somebody else found, and an upright line at zero.

    A hollow dot is a difference that is not sure. Names are never cut: of two methods, what differs may stand anywhere.
    """
    ends = [0.0]
    for one in effects:
        ends += one.interval
        ends += [one.other] if usable(one.other) else []
    if len(ends) == 1:
        return nothing(title)
    ticks = nice_ticks(min(ends), max(ends))
    above = any(len(one.name) > NAME for one in effects)
    scale = Scale(ticks[0], ticks[-1], EDGE if above else LEFT, WIDTH - RIGHT)
    bottom, rows = 6.0, ""
    for one in effects:
        names = _lines(one.name) if above else []
        rows += _name_above(names, bottom) if above else _name_beside(one.name, bottom + LINE / 2)
        bottom += ABOVE * len(names)
        rows += _row(one, bottom + LINE / 2, scale, decimals)
        bottom += LINE + (GAP if above else 0)
    bottom += 8
    body = ruler(scale, 6, bottom, x_label, lambda value: f"{value:g}") + rows
    said = "; ".join(f"{one.name} {_judged(one, decimals)}" for one in effects)
    return frame(bottom + 34, title, said, body, _numbers(effects, x_label))


def _numbers(effects: Sequence[Effect], x_label: str) -> str:
    """As CSV, with a column for the paper and one for what is sure where there are such."""
    papers, judged = any(one.other is not None for one in effects), any(one.sure is not None for one in effects)
    rows = [
        [one.name, one.mean, one.margin, *([one.other] if papers else []), *([_word(one.sure)] if judged else [])]
        for one in effects
    ]
    columns = ["name", x_label, "margin (95 %)", *(["paper"] if papers else []), *(["sure"] if judged else [])]
    return numbers_as_csv(columns, rows)


def _word(sure: bool | None) -> str | None:
    return None if sure is None else "yes" if sure else "no"


def sure_key(looked: int) -> str:
    """What a full and what a hollow dot mean; of so many comparisons, corrected together."""
    found = [("dot hollow", "may be chance")]
    if looked:
        found.insert(0, ("dot", "sure" if looked == 1 else f"sure, corrected for all {looked} comparisons"))
    drawn = "".join(
        f'<li class="s1"><svg viewBox="0 0 26 12" aria-hidden="true"><path class="line" d="M0 6H26"/>'
        f'<circle class="{kind}" cx="13" cy="6" r="{DOT:g}"/></svg><span>{text(said)}</span></li>'
        for kind, said in found
    )
    return f'<ul class="legend">{drawn}</ul>\n'


def told(one: Effect, decimals: int = 1) -> str:
    """The difference and its interval in words."""
    if not usable(one.mean):
        return "–"
    margin = f" ± {one.margin:.{decimals}f}" if usable(one.margin) else ""
    return ("+" if one.mean > 0 else "") + signed(f"{one.mean:.{decimals}f}") + margin


def _judged(one: Effect, decimals: int) -> str:
    """The same with whether it is sure, where somebody judged."""
    return told(one, decimals) + {None: "", True: ", sure", False: ", may be chance"}[one.sure]


def _lines(name: str) -> list[str]:
    """A whole name in lines for which there is room."""
    return textwrap.wrap(name, LETTERS, break_on_hyphens=False) or [name]


def _name_beside(name: str, y: float) -> str:
    return f'<text class="name" x="{LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">{text(name)}</text>'


def _name_above(lines: Sequence[str], y: float) -> str:
    return "".join(
        f'<text class="name above" x="{EDGE:g}" y="{y + ABOVE * (place + 1) - 2:.1f}">{text(one)}</text>'
        for place, one in enumerate(lines)
    )


def _row(one: Effect, y: float, scale: Scale, decimals: int) -> str:
    parts = []
    if usable(one.mean):
        low, high = map(scale, one.interval)
        hollow = "dot hollow" if one.sure is False else "dot"
        parts.append(
            f'<g class="s1"><title>{text(f"{one.name}: {_judged(one, decimals)}")}</title>'
            f'<path class="line" d="M{low:.1f} {y:.1f}H{high:.1f}"/>'
            f'<circle class="{hollow}" cx="{scale(one.mean):.1f}" cy="{y:.1f}" r="{DOT:g}"/></g>'
        )
    if usable(one.other):
        x = scale(one.other)
        parts.append(
            f'<g class="s2"><title>{text(f"the paper: {one.other:+.{decimals}f}")}</title>'
            f'<path class="bar hollow" d="M{x:.1f} {y - 4.6:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6z"/></g>'
        )
    parts.append(
        f'<text class="value s1" x="{WIDTH - 4:g}" y="{y + 4:.1f}" text-anchor="end">{text(told(one, decimals))}</text>'
    )
    return "".join(parts)
