"""Where commands print: tables and sentences for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fairsilo.cli.fitting import fitted, without_spare, wrapped

console = Console()
errors = Console(stderr=True)

Trust = Annotated[bool, typer.Option("--trust", help="import the code that the run folder names as package:name")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of tables")]


def say(text: object) -> None:
    """A sentence; a terminal has it in lines of whole words, and what is no terminal in one line."""
    write(console, text)


def complain(text: object) -> None:
    write(errors, text)


def write(to: Console, text: object) -> None:
    """Names of folders and silos are no markup, `:AB:` is no picture, and neither a path nor a command is broken."""
    verbatim(wrapped(str(text), to.width, _with_spaces()) if to.is_terminal else text, to)


def verbatim(text: object, to: Console | None = None) -> None:
    """Lines as they are: files, logs, and what is to be copied."""
    (to or console).print(str(text), markup=False, highlight=False, soft_wrap=True, emoji=False)


def _with_spaces() -> set[str]:
    """What a sentence may repeat of the command line or of this folder's path, where that has spaces."""
    given = {part for one in sys.argv[1:] for part in (one, one.partition("=")[2])}
    with suppress(OSError):  # the folder may be deleted
        given.add(str(Path.cwd()))
    return {one for one in given if " " in one.strip()}


def show(table: Table, spare: Sequence[str] = ()) -> None:
    """A table, without columns that can be `spare`d where a line of it would take several lines of the terminal."""
    console.print(fitted(without_spare(table, console, spare), console))


def show_json(content: Any) -> None:
    """Exactly the JSON, without terminal formatting."""
    typer.echo(json.dumps(content))
