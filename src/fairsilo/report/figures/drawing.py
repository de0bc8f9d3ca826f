"""What all drawings share: style, colours, panels, legends, and the way to SVG and PNG.

Drawn through matplotlib's objects alone, so that no window opens and no global state is left; the same numbers give
the same SVG, byte for byte. Colours are those of the report page in daylight.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from fairsilo.analysis.diagnostics.replay import Result
from fairsilo.report.figures.captions import Caption
from fairsilo.report.series import COLOURS, MARKED, MARKS
from fairsilo.report.texts import shorten

if TYPE_CHECKING:  # matplotlib takes half a second to import, and a page only shows what was drawn before
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHERS = "others"  # the silos beyond the eighth, which share one colour
INK, MUTED, RULE, BAR = "#1a1f26", "#59636f", "#dfe3e8", "#d0d6dc"
MARKERS = "<os^DvPX*"  # by colour, as in the charts of the page

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
    """One figure: its caption, how its numbers are found and how they are drawn."""

    caption: Caption
    compute: Callable[..., Result]
    draw: Callable[[Any], Figure]
    of_attention: bool = False  # instead of local models, which the run must have kept


def rendered(name: str, diagram: Diagram, result: Result) -> tuple[str, bytes]:
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = diagram.draw(result)
        figure.draw_without_rendering()  # one pass more: axes of equal scale settle in their layout only then
        drawing, image = io.StringIO(), io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(drawing, format="svg", metadata={**nothing, "Title": diagram.caption.title})
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


def marker_of(colour: int) -> str:
    return MARKERS[colour]


def marks_of(colour: int, count: int) -> dict[str, Any]:
    """The markers of a line with so many points: on all of few, here and there on a long one."""
    every = math.ceil(count / MARKS) if count > MARKED else 1
    return {"marker": marker_of(colour), "markersize": 4.5, "markevery": (every * colour // (COLOURS + 1), every)}


def label_of(name: str, length: int) -> str:
    """A silo's name in a drawing; matplotlib leaves out names that begin with an underscore."""
    shown = shorten("".join(letter if letter.isprintable() else "�" for letter in name), length)
    return f" {shown}" if shown.startswith("_") else shown


def colours_of(names: Sequence[str]) -> dict[str, int]:
    """A colour for each of the first eight; the muted one for the rest."""
    return {name: place + 1 if place < COLOURS else 0 for place, name in enumerate(names)}


def panels_of(count: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False, **options)
    return figure, list(axes.flat)


def handles_by_label(axes: Axes) -> dict[str, Any]:
    """Label -> what is drawn for it; what several artists share is named once."""
    return dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))


def legend_below(figure: Figure, axes: Axes, first: Sequence[str] = ()) -> None:
    """Outside the data, whatever their shape, in as many columns as fit; nothing where there is nothing to name."""
    named = handles_by_label(axes)
    labels = [*first, *(label for label in named if label not in (*first, OTHERS))]
    labels += [OTHERS] if OTHERS in named else []
    if labels:
        handles = [named[label] for label in labels]
        widest = 0.75 + 0.08 * max(map(len, labels))  # inches: the sample of the line, then the letters
        columns = max(1, min(len(labels), int(figure.get_figwidth() / widest)))
        figure.set_figheight(figure.get_figheight() + 0.22 * (math.ceil(len(labels) / columns) - 1))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def over_rounds(axes: Axes, rounds: Collection[int]) -> None:
    """An x axis of whole rounds; a single one stands in the middle."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.grid(axis="y")
    if min(rounds) == max(rounds):
        axes.set_xlim(min(rounds) - 1, max(rounds) + 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def logarithmic(axes: Axes, label: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_yscale("log")
    # the usual labels are formulas, which are switched off
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power_of_ten(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(f"{label}, logarithmic")


def _power_of_ten(value: float) -> str:
    return f"10{str(round(math.log10(value))).translate(RAISED)}"
