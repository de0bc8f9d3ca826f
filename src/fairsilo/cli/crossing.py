"""`fairsilo crossings` and `fairsilo contest`: runs on several federations taken together."""

from __future__ import annotations

from typing import Annotated

import typer

from fairsilo.cli.output import AsJson, say, show, show_json
from fairsilo.cli.running import OutFolder


def crossings(
    sources: Annotated[
        list[str],
        typer.Argument(help="folders of `fairsilo compare` with a grid, or tables of the ledger", metavar="SOURCE..."),
    ],
    choose: Annotated[
        int, typer.Option(min=0, help="name so many compositions to go on with, by validation samples alone")
    ] = 0,
    out: OutFolder = None,
    as_json: AsJson = False,
) -> None:
    """What each half of compositions contributes: a grid, run on one federation or on several.

    Rows are one kind of half and columns the other, as in `grid: {rows: [..], columns: [..]}` of a file for compare.
    Shows every composition, where differences come from, what each half adds whatever the other is, and the front of
    the three answers.
    """
    from fairsilo.report.crossed import crossed_tables
    from fairsilo.report.crossed_page import write_crossed
    from fairsilo.reproduction.blocks import source_of
    from fairsilo.reproduction.crossing import Crossing

    found = Crossing.of([source_of(name) for name in sources])
    page = write_crossed(found, out, choose) if out else None
    if as_json:
        show_json({**found.as_dict(), **({"chosen": found.chosen(choose)} if choose else {})})
        return
    say(f"{len(found.grid.methods)} compositions, each run in: {found.blocks}")
    for block, why in found.blocks.incomplete.items():
        say(f"not counted: {block}: {why}")
    for drawn in crossed_tables(found, choose):
        show(drawn)
    if page:
        say(f"page: {page}")
        say(f"also as CSV and LaTeX: {page.with_suffix('')}.*")


def contest(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="folders of `fairsilo compare`, or tables of the ledger: a federation each", metavar="SOURCE..."
        ),
    ],
    against: Annotated[
        str | None, typer.Option(help="the method that the others are compared with; else the first")
    ] = None,
    out: OutFolder = None,
    as_json: AsJson = False,
) -> None:
    """The same methods on several federations: mean ranks, paired differences with intervals, the front.

    Each federation counts once. Claims are corrected for all methods and answers that are looked at.
    """
    from fairsilo.report.contested import contest_table, write_contest
    from fairsilo.reproduction.blocks import source_of
    from fairsilo.reproduction.contest import Contest

    found = Contest.of([source_of(name) for name in sources], against)
    page = write_contest(found, out) if out else None
    if as_json:
        show_json(found.as_dict())
        return
    say(f"blocks in which all were run: {found.blocks}")
    for block, why in found.blocks.incomplete.items():
        say(f"not counted: {block}: {why}")
    show(contest_table(found))
    if page:
        say(f"page: {page}")
        say(f"also as CSV: {page.with_suffix('.csv')}")
