"""Draws the loss over a plane through three models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsilo.analysis.diagnostics.loss_surface import LossSurface, SurfaceModel, loss_surface
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.report.figures.drawing import INK, Diagram, label_of, panels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLATTEST = 0.4  # height over width of a surface whose two axes are drawn to the same scale


def draw(result: LossSurface) -> Figure:
    shape = (result.ys[-1] - result.ys[0]) / (result.xs[-1] - result.xs[0])
    figure, (axes,) = panels_of(1, 7.2, 1.1 + 5.0 * min(max(shape, FLATTEST), 1 / FLATTEST / 2))
    levels, norm = _levels(result)
    losses = np.ma.masked_invalid(np.array(result.losses))
    extend = "max" if float(losses.max()) > levels[-1] else "neither"
    filled = axes.contourf(result.xs, result.ys, losses, levels=levels, norm=norm, cmap="cividis_r", extend=extend)
    axes.contour(result.xs, result.ys, losses, levels=levels, norm=norm, colors="white", linewidths=0.5, alpha=0.7)
    bar = figure.colorbar(filled, ax=axes, format=lambda value, _: f"{value:.3g}")
    bar.set_label(f"loss on the test data of {label_of(result.where, 24)}")
    for model, marker, above in zip(result.models, "*os", (False, False, True), strict=True):
        _marked_model(axes, model, marker, above)
    if FLATTEST < shape < 1 / FLATTEST:
        axes.set_aspect("equal")
    axes.set_xlabel(f"distance from global towards {label_of(result.models[1].name, 24)} (parameter norm)")
    axes.set_ylabel("distance across (parameter norm)")
    return figure


def _marked_model(axes: Axes, model: SurfaceModel, marker: str, above: bool) -> None:
    """A model's place, name and loss; its name on the far side of the triangle, where no other model lies."""
    from matplotlib.patheffects import withStroke

    size = 200 if marker == "*" else 80
    axes.scatter([model.x], [model.y], s=size, marker=marker, color=INK, edgecolors="white", zorder=3)
    said = f"{label_of(model.name, 24)} {model.loss:.3g}"
    offset: dict[str, Any] = {"xytext": (0, 10 if above else -10), "textcoords": "offset points"}
    note = axes.annotate(said, (model.x, model.y), ha="center", va="bottom" if above else "top", zorder=4, **offset)
    note.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _levels(result: LossSurface) -> tuple[np.ndarray, Any]:
    """Steps of the colour scale. It must show the models; where losses explode far outside them it ends."""
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import MaxNLocator

    values = np.array([*(loss for line in result.losses for loss in line), *(model.loss for model in result.models)])
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.array([0.0, 1.0]), Normalize(0, 1)
    low, high = float(finite.min()), float(finite.max())
    usual = max(float(np.median(finite)), *(model.loss for model in result.models if math.isfinite(model.loss)), low)
    high = min(high, usual + 3 * (usual - low)) if usual > low else high
    if low > 0 and high > 30 * low:
        return np.geomspace(low, high, 16), LogNorm(low, high)
    high = high if high > low else low + abs(low) * 1e-3 + 1e-9
    levels = np.array(MaxNLocator(14, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    return levels, Normalize(levels[0], levels[-1])


FIGURE = Diagram(CAPTIONS["loss-surface"], loss_surface, draw)
