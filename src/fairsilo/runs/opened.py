"""A run folder as it is opened: its settings, and whether it may be used. Nothing here waits for torch, so that what is
no run is refused at once."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

from fairsilo import config, data
from fairsilo.config import Experiment
from fairsilo.errors import FairsiloError
from fairsilo.methods.pieces import references
from fairsilo.models import described
from fairsilo.runs.folder import RunFolder, resuming, status_of


def read_experiment(folder: Path, trust: bool = False) -> Experiment:
    """The configuration of a run folder.

    Raises:
        FairsiloError: There is none, or it names code to import (`package:name`) and `trust` is off.
    """
    if not (folder / "config.yaml").exists():
        raise FairsiloError(f"{folder} is no run folder: it has no config.yaml")
    experiment = config.experiment(config.read_yaml(folder / "config.yaml"))
    methods = [name for text in (experiment.method, experiment.baseline) if text for name in references(text)]
    model = [experiment.model] if described.names_code(experiment.model) else []
    named = [experiment.data.name] if experiment.data.name and data.names_code(experiment.data.name) else []
    refuse_code(folder, [*methods, *model, *named], trust)
    return experiment


def refuse_code(folder: Path, code: list[str], trust: bool) -> None:
    """Raise FairsiloError where a run folder names code to import and the user did not say that it is trusted."""
    if code and not trust:
        raise FairsiloError(
            f"{folder} names code that would be imported and run: {', '.join(code)}; "
            "if you trust it, say so with --trust (in Python: trust=True)"
        )


def refuse_objects(folder: Path, given: Container[str] = ()) -> None:
    """Raise FairsiloError where a run goes on with Python objects alone, and they are not all given."""
    for kind in status_of(folder).get("objects", ()):
        if kind not in given:
            raise FairsiloError(
                f"{folder} was begun from Python with a {kind} of its own; resume it there: "
                f"fairsilo.resume(folder, {kind}=...)"
            )


def read_finished(folder: Path, trust: bool = False) -> tuple[Experiment, dict[str, Any]]:
    """The configuration of a finished run, and what its run.json says.

    Raises:
        FairsiloError: It is no run, is not finished, or names code to import and `trust` is off.
    """
    experiment, facts = read_experiment(folder, trust), RunFolder(folder).read_json("run.json")
    if facts.get("status") == "stopped":
        raise FairsiloError(
            f"{folder} stopped before its end ({facts.get('message') or 'run.json does not say why'}); "
            f"when the cause is gone, `{resuming(folder)}` goes on with it"
        )
    if facts.get("status") != "finished":
        raise FairsiloError(f"{folder} is not finished; `{resuming(folder)}` goes on with it")
    return experiment, facts
