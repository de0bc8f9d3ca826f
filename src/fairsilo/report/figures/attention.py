"""Draws whose adapters answer for each domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsilo.analysis.diagnostics.attention import Attention, attention
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.report.figures.drawing import INK, OTHERS, Diagram, colours_of, label_of, legend_below, palette, panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEGIBLE = 6  # percent of the width in which a number can be read


def draw(result: Attention) -> Figure:
    count = len(result.found)
    figure, (axes,) = panels_of(1, 7.2, max(4.2, 1.4 + 0.42 * count))
    places, ends = np.arange(count), np.zeros(count)
    for silo, colour in colours_of(list(result.found[0].by_silo)).items():
        shares = np.array([100 * item.by_silo[silo] for item in result.found])
        style: dict[str, Any] = {"color": palette()[colour], "edgecolor": "white", "height": 0.75}
        bars = axes.barh(places, shares, left=ends, label=label_of(silo, 24) if colour else OTHERS, **style)
        said = [f"{share:.1f}" if share >= LEGIBLE else "" for share in shares]
        axes.bar_label(bars, said, label_type="center", color="white" if colour else INK, fontsize=9.5)
        ends += shares
    axes.set_yticks(places, [label_of(item.domain, 24) + (" (unseen)" if item.unseen else "") for item in result.found])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("mean attention to each silo's adapter (%)")
    legend_below(figure, axes)
    return figure


FIGURE = Diagram(CAPTIONS["attention"], attention, draw, of_attention=True)
