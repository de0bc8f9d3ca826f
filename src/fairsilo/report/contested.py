"""Methods on several federations side by side: for the terminal, and as a page with its numbers as CSV."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.table import Table as Drawn

from fairsilo import __version__
from fairsilo.analysis.paired import SURE
from fairsilo.report.blocks import cells, document, figure, figures, heading, heads, paragraph, section, table
from fairsilo.report.crossed import FRONT, contributed
from fairsilo.report.forest import Effect, forest_chart, sure_key
from fairsilo.report.spreadsheet import csv_text
from fairsilo.report.texts import text
from fairsilo.reproduction.contest import Contest
from fairsilo.reproduction.measures import MEASURES
from fairsilo.runs.folder import RunFolder

NAME = "contest"


def about(contest: Contest) -> str:
    """What the numbers are."""
    several, judged = len(contest.federations), ", ".join(MEASURES[name].title for name in contest.blocks.judged)
    over = f"Means are over {several} federations, each of which counts once. " if several > 1 else ""
    return (
        f"{over}Behind a mean stands the difference to {contest.reference}, paired by held-out domain and seed, with "
        f"its margin (95 %) over seeds where there are several; ! marks what chance would hardly give (p < {SURE:g}, "
        "corrected for all methods and answers by Holm). What is said holds for these federations, which are no sample "
        "of others. "
        f"{FRONT} is on the front: nobody is at least as good in all of {judged} and better in one."
    )


def shown(contest: Contest, method: str, measure: str) -> str:
    """The mean, and the difference to the reference."""
    places = MEASURES[measure].decimals
    mean = f"{contest.means(measure)[method]:.{places}f}"
    if method == contest.reference:
        return mean
    return f"{mean} ({contributed(contest.differences[measure][method], places)})"


def ordered(contest: Contest) -> list[str]:
    """The best mean rank first."""
    return sorted(contest.ranks, key=lambda method: contest.ranks[method])


def contest_table(contest: Contest) -> Drawn:
    drawn = Drawn(
        title=f"{len(contest.blocks.methods)} methods, against {escape(contest.reference)}", title_justify="left"
    )
    drawn.add_column("method", overflow="fold")
    drawn.add_column("mean rank", justify="right")
    for name in contest.blocks.answers:
        drawn.add_column(f"{MEASURES[name].title} ({MEASURES[name].better})", justify="right")
    ahead = set(contest.front())
    for method in ordered(contest):
        numbers = [shown(contest, method, name) for name in contest.blocks.answers]
        drawn.add_row(escape(method) + FRONT * (method in ahead), f"{contest.ranks[method]:.1f}", *numbers)
    drawn.caption, drawn.caption_justify = about(contest), "left"
    return drawn


def write_contest(contest: Contest, folder: Path) -> Path:
    """Write page and CSV into a folder; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    RunFolder(folder).write_text(f"{NAME}.csv", as_csv(contest))
    return RunFolder(folder).write_text(f"{NAME}.html", page(contest))


def page(contest: Contest) -> str:
    """The whole document: pictures of the differences, then the numbers."""
    title = f"{len(contest.blocks.methods)} methods on {', '.join(contest.federations)}"
    said = [about(contest), *(f"Not counted: {block} ({why})." for block, why in contest.blocks.incomplete.items())]
    body = heading("fairsilo contest", title, *said)
    drawn = []
    for name, found in contest.differences.items():
        label = f"{MEASURES[name].title}, minus {contest.reference}; {MEASURES[name].better}"
        effects = [Effect(one, of.mean, of.margin, sure=of.sure) for one in ordered(contest) if (of := found.get(one))]
        chart = forest_chart(effects, title=label, x_label="difference, points", decimals=MEASURES[name].decimals)
        drawn.append(figure(MEASURES[name].title, chart, caption=f"{label}."))
    pictures = figures(*drawn) + sure_key(contest.comparisons)
    body += section("differences", f"Differences to {contest.reference}", pictures)
    ahead, lines = set(contest.front()), []
    for method in ordered(contest):
        numbers = [f"{contest.ranks[method]:.1f}", *(shown(contest, method, name) for name in contest.blocks.answers)]
        lines.append(f'<tr><th scope="row">{text(method + FRONT * (method in ahead))}</th>{cells(numbers)}</tr>\n')
    columns = ["mean rank", *(f"{MEASURES[name].title} ({MEASURES[name].better})" for name in contest.blocks.answers)]
    body += section("numbers", "Numbers", table(f'<tr><th scope="col">method</th>{heads(columns)}</tr>', lines))
    return document(title, body, f"<footer>\n{paragraph(f'fairsilo {__version__}')}</footer>\n")


def as_csv(contest: Contest) -> str:
    """Unrounded, a line for each method, block and answer."""
    found = [
        {"method": method, **block._asdict(), "measure": name, "value": value}
        for name, by_method in contest.blocks.answers.items()
        for method, values in by_method.items()
        for block, value in zip(contest.blocks.whole, values, strict=True)
    ]
    return csv_text(["method", "source", "held_out", "seed", "measure", "value"], found)
