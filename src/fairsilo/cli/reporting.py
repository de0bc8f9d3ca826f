"""`fairsilo report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.comparing import show_comparison
from fairsilo.cli.completing import run_folders
from fairsilo.cli.output import AsJson, say, show, show_json


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="a run folder, or a comparison's; or a zip of `fairsilo runs export`", autocompletion=run_folders
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Write the HTML page of a run or of a comparison again and print its table."""
    if folder.suffix == ".zip" and folder.is_file():
        from fairsilo.runs.packing import unpack

        folder = unpack(folder)
    from fairsilo.runs.counting import is_comparison

    if is_comparison(folder):
        _comparison(folder, as_json)
    else:
        _run(folder, as_json)


def _run(folder: Path, as_json: bool) -> None:
    from fairsilo.report.groups import group_tables
    from fairsilo.report.page import read_results, write_report
    from fairsilo.report.tables import run_table
    from fairsilo.runs.inventory import damage_told

    with damage_told(folder):
        found = read_results(folder)
        tables = [run_table(*found[0], found[1] if len(found) > 1 else None), *group_tables(found)]
        path = write_report(folder)
    if as_json:
        show_json({"report": str(path), "summary": found[0][1]})
        return
    for table in tables:
        show(table)
    say(f"report: {path}")


def _comparison(folder: Path, as_json: bool) -> None:
    from fairsilo.analysis.paired import compare_cells
    from fairsilo.report.comparison_page import write_comparison
    from fairsilo.runs.counting import read_comparison
    from fairsilo.runs.inventory import damage_told

    with damage_told(folder):
        page = write_comparison(folder)
        if as_json:
            content = read_comparison(folder)
            table = compare_cells(content["methods"], content["cells"])
            show_json({"report": str(page), "table": table, "left_out": content["left_out"]})
        else:
            show_comparison(page)
