"""A table of a paper with our numbers: one HTML file, and the same as CSV and LaTeX."""

from __future__ import annotations

from pathlib import Path

from fairsilo import __version__
from fairsilo.report.blocks import cells as numbers
from fairsilo.report.blocks import document, figure, figures, heading, heads, panel, paragraph, section, table
from fairsilo.report.forest import Effect, forest_chart, sure_key
from fairsilo.report.latex import escaped_latex
from fairsilo.report.reproduced import NOTHING, cells, estimated, in_words, number, shown, titles
from fairsilo.report.spreadsheet import csv_text
from fairsilo.report.texts import text
from fairsilo.reproduction.measures import MEASURES
from fairsilo.reproduction.standing import Standing
from fairsilo.runs.folder import RunFolder

NAME = "reproduced"


def write_reproduced(standing: Standing, folder: Path, notes: tuple[str, ...] = ()) -> Path:
    """Write page, CSV and LaTeX into a folder; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    RunFolder(folder).write_text(f"{NAME}.csv", as_csv(standing))
    RunFolder(folder).write_text(f"{NAME}.tex", as_latex(standing))
    return RunFolder(folder).write_text(f"{NAME}.html", page(standing, notes))


def page(standing: Standing, notes: tuple[str, ...] = ()) -> str:
    """The whole document: a picture of the differences, then the numbers."""
    made = standing.table
    said = (
        "A difference to the first row is paired by held-out domain and seed, each domain counting once; its interval "
        "(95 %) is over seeds, each by itself; what is called sure is corrected for all of them (Holm). Of one seed "
        "there is no interval, and nothing is claimed."
    )
    top = heading("fairsilo reproduce", made.name, made.of)
    differs = [f"Differs from the paper: {one}." for one in made.differs]
    body = top + panel(*differs, *notes) + forests(standing)
    body += section("numbers", "Numbers", paragraph(said), rows(standing), words(standing))
    return document(made.name, body, f"<footer>\n{paragraph(f'fairsilo {__version__}')}</footer>\n")


def words(standing: Standing) -> str:
    """Every difference as a sentence, folded away."""
    lines = "".join(f"<li>{text(one)}</li>" for one in in_words(standing))
    return f"<details><summary>In words</summary>\n<ul>{lines}</ul>\n</details>\n" if lines else ""


def effects(standing: Standing, measure: str) -> list[Effect]:
    """The rows with a difference to the first, ours or the paper's."""
    found = [(row.method, row.found[measure]) for row in standing.rows[1:]]
    return [
        Effect(name, one.gain.mean, one.gain.margin, one.paper_gain, standing.sure(name, measure))
        for name, one in found
        if one.gain is not None
    ]


def forests(standing: Standing) -> str:
    """One picture for each measure: ours with its interval, the paper's as a diamond."""
    first, drawn = standing.rows[0].method, []
    for name in standing.table.measures:
        found, measure = effects(standing, name), MEASURES[name]
        if found:
            label = f"{measure.title}, minus {first}; {measure.better}"
            drawing = forest_chart(found, title=label, x_label="difference", decimals=measure.decimals)
            diamonds = " Diamonds: the paper's differences." if any(one.other is not None for one in found) else ""
            drawn.append(figure(measure.title, drawing, caption=f"{label}.{diamonds}"))
    pictures = figures(*drawn) + sure_key(standing.comparisons)
    return section("differences", f"Differences to {first}", pictures) if drawn else ""


def rows(standing: Standing) -> str:
    columns, lines = ["runs", *titles(standing)], []
    for row in filter(shown, standing.rows):
        found = [f"{row.runs} of {row.wanted}", *(one for some in cells(row) for one in some.shown(standing))]
        lines.append(f'<tr><th scope="row">{text(row.method)}</th>{numbers(found)}</tr>\n')
    return table(f'<tr><th scope="col">method</th>{heads(columns)}</tr>', lines)


def as_csv(standing: Standing) -> str:
    """Unrounded, a line for each row and measure."""
    columns = ["method", "measure", "runs", "wanted", "ours", "paper", "gain", "margin", "paper_gain"]
    columns += ["tuned", "tuned_gain", "tuned_margin"]
    lines = [
        {
            "method": row.method,
            "measure": name,
            "runs": row.runs,
            "wanted": row.wanted,
            "ours": one.ours and one.ours.mean,
            "paper": one.paper,
            "gain": one.gain and one.gain.mean,
            "margin": one.gain and one.gain.margin,
            "paper_gain": one.paper_gain,
            "tuned": one.tuned and one.tuned.mean,
            "tuned_gain": one.tuned_gain and one.tuned_gain.mean,
            "tuned_margin": one.tuned_gain and one.tuned_gain.margin,
        }
        for row in standing.rows
        for name, one in row.found.items()
        if shown(row)
    ]
    return csv_text(columns, lines)


def as_latex(standing: Standing) -> str:
    """A booktabs table: our number, the paper's, and our difference to the first row with its interval."""
    names, searched = standing.table.measures, standing.searched
    wide = 4 if searched else 3
    groups = " & ".join(rf"\multicolumn{{{wide}}}{{c}}{{{escaped_latex(MEASURES[name].title)}}}" for name in names)
    lines = [
        f"% {standing.table.name}: {standing.table.of}",
        f"% difference to {standing.rows[0].method}, paired, with its 95 % interval",
        rf"\begin{{tabular}}{{l{'r' * wide * len(names)}}}",
        r"\toprule",
        rf" & {groups} \\",
        "Method" + f" & ours & paper & difference{' & tuned alike' if searched else ''}" * len(names) + r" \\",
        r"\midrule",
    ]
    for row in filter(shown, standing.rows):
        texts = []
        for name in names:
            one, places = row.found[name], MEASURES[name].decimals
            gain = NOTHING if one.gain is None else number(one.gain.mean, places, sign=True)
            margin = "" if one.gain is None or one.gain.margin is None else rf" \pm {one.gain.margin:.{places}f}"
            ours = number(one.ours and one.ours.mean, places)
            texts += [ours, number(one.paper, places), f"${gain}{margin}$" if one.gain else gain]
            texts += [estimated(one.tuned, places)] if searched else []
        lines.append(f"{escaped_latex(row.method)} & {' & '.join(texts)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
