"""`fairsilo new`: a package of the user's own, ready to edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.completing import kinds
from fairsilo.cli.output import AsJson, say, show_json, verbatim


def new(
    kind: Annotated[str, typer.Argument(help="method, dataset or model", autocompletion=kinds)],
    name: Annotated[str, typer.Argument(help="what it is called in commands: letters, digits, - and _")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="the folder, empty or new; by default ./NAME")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a small installable package with a method, a data set or a network of your own, and its test."""
    from fairsilo import scaffold

    made = scaffold.new(kind, name, out)
    if as_json:
        show_json({"folder": str(made.folder), "files": made.files, "commands": made.commands})
        return
    for file in made.files:
        verbatim(made.folder / file)
    say("next:")
    for command in made.commands:
        verbatim(f"  {command}")
