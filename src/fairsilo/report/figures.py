"""The papers' diagnostics as figures: numbers (CSV), drawings (SVG, PNG) and what they show (JSON), one name for all.

Drawn through matplotlib's objects alone, so that no window opens and no global state is left; the same numbers give
the same SVG, byte for byte. Colours are those of the report page in daylight.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml

from fairsilo.analysis import diagnostics
from fairsilo.analysis.diagnostics import Replay
from fairsilo.errors import FairsiloError, nearest
from fairsilo.report.charts import COLOURS, MARKED, emphasised, plain, shorten, spans_decades, usable
from fairsilo.runs.folder import Store

if TYPE_CHECKING:  # matplotlib takes half a second to import, and a page only shows what was drawn before
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHERS = "others"  # the silos beyond the eighth, which share one colour
INK, MUTED, RULE, BAR = "#1a1f26", "#59636f", "#dfe3e8", "#d0d6dc"
MARKERS = "Dos^"  # by colour modulo four, as in the charts of the page
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a drawing does not depend on the machine
    "font.size": 11,
    "text.color": INK,
    "text.parse_math": False,  # silo names are free text
    "axes.titlesize": 11.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": RULE,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "fairsilo",
    "svg.fonttype": "path",  # the page's rules for text must not reach into a drawing
}
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
RESOLUTION = 160  # dots per inch of the PNG


class Diagram(NamedTuple):
    """One figure: what it is called, what it shows, how its numbers are found and how they are drawn."""

    title: str
    about: str
    compute: Callable[..., diagnostics.Result]
    draw: Callable[[Any], Figure]
    of_attention: bool = False  # instead of local models, which the run must have kept


class Drawn(NamedTuple):
    """A figure found in a folder; the drawing can stand in a page as it is."""

    name: str
    title: str
    about: str
    svg: str

    @property
    def wide(self) -> bool:
        """Several panels side by side: it wants the width of the page."""
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)
        return box is not None and float(box[1]) > 2 * float(box[2])


def write_figure(name: str, replay: Replay, folder: Path, **options: Any) -> list[Path]:
    """Compute one figure and write NAME.csv, .svg, .png and .json; `options` go to the diagnostic."""
    if name not in FIGURES:
        raise FairsiloError(f"no figure is named {name!r}{nearest(name, FIGURES)}")
    diagram = FIGURES[name]
    result = diagram.compute(replay, **options)
    rows = result.rows()
    if not rows:
        raise FairsiloError(f"there is nothing to draw for {name}: this run has no models or images that it needs")
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder)
    svg, png = _rendered(name, diagram, result)
    image = folder / f"{name}.png"
    beside = image.with_name(f".{image.name}.part")
    beside.write_bytes(png)
    beside.replace(image)
    return [
        store.write_text(f"{name}.csv", csv_text(rows)),
        store.write_text(f"{name}.svg", svg),
        image,
        store.write_json(f"{name}.json", {"title": diagram.title, "about": diagram.about}),
    ]


def figures_of(replay: Replay) -> list[str]:
    """The names of all figures of a run: of the attention between adapters where it has some, else of local models."""
    return [name for name, diagram in FIGURES.items() if diagram.of_attention == replay.attends]


def options_of(name: str, texts: Sequence[str]) -> dict[str, Any]:
    """Options of a figure's diagnostic from `key=value` texts; unknown ones are refused by name."""
    if name not in FIGURES:
        raise FairsiloError(f"no figure is named {name!r}{nearest(name, FIGURES)}")
    known = [key for key in inspect.signature(FIGURES[name].compute).parameters if key != "replay"]
    if texts and not known:
        raise FairsiloError(f"{name} has no options")
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise FairsiloError(f"{text!r} is no option; write key=value, such as {known[0]}=...")
        if key not in known:
            raise FairsiloError(f"{name} has no option {key!r}{nearest(key, known)}")
        options[key] = yaml.safe_load(value)
    return options


def figures_in(folder: Path) -> list[Drawn]:
    """The figures in a folder, those of `FIGURES` first and in that order."""
    found = []
    for path in folder.glob("*.json"):
        drawing = path.with_suffix(".svg")
        about = _read_about(path) if drawing.exists() else None
        if about:
            svg = drawing.read_text(encoding="utf-8")
            found.append(Drawn(path.stem, about["title"], about["about"], svg[max(svg.find("<svg"), 0) :]))
    known = list(FIGURES)
    return sorted(found, key=lambda item: (known.index(item.name) if item.name in known else len(known), item.name))


def _read_about(path: Path) -> dict[str, str] | None:
    """Title and description, or None for some other JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    fits = isinstance(content, dict) and all(isinstance(content.get(key), str) for key in ("title", "about"))
    return content if fits else None


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# --------------------------------------------------------------------------------------------------- rendering
def _rendered(name: str, diagram: Diagram, result: diagnostics.Result) -> tuple[str, bytes]:
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = diagram.draw(result)
        figure.draw_without_rendering()  # one pass more: axes of equal scale settle in their layout only then
        drawing, image = io.StringIO(), io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(drawing, format="svg", metadata={**nothing, "Title": diagram.title})
        figure.savefig(image, format="png", dpi=RESOLUTION, metadata={"Software": None})
    return _embeddable(name, drawing.getvalue()), image.getvalue()


def _embeddable(name: str, svg: str) -> str:
    """Ready to stand in a page beside others: ids of its own, and no rule that reaches beyond it."""
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'\s*<defs>\s*<style type="text/css">\*\{[^}]*\}</style>\s*</defs>', "", svg)
    return svg.replace("<svg ", '<svg role="img" style="stroke-linejoin: round; stroke-linecap: butt" ', 1)


@cache
def palette() -> tuple[str, ...]:
    """The colours of the page's charts in daylight; the first is the muted one."""
    style = files("fairsilo.report").joinpath("page.css").read_text(encoding="utf-8")
    return tuple(re.findall(r"--series-\d: (#[0-9a-f]{6});", style)[: COLOURS + 1])


def _marker(colour: int) -> str:
    return MARKERS[colour % 4]


def _label(name: str, length: int) -> str:
    """A silo's name in a drawing; matplotlib leaves out names that begin with an underscore."""
    shown = shorten("".join(letter if letter.isprintable() else "�" for letter in name), length)
    return f" {shown}" if shown.startswith("_") else shown


def _colours(names: Sequence[str]) -> dict[str, int]:
    """A colour for each of the first eight; the muted one for the rest."""
    return {name: place + 1 if place < COLOURS else 0 for place, name in enumerate(names)}


def _panels(count: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **options)
    return figure, list(axes.flat)


def _named(axes: Axes) -> dict[str, Any]:
    """Label -> what is drawn for it; what several artists share is named once."""
    return dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))


def _legend_below(figure: Figure, axes: Axes, first: Sequence[str] = ()) -> None:
    """Outside the data, whatever their shape, in as many columns as fit; nothing where there is nothing to name."""
    named = _named(axes)
    labels = [*first, *(label for label in named if label not in (*first, OTHERS))]
    labels += [OTHERS] if OTHERS in named else []
    if labels:
        handles = [named[label] for label in labels]
        widest = 0.75 + 0.08 * max(map(len, labels))  # inches: the sample of the line, then the letters
        columns = max(1, min(len(labels), int(figure.get_figwidth() / widest)))
        figure.set_figheight(figure.get_figheight() + 0.22 * (math.ceil(len(labels) / columns) - 1))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _over_rounds(axes: Axes, rounds: Collection[int]) -> None:
    """An x axis of whole rounds; a single one stands in the middle."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.grid(axis="y")
    if min(rounds) == max(rounds):
        axes.set_xlim(min(rounds) - 1, max(rounds) + 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _logarithmic(axes: Axes, label: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_yscale("log")
    # the usual labels are formulas, which are switched off
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power_of_ten(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(f"{label}, logarithmic")


def _power_of_ten(value: float) -> str:
    return f"10{str(round(math.log10(value))).translate(RAISED)}"


# ---------------------------------------------------------------------------------------------- the seven drawings
def draw_gap_variance(result: diagnostics.GapVariance) -> Figure:
    figure, (axes,) = _panels(1, 7.2, 4.2)
    values = [item.variance for item in result.found]
    label = "variance of the gaps (loss²)"
    if spans_decades(values):
        _logarithmic(axes, label)
    else:
        axes.set_ylabel(label)
        axes.set_ylim(0, 1.06 * max((value for value in values if usable(value)), default=1.0) or 1.0)
    for colour, rule in zip((8, 2, 1), diagnostics.RULES, strict=True):
        points = result.curve(rule)
        marker = _marker(colour) if len(points) <= MARKED else ""
        axes.plot(*zip(*points, strict=True), color=palette()[colour], marker=marker, markersize=4.5, label=rule)
    _over_rounds(axes, {item.round for item in result.found})
    _legend_below(figure, axes)
    return figure


def draw_weight_gap(result: diagnostics.WeightGap) -> Figure:
    figure, (axes,) = _panels(1, 7.2, 4.8)
    axes.axhline(0, color=RULE, linewidth=1)
    axes.axvline(0, color=RULE, linewidth=1)
    colours = _colours(list(result.by_silo))
    for silo, line in result.by_silo.items():
        points = [(item.weight_change, item.gap_change) for item in result.changes if item.silo == silo]
        if points:
            _scattered_line(axes, silo, points, line, colours[silo])
    axes.set_xlabel("change of the silo's aggregation weight Δa")
    axes.set_ylabel("change of its generalisation gap ΔG (loss)")
    _legend_below(figure, axes)
    return figure


def _scattered_line(
    axes: Axes, silo: str, points: Sequence[tuple[float, float]], line: diagnostics.Trend, colour: int
) -> None:
    across, up = zip(*points, strict=True)
    label = f"{_label(silo, 24)}: slope {plain(line.slope)}, ρ {plain(line.pearson)}" if colour else OTHERS
    style: dict[str, Any] = {"color": palette()[colour], "marker": _marker(colour), "label": label}
    axes.scatter(across, up, s=20, alpha=0.8, linewidths=0, **style)
    if line.slope is not None and line.intercept is not None:
        ends = np.array([min(across), max(across)])
        axes.plot(ends, line.slope * ends + line.intercept, color=palette()[colour], linewidth=1.2)


def draw_a_distance(result: diagnostics.ADistances) -> Figure:
    figure, (axes,) = _panels(1, 7.2, 4.2)
    lines: dict[str, list[tuple[float, float | None]]] = {}
    for item in result.found:
        lines.setdefault(item.silo, []).append((item.round, item.distance))
    for line in sorted(emphasised(lines), key=lambda line: line.colour > 0):  # the muted ones lie underneath
        points = [(x, math.nan if y is None else y) for x, y in line.points]
        marker = _marker(line.colour) if line.colour and len(points) <= MARKED else ""
        label = _label(line.name, 30) if line.colour else OTHERS
        style: dict[str, Any] = {"color": palette()[line.colour], "linewidth": 1.6 if line.colour else 0.8}
        axes.plot(*zip(*points, strict=True), marker=marker, markersize=4.5, label=label, **style)
    axes.set_ylim(-0.05, 2.05)
    axes.set_yticks([0, 0.5, 1, 1.5, 2], ["0 (alike)", "0.5", "1", "1.5", "2 (apart)"])
    axes.set_ylabel("proxy A-distance, global to local")
    _over_rounds(axes, {item.round for item in result.found})
    _legend_below(figure, axes)
    return figure


def draw_t_sne(result: diagnostics.Embedding) -> Figure:
    unseen = any(point.unseen for point in result.points)
    panels = [_panel_in_and_out, _panel_at_home, _panel_outside] if unseen else [_panel_at_home]
    figure, found = _panels(len(panels), 4.1 * len(panels) + 0.4, 4.9, sharex=True, sharey=True)
    for axes, panel in zip(found, panels, strict=True):
        panel(axes, result.points)
        axes.set_aspect("equal", adjustable="box")
        axes.set_xticks([])
        axes.set_yticks([])
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
        axes.set_xlabel("t-SNE 1 (no unit)")
        named = _named(axes)
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


Points = Sequence[diagnostics.EmbeddedPoint]


def _dots(axes: Axes, points: Points, colour: int, label: str | None, hollow: bool = False) -> None:
    """Hollow marks are the global model's where both kinds are shown, so that one can see through them."""
    shade = palette()[colour]
    style: dict[str, Any] = {"facecolors": "none", "edgecolors": shade, "linewidths": 1.0}
    style = style if hollow else {"color": shade, "linewidths": 0, "alpha": 0.75}
    places = [(point.x, point.y) for point in points]
    if places:
        across, up = zip(*places, strict=True)
        axes.scatter(across, up, s=18, marker=_marker(colour), label=label, **style)


def _panel_in_and_out(axes: Axes, points: Points) -> None:
    axes.set_title("global model", loc="left")
    shared = [point for point in points if point.model == diagnostics.GLOBAL]
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
    colours = _colours(list(dict.fromkeys(point.model for point in points if point.model != diagnostics.GLOBAL)))
    shared = [point for point in points if point.model == diagnostics.GLOBAL]
    for silo in dict.fromkeys(point.silo for point in shared):
        _dots(axes, [point for point in shared if point.silo == silo], colours.get(silo, 8), None, hollow=True)
    for model, colour in colours.items():
        label = _label(model, 18) if colour else OTHERS
        _dots(axes, [point for point in points if point.model == model], colour, label)


def draw_loss_surface(result: diagnostics.LossSurface) -> Figure:
    shape = (result.ys[-1] - result.ys[0]) / (result.xs[-1] - result.xs[0])
    figure, (axes,) = _panels(1, 7.2, 1.1 + 5.0 * min(max(shape, FLATTEST), 1 / FLATTEST / 2))
    levels, norm = _levels(result)
    losses = np.ma.masked_invalid(np.array(result.losses))
    extend = "max" if float(losses.max()) > levels[-1] else "neither"
    filled = axes.contourf(result.xs, result.ys, losses, levels=levels, norm=norm, cmap="cividis_r", extend=extend)
    axes.contour(result.xs, result.ys, losses, levels=levels, norm=norm, colors="white", linewidths=0.5, alpha=0.7)
    bar = figure.colorbar(filled, ax=axes, format=lambda value, _: f"{value:.3g}")
    bar.set_label(f"loss on the test data of {_label(result.where, 24)}")
    for model, marker, above in zip(result.models, "*os", (False, False, True), strict=True):
        _marked_model(axes, model, marker, above)
    if FLATTEST < shape < 1 / FLATTEST:
        axes.set_aspect("equal")
    axes.set_xlabel(f"distance from global towards {_label(result.models[1].name, 24)} (parameter norm)")
    axes.set_ylabel("distance across (parameter norm)")
    return figure


FLATTEST = 0.4  # height over width of a surface whose two axes are drawn to the same scale


def _marked_model(axes: Axes, model: diagnostics.SurfaceModel, marker: str, above: bool) -> None:
    """A model's place, name and loss; its name on the far side of the triangle, where no other model lies."""
    from matplotlib.patheffects import withStroke

    size = 200 if marker == "*" else 80
    axes.scatter([model.x], [model.y], s=size, marker=marker, color=INK, edgecolors="white", zorder=3)
    said = f"{_label(model.name, 24)} {model.loss:.3g}"
    offset: dict[str, Any] = {"xytext": (0, 10 if above else -10), "textcoords": "offset points"}
    note = axes.annotate(said, (model.x, model.y), ha="center", va="bottom" if above else "top", zorder=4, **offset)
    note.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _levels(result: diagnostics.LossSurface) -> tuple[np.ndarray, Any]:
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


def draw_update_consistency(result: diagnostics.UpdateConsistency) -> Figure:
    windows = list(dict.fromkeys(item.window for item in result.found))
    figure, panels = _panels(len(windows), max(3.4 * len(windows) + 0.8, 5.6), 4.2, sharey=True)
    colours = _colours(list(dict.fromkeys(item.silo for item in result.found)))
    for axes, window in zip(panels, windows, strict=True):
        _consistency_panel(axes, [item for item in result.found if item.window == window], colours)
        axes.set_title(window, loc="left")
        axes.set_xlabel("share of rounds in one direction (%)")
    panels[0].set_ylabel(f"share of parameters (%)\nof {_label(result.found[0].tensor, 30)}")
    _legend_below(figure, panels[0], first=("mean over silos", "by chance"))
    return figure


def _consistency_panel(axes: Axes, found: Sequence[diagnostics.Consistency], colours: Mapping[str, int]) -> None:
    """Bars: the mean over silos. Marks: each silo. Dashes: coins instead of training."""
    edges = [round(100 * edge) for edge in diagnostics.EDGES]
    places = np.arange(len(edges) - 1)
    means = 100 * np.mean([item.shares for item in found], axis=0)
    chances = 100 * np.mean([item.shares_by_chance for item in found], axis=0)
    axes.bar(places, means, width=0.8, color=BAR, label="mean over silos")
    axes.hlines(chances, places - 0.4, places + 0.4, color=INK, linestyle=(0, (3, 2)), linewidth=1.4, label="by chance")
    for item, shift in zip(found, _spread(len(found)), strict=True):
        colour = colours[item.silo]
        label = _label(item.silo, 18) if colour else OTHERS
        style: dict[str, Any] = {"color": palette()[colour], "marker": _marker(colour), "label": label}
        axes.scatter(places + shift, [100 * share for share in item.shares], s=22, zorder=3, clip_on=False, **style)
    axes.set_xticks(places, [f"{low}–{high}" for low, high in pairwise(edges)])
    axes.grid(axis="y")


def _spread(count: int) -> Iterator[float]:
    """Places side by side within a bar."""
    return iter(np.linspace(-0.28, 0.28, count) if count > 1 else [0.0])


LEGIBLE = 6  # percent of the width in which a number can be read


def draw_attention(result: diagnostics.Attention) -> Figure:
    count = len(result.found)
    figure, (axes,) = _panels(1, 7.2, max(4.2, 1.4 + 0.42 * count))
    places, ends = np.arange(count), np.zeros(count)
    for silo, colour in _colours(list(result.found[0].by_silo)).items():
        shares = np.array([100 * item.by_silo[silo] for item in result.found])
        style: dict[str, Any] = {"color": palette()[colour], "edgecolor": "white", "height": 0.75}
        bars = axes.barh(places, shares, left=ends, label=_label(silo, 24) if colour else OTHERS, **style)
        said = [f"{share:.1f}" if share >= LEGIBLE else "" for share in shares]
        axes.bar_label(bars, said, label_type="center", color="white" if colour else INK, fontsize=9.5)
        ends += shares
    axes.set_yticks(places, [_label(item.domain, 24) + (" (unseen)" if item.unseen else "") for item in result.found])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("mean attention to each silo's adapter (%)")
    _legend_below(figure, axes)
    return figure


FIGURES: dict[str, Diagram] = {
    "gap-variance": Diagram(
        "How unequal the generalisation gaps are",
        "Population variance over silos of the gap between the loss of the aggregated and of the silo's own model on "
        "its validation data, for three ways to aggregate the same local models (FFT-GP, Fig. 6; its equation 6 is "
        "2 M² times this).",
        diagnostics.gap_variance,
        draw_gap_variance,
    ),
    "weight-gap": Diagram(
        "How a silo's gap answers to its weight",
        "Change of a silo's generalisation gap against the change of its aggregation weight when GA perturbs the "
        "weights of the same local models, one mark per round, with the least-squares line and Pearson's ρ of each "
        "silo (FFT-GP, Fig. 2).",
        diagnostics.weight_against_gap,
        draw_weight_gap,
    ),
    "a-distance": Diagram(
        "How far local features move away from global ones",
        "Proxy A-distance 2 (1 − 2 error) of a linear classifier that tells the features of the global model the silo "
        "was sent from those of its trained model, on the silo's own data (GRACE, Fig. 2a).",
        diagnostics.a_distances,
        draw_a_distance,
    ),
    "t-sne": Diagram(
        "Features in and out of domain",
        "One t-SNE map of the features of the global model and of each local model, on the data of the silos and of "
        "the unseen domain (FFT-GP, Fig. 7; GRACE, Fig. 2b).",
        diagnostics.embedding,
        draw_t_sne,
    ),
    "loss-surface": Diagram(
        "The loss between the global and two local models",
        "Loss on the unseen domain over the plane through the global model and the local models of two silos; the "
        "numbers are the losses of these three (FFT-GP, Fig. 5).",
        diagnostics.loss_surface,
        draw_loss_surface,
    ),
    "update-consistency": Diagram(
        "How steadily silos push parameters one way",
        "Share of the parameters of one tensor by how consistently a silo's training raised or lowered them over "
        "rounds, beside what coin tosses would give (FedHEAL, Fig. 2).",
        diagnostics.update_consistency,
        draw_update_consistency,
    ),
    "attention": Diagram(
        "Whose adapters answer for each domain",
        "Attention between the silos' adapters when all of them answer, as they do for an unseen domain: the mean over "
        "the test images of each domain (FedAG, Fig. 6, which shows single images).",
        diagnostics.attention,
        draw_attention,
        of_attention=True,
    ),
}
