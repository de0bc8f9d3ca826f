"""Draws a t-SNE map of features, in and out of domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsilo.analysis.diagnostics.replay import GLOBAL
from fairsilo.analysis.diagnostics.t_sne import EmbeddedPoint, Embedding, t_sne
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.report.figures.drawing import (
    OTHERS,
    Diagram,
    colours_of,
    handles_by_label,
    label_of,
    marker_of,
    palette,
    panels_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[EmbeddedPoint]


def draw(result: Embedding) -> Figure:
    unseen = any(point.unseen for point in result.points)
    panels = [_panel_in_and_out, _panel_at_home, _panel_outside] if unseen else [_panel_at_home]
    figure, found = panels_of(len(panels), 4.1 * len(panels) + 0.4, 4.9, sharex=True, sharey=True)
    for axes, panel in zip(found, panels, strict=True):
        panel(axes, result.points)
        axes.set_aspect("equal", adjustable="box")
        axes.set_xticks([])
        axes.set_yticks([])
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
        axes.set_xlabel("t-SNE 1 (no unit)")
        named = handles_by_label(axes)
        place: dict[str, Any] = {
            "loc": "upper center",
            "bbox_to_anchor": (0.5, -0.08),
            "ncols": 2 if len(named) > 2 else 1,
        }
        axes.legend(named.values(), named.keys(), handletextpad=0.2, columnspacing=1, **place)
    found[0].set_ylabel("t-SNE 2 (no unit)")
    across, up = _square([(point.x, point.y) for point in result.points])
    found[0].set(xlim=across, ylim=up)
    return figure


def _square(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Limits of both axes, of one length, that hold all points."""
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    half = 0.53 * float((high - low).max())
    return [(float(middle) - half, float(middle) + half) for middle in (low + high) / 2]


def _dots(axes: Axes, points: Points, colour: int, label: str | None, hollow: bool = False) -> None:
    """Hollow marks are the global model's where both kinds are shown, so that one can see through them."""
    shade = palette()[colour]
    style: dict[str, Any] = {"facecolors": "none", "edgecolors": shade, "linewidths": 1.0}
    style = style if hollow else {"color": shade, "linewidths": 0, "alpha": 0.75}
    places = [(point.x, point.y) for point in points]
    if places:
        across, up = zip(*places, strict=True)
        axes.scatter(across, up, s=18, marker=marker_of(colour), label=label, **style)


def _panel_in_and_out(axes: Axes, points: Points) -> None:
    axes.set_title("global model", loc="left")
    shared = [point for point in points if point.model == GLOBAL]
    _dots(axes, [point for point in shared if not point.unseen], 1, "data of the silos")
    _dots(axes, [point for point in shared if point.unseen], 2, "unseen domain")


def _panel_at_home(axes: Axes, points: Points) -> None:
    axes.set_title("data of the silos: global hollow, local filled", loc="left")
    _by_model(axes, [point for point in points if not point.unseen])


def _panel_outside(axes: Axes, points: Points) -> None:
    axes.set_title("unseen domain: global hollow, local filled", loc="left")
    _by_model(axes, [point for point in points if point.unseen])


def _by_model(axes: Axes, points: Points) -> None:
    """Local models by colour. At home the global model's marks have the colour of the data, elsewhere that of ink."""
    colours = colours_of(list(dict.fromkeys(point.model for point in points if point.model != GLOBAL)))
    shared = [point for point in points if point.model == GLOBAL]
    for silo in dict.fromkeys(point.silo for point in shared):
        _dots(axes, [point for point in shared if point.silo == silo], colours.get(silo, 8), None, hollow=True)
    for model, colour in colours.items():
        label = label_of(model, 18) if colour else OTHERS
        _dots(axes, [point for point in points if point.model == model], colour, label)


FIGURE = Diagram(CAPTIONS["t-sne"], t_sne, draw)
