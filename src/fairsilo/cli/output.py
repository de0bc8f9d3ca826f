"""Where commands print: tables and sentences for people, JSON for scripts."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fairsilo.cli.fitting import fitted

console = Console()
errors = Console(stderr=True)

Trust = Annotated[bool, typer.Option("--trust", help="import the code that the run folder names as package:name")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]


def say(text: object) -> None:
    """A line as it is: names of folders and silos are no markup, `:AB:` is no picture, and a path is not broken."""
    console.print(str(text), markup=False, highlight=False, soft_wrap=True, emoji=False)


def complain(text: object) -> None:
    errors.print(str(text), markup=False, highlight=False, soft_wrap=True, emoji=False)


def show(table: Table) -> None:
    console.print(fitted(table, console))


def show_json(content: Any) -> None:
    """Exactly the JSON, without terminal formatting."""
    typer.echo(json.dumps(content))
