"""Draws how unequal the generalisation gaps are, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsilo.analysis.diagnostics.gap_variance import RULES, GapVariance, gap_variance
from fairsilo.report.axes import spans_decades
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.report.figures.drawing import (
    Diagram,
    legend_below,
    logarithmic,
    marks_of,
    over_rounds,
    palette,
    panels_of,
)
from fairsilo.report.texts import usable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: GapVariance) -> Figure:
    figure, (axes,) = panels_of(1, 7.2, 4.2)
    values = [item.variance for item in result.found]
    label = "variance of the gaps (loss²)"
    if spans_decades(values):
        logarithmic(axes, label)
    else:
        axes.set_ylabel(label)
        axes.set_ylim(0, 1.06 * max((value for value in values if usable(value)), default=1.0) or 1.0)
    for colour, rule in zip((8, 2, 1), RULES, strict=True):
        points = result.curve(rule)
        marks = marks_of(colour, len(points))
        axes.plot(*zip(*points, strict=True), color=palette()[colour], label=rule, **marks)
    over_rounds(axes, {item.round for item in result.found})
    legend_below(figure, axes)
    return figure


FIGURE = Diagram(CAPTIONS["gap-variance"], gap_variance, draw)
