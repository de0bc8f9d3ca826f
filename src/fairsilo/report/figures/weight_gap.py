"""Draws the change of a silo's gap against the change of its weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsilo.analysis.diagnostics.weight_gap import Trend, WeightGap, weight_gap
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.report.figures.drawing import (
    OTHERS,
    RULE,
    Diagram,
    colours_of,
    label_of,
    legend_below,
    marker_of,
    palette,
    panels_of,
)
from fairsilo.report.texts import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(result: WeightGap) -> Figure:
    figure, (axes,) = panels_of(1, 7.2, 4.8)
    axes.axhline(0, color=RULE, linewidth=1)
    axes.axvline(0, color=RULE, linewidth=1)
    colours = colours_of(list(result.by_silo))
    for silo, line in result.by_silo.items():
        points = [(item.weight_change, item.gap_change) for item in result.changes if item.silo == silo]
        if points:
            _scattered_line(axes, silo, points, line, colours[silo])
    axes.set_xlabel("change of the silo's aggregation weight Δa")
    axes.set_ylabel("change of its generalisation gap ΔG (loss)")
    legend_below(figure, axes)
    return figure


def _scattered_line(axes: Axes, silo: str, points: Sequence[tuple[float, float]], line: Trend, colour: int) -> None:
    across, up = zip(*points, strict=True)
    label = f"{label_of(silo, 24)}: slope {plain(line.slope)}, ρ {plain(line.pearson)}" if colour else OTHERS
    style: dict[str, Any] = {"color": palette()[colour], "marker": marker_of(colour), "label": label}
    axes.scatter(across, up, s=20, alpha=0.8, linewidths=0, **style)
    if line.slope is not None and line.intercept is not None:
        ends = np.array([min(across), max(across)])
        axes.plot(ends, line.slope * ends + line.intercept, color=palette()[colour], linewidth=1.2)


FIGURE = Diagram(CAPTIONS["weight-gap"], weight_gap, draw)
