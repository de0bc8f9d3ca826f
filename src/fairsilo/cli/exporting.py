"""`fairsilo export`: the models of a finished run as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli import completing
from fairsilo.cli.output import AsJson, Trust, say, show_json
from fairsilo.cli.using import RunFolder
from fairsilo.runs.names import refuse_unknown_export
from fairsilo.runs.opened import read_finished


def export(
    folder: RunFolder,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="onnx, pt2 (torch.export), safetensors or hf (Hugging Face layout)",
            autocompletion=completing.formats,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the folder; by default exported/FORMAT in the run folder")
    ] = None,
    silo: Annotated[str | None, typer.Option("--silo", help="this silo's own model instead of the global one")] = None,
    all_silos: Annotated[
        bool, typer.Option("--all-silos", help="the global model and the own model of each silo")
    ] = False,
    which: Annotated[
        str,
        typer.Option(
            "--which",
            help="which of a silo's own models: best (by validation) or last",
            autocompletion=completing.which,
        ),
    ] = "best",
    force: Annotated[
        bool, typer.Option("--force", help="replace an earlier export with an edited card or other files beside it")
    ] = False,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Write a run's models for other programs, with a model card; each is checked against the run's own answers."""
    refuse_unknown_export(to)
    read_finished(folder, trust)
    from fairsilo.runs import exporting
    from fairsilo.runs.export_formats import format_of
    from fairsilo.runs.trained import Trained

    format_of(to).check()  # before a large model is read
    found = exporting.export(Trained(folder, trust=trust), to, out, silo, all_silos, which, force)
    if as_json:
        show_json(found.as_dict())
        return
    for name, path in found.files.items():
        say(f"{name}: {path}")
    for name in found.left_out:
        say(f"{name}: there is no such model")
    say(f"model card: {found.folder / 'README.md'}")
    say(f"checked against the run; the largest difference is {found.difference:.1g}")
