"""`fairsilo figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.completing import figures, run_folders
from fairsilo.cli.output import AsJson, Trust, say, show_json, verbatim
from fairsilo.errors import FairsiloError
from fairsilo.report.figures.captions import CAPTIONS, refuse_unknown
from fairsilo.runs.opened import read_finished


def figure(
    name: Annotated[str, typer.Argument(help="a figure, or `all`; without a run: `list`", autocompletion=figures)],
    folder: Annotated[
        Path | None,
        typer.Argument(help="a finished run with evaluate.keep_local=true (or FedAG's)", autocompletion=run_folders),
    ] = None,
    options: Annotated[list[str] | None, typer.Argument(help="options as key=value")] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Draw a diagnostic of a run as SVG, PNG and CSV, and put it into the report."""
    if name == "list":
        _list(as_json)
        return
    if name != "all":
        refuse_unknown(name)
    if folder is None:
        raise FairsiloError(f"`fairsilo figure {name}` needs the folder of a run")
    read_finished(folder, trust)
    from fairsilo.report.figures.files import figures_of, options_of, write_figure
    from fairsilo.report.figures.registry import FIGURES
    from fairsilo.report.page import write_report
    from fairsilo.runs.replayed import Replayed

    names = list(FIGURES) if name == "all" else [name]
    chosen = {one: options_of(one, options or ()) for one in names}
    replay = Replayed(folder, trust=trust)
    names = figures_of(replay) if name == "all" else names
    written: list[Path] = []
    for number, one in enumerate(names, 1):
        if not as_json:
            say(f"{one} ({number} of {len(names)}) ...")
        written += write_figure(one, replay, folder / "figures", **chosen[one])
    page = write_report(folder)
    if as_json:
        show_json({"files": [str(path) for path in written], "report": str(page)})
        return
    for path in (*written, page):
        verbatim(path)


def _list(as_json: bool) -> None:
    if as_json:
        show_json([{"name": key, **one._asdict()} for key, one in CAPTIONS.items()])
        return
    for key, one in CAPTIONS.items():
        say(f"{key}: {one.about}")
