"""Draws the A-distance of global to local features, round by round."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fairsilo.analysis.diagnostics.a_distance import ADistances, a_distance
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.report.figures.drawing import (
    OTHERS,
    Diagram,
    label_of,
    legend_below,
    marks_of,
    over_rounds,
    palette,
    panels_of,
)
from fairsilo.report.series import emphasised

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: ADistances) -> Figure:
    figure, (axes,) = panels_of(1, 7.2, 4.2)
    lines: dict[str, list[tuple[float, float | None]]] = {}
    for item in result.found:
        lines.setdefault(item.silo, []).append((item.round, item.distance))
    for line in sorted(emphasised(lines), key=lambda line: line.colour > 0):  # the muted ones lie underneath
        points = [(x, math.nan if y is None else y) for x, y in line.points]
        label = label_of(line.name, 30) if line.colour else OTHERS
        style: dict[str, Any] = {"color": palette()[line.colour], "linewidth": 1.6 if line.colour else 0.8}
        style |= marks_of(line.colour, len(points)) if line.colour else {}
        axes.plot(*zip(*points, strict=True), label=label, **style)
    axes.set_ylim(-0.05, 2.05)
    axes.set_yticks([0, 0.5, 1, 1.5, 2], ["0 (alike)", "0.5", "1", "1.5", "2 (apart)"])
    axes.set_ylabel("proxy A-distance, global to local")
    over_rounds(axes, {item.round for item in result.found})
    legend_below(figure, axes)
    return figure


FIGURE = Diagram(CAPTIONS["a-distance"], a_distance, draw)
