"""Compositions of halves as one HTML file: every cell, what the halves contribute, the front, what was chosen."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from pathlib import Path

from fairsilo import __version__
from fairsilo.report.blocks import cells, document, figure, figures, heading, heads, paragraph, section, table
from fairsilo.report.crossed import about, halves, numbers_of, sources_of, titled
from fairsilo.report.forest import Effect, forest_chart, sure_key
from fairsilo.report.heat import heat_table
from fairsilo.report.latex import escaped_latex
from fairsilo.report.scatters import scatter_chart
from fairsilo.report.series import Series
from fairsilo.report.spreadsheet import csv_text
from fairsilo.report.texts import text
from fairsilo.reproduction.crossing import Crossing
from fairsilo.reproduction.measures import MEASURES
from fairsilo.runs.folder import RunFolder

NAME = "crossings"


def write_crossed(crossing: Crossing, folder: Path, choose: int = 0) -> Path:
    """Write page, CSV (every run) and LaTeX (the contributions) into a folder; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    RunFolder(folder).write_text(f"{NAME}.csv", as_csv(crossing))
    RunFolder(folder).write_text(f"{NAME}.tex", as_latex(crossing))
    return RunFolder(folder).write_text(f"{NAME}.html", page(crossing, choose))


def page(crossing: Crossing, choose: int = 0) -> str:
    """The whole document: what the halves contribute first, as that is what one can take away."""
    count = len(crossing.grid.methods)
    title = f"{len(crossing.grid.rows)} × {len(crossing.grid.columns)} halves"
    said = [f"{count} compositions, each run in {crossing.blocks}."]
    said += [f"Not counted: {block} ({why})." for block, why in crossing.blocks.incomplete.items()]
    if len(crossing.looks) == 1:
        said.append("One look at one federation: what is seen here may be chance.")
    body = heading("fairsilo crossings", title, *said)
    body += forests(crossing) + grids(crossing) + ahead(crossing) + (picked(crossing, choose) if choose else "")
    return document(title, body, f"<footer>\n{paragraph(f'fairsilo {__version__}')}</footer>\n")


def forests(crossing: Crossing) -> str:
    """A picture for each answer and kind of half."""
    drawn = []
    for name, title in zip(crossing.answers, titled(crossing), strict=True):
        for kind, found in zip(("rows", "columns"), crossing.contributions[name], strict=True):
            effects = [Effect(half, one.mean, one.margin, sure=one.sure) for half, one in found.items()]
            label = f"{kind}: {title}"
            chart = forest_chart(effects, title=label, x_label="difference to the first, points")
            drawn.append(figure(label, chart, caption=f"{label}."))
    said = [about(crossing), *(sources_of(crossing, name) for name in crossing.answers)]
    pictures = figures(*drawn) + sure_key(crossing.comparisons)
    return section("halves", "What each half contributes", *map(paragraph, said), pictures, _table(crossing))


def _table(crossing: Crossing) -> str:
    rows = [
        f'<tr><th scope="row">{text(half)}</th>{cells([kind, *texts])}</tr>\n' for kind, half, texts in halves(crossing)
    ]
    return table(f'<tr><th scope="col">half</th>{heads(["kind", *titled(crossing)])}</tr>', rows)


def grids(crossing: Crossing) -> str:
    """A heat table for each answer."""
    grid = {"rows": crossing.grid.rows, "columns": crossing.grid.columns}
    drawn = []
    for name, title in zip(crossing.answers, titled(crossing), strict=True):
        means = {method: value / 100 for method, value in crossing.means(name).items()}
        shaded = heat_table(grid, ("", means), None, min if MEASURES[name].higher is False else max)
        drawn.append(f"<h3>{text(title)}</h3>\n{shaded}")
    about = "Bold is the best of its row (R) or of its column (C); the stronger the shade, the better."
    return section("grid", "Every composition", paragraph(about, "quiet"), *drawn)


def ahead(crossing: Crossing) -> str:
    """Who is on the front, with a picture of the first two answers."""
    found, names = crossing.front(), list(crossing.answers)
    rows = [f'<tr><th scope="row">{text(method)}</th>{cells(numbers_of(crossing, method))}</tr>\n' for method in found]
    drawn = ""
    if len(names) > 1:
        x, y = crossing.means(names[0]), crossing.means(names[1])
        others = [(x[name], y[name]) for name in crossing.grid.methods if name not in found]
        series = [Series("other compositions", others, 0)]
        series += [Series(name, [(x[name], y[name])], 1) for name in found]
        labels = [MEASURES[name].title for name in names[:2]]
        x_label, y_label = (f"{label}, %" for label in labels)
        chart = scatter_chart(series, title="The front", x_label=x_label, y_label=y_label, hollow=True)
        said = "Coloured: the front. Hollow, as nothing is tested here. Point at one to see its name."
        drawn = figures(figure("The front", chart, caption=said))
    said = (
        "No other composition is at least as good in all answers and better in one; by means, so chance plays a part."
    )
    head = f'<tr><th scope="col">composition</th>{heads(titled(crossing))}</tr>'
    return section("front", "The front", paragraph(said), drawn, table(head, rows))


def picked(crossing: Crossing, count: int) -> str:
    """What goes on, by validation samples alone."""
    by = ", ".join(MEASURES[name].title for name in crossing.blocks.choosable)
    said = (
        f"By mean rank over held-out domains, seeds and {by}: no test sample had a say. Beside it the results on those."
    )
    rows = [
        f'<tr><th scope="row">{text(name)}</th>{cells([f"{rank:.1f}", *numbers_of(crossing, name)])}</tr>\n'
        for name, rank in crossing.chosen(count).items()
    ]
    head = f'<tr><th scope="col">composition</th>{heads(["mean rank", *titled(crossing)])}</tr>'
    return section("chosen", "Chosen to go on", paragraph(said), table(head, rows))


def as_csv(crossing: Crossing) -> str:
    """Unrounded, a line for each composition, block and answer."""
    found = [
        {"row": row, "column": column, "block": block, "measure": name, "value": float(values[i, j, k])}
        for name, values in crossing.answers.items()
        for i, row in enumerate(crossing.grid.rows)
        for j, column in enumerate(crossing.columns)
        for k, block in enumerate(map(str, crossing.blocks.whole))
    ]
    return csv_text(["row", "column", "block", "measure", "value"], found)


def as_latex(crossing: Crossing) -> str:
    """A booktabs table of what each half contributes."""
    lines = [
        f"% {crossing.blocks}",
        f"% {about(crossing)}",
        rf"\begin{{tabular}}{{ll{'r' * len(crossing.answers)}}}",
        r"\toprule",
        " & half" + "".join(f" & {escaped_latex(MEASURES[name].title)}" for name in crossing.answers) + r" \\",
        r"\midrule",
    ]
    for place, (kind, some) in enumerate(groupby(halves(crossing), key=itemgetter(0))):
        lines += [r"\midrule"] if place else []
        for _, half, texts in some:
            numbers = " & ".join(f"${one.replace(' !', '^{*}')}$" for one in texts)
            lines.append(f"{kind} & {escaped_latex(half)} & {numbers} \\\\".replace("±", r"\pm"))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
