"""One trial: a run of a method on the silos that train, watched from round to round."""

from __future__ import annotations

import dataclasses
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo.config import Experiment
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Callback, Event, guarded, silent
from fairsilo.engine.features import Shelf
from fairsilo.errors import FairsiloError
from fairsilo.runs.cells import engine_beside
from fairsilo.runs.engines import EngineMaker, engines
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.lock import locked
from fairsilo.runs.running import run_one, start_folder
from fairsilo.runs.setup import Objects, check_methods
from fairsilo.tuning.judging import Judge
from fairsilo.tuning.studies import Place

LARGE = ("checkpoint", "models", "local")  # of a trial that has ended nothing but its numbers is of use


class Behind(BaseException):
    """A run is behind the trials before it and is given up."""


@dataclass(frozen=True)
class Job:
    """What a process must know to make a trial.

    Attributes:
        place: The study.
        number: Of the trial in it.
        experiment: Its settings.
        folder: Of its run.
        judge: What it is judged by.
    """

    place: Place
    number: int
    experiment: Experiment
    folder: Path
    judge: Judge


@dataclass(frozen=True)
class Ended:
    """How a trial ended: with a score, or without one and why."""

    score: float | None
    seconds: float
    rounds: int
    why: str = ""


def training_only(federation: Federation) -> Federation:
    """Without the held-out domain: what is not there cannot influence what is chosen."""
    return dataclasses.replace(federation, unseen=())


def attempt(
    job: Job, federation: Federation, objects: Objects, engine_for: EngineMaker, shelf: Shelf, listener: Callback
) -> Ended:
    """The trial's run from where it was left, in this process."""
    trial, begun, reached = job.place.trial(job.number), time.perf_counter(), 0

    def watching(event: Event) -> None:
        nonlocal reached
        reached = max(reached, event.round)
        listener(event)
        if event.kind != "evaluated" or event.results is None or event.round >= event.rounds:
            return
        score = job.judge(event.results.rows)
        if score is not None:
            trial.report(score, event.round)
            if trial.should_prune():
                raise Behind

    why = ""
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with locked(job.folder):
            check_methods(job.experiment, federation.roster, objects)
            start_folder(job.folder, job.experiment, objects)
            run_one(job.experiment, federation, job.folder, guarded(watching), engine_for, shelf, objects)
    except Behind:
        why = "behind the median of the trials before it"
    except FairsiloError as problem:  # such as a model that is no longer finite, or values that do not go together
        why = str(problem)
    score = None if why else job.judge(RunFolder(job.folder).rows("metrics"))
    for name in LARGE:
        shutil.rmtree(job.folder / name, ignore_errors=True)
    return Ended(score, time.perf_counter() - begun, reached, why)


def attempt_alone(job: Job, federation: Federation, objects: Objects, jobs: int) -> Ended:
    """The trial in a process of its own, one of so many."""
    engine = engine_beside(job.experiment.engine, jobs)
    at_once = len(federation.silos) if engine.name == "lanes" else 1
    with engines(dataclasses.replace(job.experiment, engine=engine), at_once, silent) as engine_for:
        return attempt(job, federation, objects, engine_for, Shelf(engine.features_limit), silent)


def as_facts(ended: Ended) -> dict[str, Any]:
    return {"seconds": round(ended.seconds, 2), "rounds": ended.rounds, "why": ended.why}
