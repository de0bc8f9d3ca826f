"""The runs that are in no number of a comparison, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from fairsilo.report.blocks import paragraph, section
from fairsilo.report.texts import text

Content = Mapping[str, Any]
SHORT = 32  # characters of a run's name that stay on one line of a terminal


def left_out(content: Content) -> list[Mapping[str, Any]]:
    """Method, held-out domain, seed, why and a cure of each; none where nobody looked."""
    return list(content.get("left_out") or ())


def called(run: Mapping[str, Any]) -> str:
    """A run by its method, held-out domain and seed."""
    held_out = [] if run["held_out"] == "-" else [str(run["held_out"])]
    return ", ".join([str(run["method"]), *held_out, f"seed {run['seed']}"])


def why_and_cure(run: Mapping[str, Any]) -> str:
    return f"{run['why']}; {run['cure']}"


def left_out_section(content: Content) -> str:
    """For the page; nothing where all runs count."""
    runs = left_out(content)
    if not runs:
        return ""
    items = "".join(f"<li>{text(f'{called(run)}: {why_and_cure(run)}')}</li>" for run in runs)
    said = "No number, picture or sentence of this page counts these runs."
    return section("left-out", "Left out", paragraph(said), f'<ul class="notes">{items}</ul>\n')


def left_out_tables(content: Content) -> list[Table]:
    """For a terminal; none where all runs count."""
    runs = left_out(content)
    table = Table(title="left out: in no number above", title_justify="left")
    short = all(len(called(run)) <= SHORT for run in runs)
    table.add_column("run", overflow="fold", no_wrap=short)  # paths beside it are long, and may be broken anywhere
    table.add_column("why; what helps", overflow="fold")
    for run in runs:
        table.add_row(escape(called(run)), escape(why_and_cure(run)))
    return [table] if runs else []
