"""Grids of compositions for the terminal and for the documentation: every cell, and what the halves contribute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table as Drawn

from fairsilo.analysis.crossings import SOURCES
from fairsilo.analysis.paired import Difference
from fairsilo.reproduction.crossing import Crossing
from fairsilo.reproduction.measures import MEASURES
from fairsilo.runs.comparison import composed

FRONT = "*"


def about(crossing: Crossing) -> str:
    """What a contribution is, and what its margin tells."""
    said = (
        f"A half's contribution is its difference to the first of its kind ({crossing.grid.rows[0]}; "
        f"{crossing.columns[0]}), averaged over the other halves. "
    )
    if len(crossing.looks) == 1:
        return said + (
            "Its margin (95 %) is over the other halves: how much it depends on what it stands beside. Of one "
            "look nothing follows about others, so nothing is marked."
        )
    return said + (
        f"Its margin (95 %) is over the {len(crossing.looks)} {crossing.over}; ! marks what chance would hardly "
        "give (p < 0.05, corrected for all halves and answers by Holm)."
    )


def contributed(one: Difference, decimals: int = 1) -> str:
    """`+1.2 ± 0.5 !`: the mark says that chance alone would hardly give it."""
    margin = "" if one.margin is None else f" ± {one.margin:.{decimals}f}"
    return f"{round(one.mean, 9) + 0.0:+.{decimals}f}{margin}{' !' if one.sure else ''}"


def sources_of(crossing: Crossing, measure: str) -> str:
    """Where differences come from, in words."""
    found, title, several = crossing.shares(measure), MEASURES[measure].title, len(crossing.looks) > 1
    if not found.of:
        return f"{title}: all compositions are the same."
    words = {"rows": "rows", "columns": "columns"}
    words |= {"together": "both together", "looks": f"what differs between {crossing.over}, and chance"}
    words = words if several else {**words, "together": "both together and chance"}
    parts = [
        f"{words[name]} {100 * found.of[name]:.0f} %" + ("" if (p := found.p.get(name)) is None else f" (p = {p:.2g})")
        for name in SOURCES
        if several or name != "looks"
    ]
    return f"{title}: differences come from {', '.join(parts)}."


def lines(crossing: Crossing, measure: str, mark: str = FRONT) -> Iterator[tuple[str, list[str]]]:
    """Row by row the numbers of its compositions; those on the front are marked."""
    means, ahead, places = crossing.means(measure), set(crossing.front()), MEASURES[measure].decimals
    for row in crossing.grid.rows:
        names = [composed(row, column) for column in crossing.grid.columns]
        yield row, [f"{means[name]:.{places}f}{mark if name in ahead else ''}" for name in names]


def halves(crossing: Crossing) -> list[tuple[str, str, list[str]]]:
    """Kind, name and contribution by answer, of every half but the plain ones."""
    found = []
    for kind, place in (("row", 0), ("column", 1)):
        names = crossing.grid.rows if kind == "row" else crossing.columns
        for half in names[1:]:
            of_half = {name: by_kind[place][half] for name, by_kind in crossing.contributions.items()}
            found.append((kind, half, [contributed(one, MEASURES[name].decimals) for name, one in of_half.items()]))
    return found


def titled(crossing: Crossing) -> list[str]:
    """The answers with which end of them is good."""
    return [f"{MEASURES[name].title} ({MEASURES[name].better})" for name in crossing.answers]


def crossed_tables(crossing: Crossing, choose: int = 0) -> list[Drawn]:
    """A table for each answer, one of contributions, and one of those that were chosen."""
    found = []
    for name, title in zip(crossing.answers, titled(crossing), strict=True):
        drawn = Drawn(title=f"{title}; {FRONT} is on the front", title_justify="left", padding=(0, 0))
        drawn.add_column("")
        for column in crossing.columns:
            drawn.add_column(escape(column), justify="right")
        for row, numbers in lines(crossing, name):
            drawn.add_row(escape(row), *numbers)
        drawn.caption, drawn.caption_justify = sources_of(crossing, name), "left"
        found.append(drawn)
    drawn = Drawn(title="what each half contributes, in points", title_justify="left", caption=about(crossing))
    drawn.caption_justify = "left"
    drawn.add_column("")
    drawn.add_column("half")
    for name in crossing.answers:
        drawn.add_column(MEASURES[name].title, justify="right")
    for kind, half, texts in halves(crossing):
        drawn.add_row(kind, escape(half), *texts)
    found.append(drawn)
    if choose:
        found.append(_chosen(crossing, choose))
    return found


def _chosen(crossing: Crossing, count: int) -> Drawn:
    said = f"chosen by mean rank over {', '.join(MEASURES[name].title for name in crossing.blocks.choosable)}"
    drawn = Drawn(title=said, title_justify="left")
    for column in ("composition", "mean rank", *(MEASURES[name].title for name in crossing.answers)):
        drawn.add_column(column, justify="left" if column == "composition" else "right")
    for name, rank in crossing.chosen(count).items():
        drawn.add_row(escape(name), f"{rank:.1f}", *numbers_of(crossing, name))
    return drawn


def numbers_of(crossing: Crossing, method: str) -> list[str]:
    """The answers of one composition."""
    return [f"{crossing.means(name)[method]:.{MEASURES[name].decimals}f}" for name in crossing.answers]


def crossed_markdown(crossing: Crossing, choose: int = 0) -> list[str]:
    """The same as blocks of Markdown."""
    blocks = [f"All {len(crossing.grid.methods)} compositions in each of: {crossing.blocks}."]
    for name, title in zip(crossing.answers, titled(crossing), strict=True):
        body = [[row, *numbers] for row, numbers in lines(crossing, name, "\\*")]
        blocks += [f"{title}; \\* is on the front.", markdown(["", *crossing.columns], body)]
        blocks += [sources_of(crossing, name)]
    body = [[kind, half, *texts] for kind, half, texts in halves(crossing)]
    blocks += [about(crossing), markdown(["", "half", *(MEASURES[name].title for name in crossing.answers)], body)]
    if choose:
        body = [[name, f"{rank:.1f}", *numbers_of(crossing, name)] for name, rank in crossing.chosen(choose).items()]
        said = "Chosen by the training silos' validation samples alone (mean rank over "
        blocks += [f"{said}{', '.join(MEASURES[name].title for name in crossing.blocks.choosable)}):"]
        blocks += [markdown(["composition", "mean rank", *(MEASURES[name].title for name in crossing.answers)], body)]
    return blocks


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
