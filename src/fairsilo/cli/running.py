"""`fairsilo run` and `fairsilo resume`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairsilo.cli.completing import of_run, run_folders
from fairsilo.cli.interrupts import interruptible
from fairsilo.cli.output import AsJson, Trust, console, say, show, show_json
from fairsilo.config import Experiment, experiment, read_yaml
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import resuming
from fairsilo.runs.names import refuse_unknown
from fairsilo.runs.opened import read_experiment, refuse_objects

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        help="settings as key=value, such as method=fedprox rounds=20 data.folder=images", autocompletion=of_run
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="a YAML file of settings")]
OutFolder = Annotated[Path | None, typer.Option("--out", "-o", help="the run folder; by default one under runs/")]
HeldOut = Annotated[
    list[str] | None, typer.Option(help="domains, separated by commas, or 'all'; may be repeated", show_default=False)
]
Seeds = Annotated[
    list[str] | None, typer.Option(help="seeds, separated by commas; may be repeated", show_default=False)
]
Track = Annotated[
    list[str] | None,
    typer.Option("--track", help="tensorboard, mlflow or wandb, as name or name:destination; may be repeated"),
]
Anonymous = Annotated[bool, typer.Option("--anonymous", help="with --track: silos and domains are told by number")]


def listed(given: list[str] | None) -> str | None:
    """An option that may be repeated, as one text with commas."""
    return ",".join(given) if given else None


def run(
    settings: Settings = None,
    config: ConfigFile = None,
    out: OutFolder = None,
    track: Track = None,
    anonymous: Anonymous = False,
    as_json: AsJson = False,
) -> None:
    """Train a federation with one domain held out; write a run folder with a report.

    Without settings: FAA beside FedAvg on the embedded federation `glyphs`.
    """
    chosen = experiment(read_yaml(config) if config else {}, settings or [])
    refuse_unknown(chosen)
    from fairsilo import api

    along = trackers(track, anonymous)
    _finish(lambda progress: api.run(chosen, out=out, listener=[progress, *along]), as_json, chosen)


def resume(
    folder: Annotated[Path, typer.Argument(help="a run folder", autocompletion=run_folders)],
    track: Track = None,
    anonymous: Anonymous = False,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Go on with a run that was interrupted, to the same numbers."""
    chosen = read_experiment(folder, trust)
    refuse_objects(folder)
    from fairsilo import api

    along = trackers(track, anonymous)
    again = f"`{resuming(folder)}` goes on from the last complete round"
    _finish(lambda progress: api.resume(folder, [progress, *along], trust=trust), as_json, chosen, again)


def trackers(track: list[str] | None, anonymous: bool) -> list[Any]:
    """What `--track` asks for."""
    if anonymous and not track:
        raise FairsiloError("--anonymous says how trackers are told; name one with --track")
    from fairsilo.tracking import registry

    return list(registry.trackers(track or (), anonymous))


def _finish(
    work: Callable[[Any], Any], as_json: bool, chosen: Experiment, again: str = "nothing was written yet"
) -> None:
    """Do the work under a progress bar, then print what came out of it."""
    from fairsilo.cli.progress import ProgressListener
    from fairsilo.methods.text import method
    from fairsilo.report.groups import group_tables
    from fairsilo.report.tables import run_table
    from fairsilo.runs.setup import sends_of

    sends = sends_of(chosen, method(chosen.method))
    opening = f"{chosen.method} sends, besides the model: {'; '.join(sends)}" if sends else ""
    with interruptible(again), ProgressListener(console, quiet=as_json, opening=opening) as listener:
        result = work(listener)
    if as_json:
        show_json(result.as_dict())
        return
    beside = (result.baseline.method, result.baseline.summary) if result.baseline else None
    show(run_table(result.method, result.summary, beside))
    for table in group_tables([(result.method, result.summary), *([beside] if beside else [])]):
        show(table)
    say(f"run folder: {result.folder}")
    say(f"report: {result.folder / 'report.html'}")
