"""Draws how steadily silos push parameters one way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsilo.analysis.diagnostics.update_consistency import EDGES, Consistency, UpdateConsistency, update_consistency
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.report.figures.drawing import (
    BAR,
    INK,
    OTHERS,
    Diagram,
    colours_of,
    label_of,
    legend_below,
    marker_of,
    palette,
    panels_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(result: UpdateConsistency) -> Figure:
    windows = list(dict.fromkeys(item.window for item in result.found))
    figure, panels = panels_of(len(windows), max(3.4 * len(windows) + 0.8, 5.6), 4.2, sharey=True)
    colours = colours_of(list(dict.fromkeys(item.silo for item in result.found)))
    for axes, window in zip(panels, windows, strict=True):
        _consistency_panel(axes, [item for item in result.found if item.window == window], colours)
        axes.set_title(window, loc="left")
        axes.set_xlabel("share of rounds in one direction (%)")
    panels[0].set_ylabel(f"share of parameters (%)\nof {label_of(result.found[0].tensor, 30)}")
    legend_below(figure, panels[0], first=("mean over silos", "by chance"))
    return figure


def _consistency_panel(axes: Axes, found: Sequence[Consistency], colours: Mapping[str, int]) -> None:
    """Bars: the mean over silos. Marks: each silo. Dashes: coins instead of training."""
    edges = [round(100 * edge) for edge in EDGES]
    places = np.arange(len(edges) - 1)
    means = 100 * np.mean([item.shares for item in found], axis=0)
    chances = 100 * np.mean([item.shares_by_chance for item in found], axis=0)
    axes.bar(places, means, width=0.8, color=BAR, label="mean over silos")
    axes.hlines(chances, places - 0.4, places + 0.4, color=INK, linestyle=(0, (3, 2)), linewidth=1.4, label="by chance")
    for item, shift in zip(found, _spread(len(found)), strict=True):
        colour = colours[item.silo]
        label = label_of(item.silo, 18) if colour else OTHERS
        style: dict[str, Any] = {"color": palette()[colour], "marker": marker_of(colour), "label": label}
        axes.scatter(places + shift, [100 * share for share in item.shares], s=22, zorder=3, clip_on=False, **style)
    axes.set_xticks(places, [f"{low}–{high}" for low, high in pairwise(edges)])
    axes.grid(axis="y")


def _spread(count: int) -> Iterator[float]:
    """Places side by side within a bar."""
    return iter(np.linspace(-0.28, 0.28, count) if count > 1 else [0.0])


FIGURE = Diagram(CAPTIONS["update-consistency"], update_consistency, draw)
