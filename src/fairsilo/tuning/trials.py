"""One trial: a run of a method on the silos that train, watched from round to round."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo.config import Experiment
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Callback, Event, Guarded, RoundResults, guarded, silent
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


OBJECTIVE = "objective"  # what listeners are told the score of a trial as, with the end of its run


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
    """How a trial ended: with a score, or without one and why.

    Attributes:
        at_chance: Whether the score is no better than guessing; None where that is not known.
    """

    score: float | None
    seconds: float
    rounds: int
    why: str = ""
    at_chance: bool | None = None


def training_only(federation: Federation) -> Federation:
    """Without the held-out domain: what is not there cannot influence what is chosen."""
    return dataclasses.replace(federation, unseen=())


class Followed(Guarded):
    """Those who follow a search, and whoever judges the trial under way.

    The first outlive the trial: one that raised is not called in later trials either.

    Args:
        others: Who follows the search.
        judge: Called after them.
        score: What a trial that is finished has come to.
    """

    def __init__(self, others: Guarded, judge: Callback, score: Callable[[], float | None]) -> None:
        super().__init__([judge])
        self._others, self._score = others, score

    def __call__(self, event: Event) -> None:
        if event.kind == "over" and event.text == "finished" and (score := self._score()) is not None:
            event = dataclasses.replace(event, results=RoundResults(means={OBJECTIVE: score}))
        if event.kind != "note":  # what a run notes is in its folder; a search says one line for a trial
            self._others(event)
        super().__call__(event)

    def take_notes(self) -> list[str]:
        return [*self._others.take_notes(), *super().take_notes()]


def attempt(
    job: Job, federation: Federation, objects: Objects, engine_for: EngineMaker, shelf: Shelf, listener: Guarded
) -> Ended:
    """The trial's run from where it was left, in this process."""
    trial, begun, reached = job.place.trial(job.number), time.perf_counter(), 0
    listener.group = job.folder.resolve().parents[1].name  # the search, whose folder has one for each method

    def scored() -> float | None:
        return job.judge(RunFolder(job.folder).rows("metrics"))

    def watching(event: Event) -> None:
        nonlocal reached
        reached = max(reached, event.round)
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
            told = Followed(listener, watching, scored)
            run_one(job.experiment, federation, job.folder, told, engine_for, shelf, objects)
    except Behind:
        why = "behind the median of the trials before it"
    except FairsiloError as problem:  # such as a model that is no longer finite, or values that do not go together
        why = str(problem)
    score = None if why else scored()
    if score is None and not why:
        why = "it has no finite validation result"
    guessed = None if score is None else job.judge.at_chance(RunFolder(job.folder).rows("metrics"))
    for name in LARGE:
        shutil.rmtree(job.folder / name, ignore_errors=True)
    return Ended(score, time.perf_counter() - begun, reached, why, guessed)


def attempt_alone(
    job: Job, federation: Federation, objects: Objects, jobs: int, listeners: Sequence[Callback] = ()
) -> Ended:
    """The trial in a process of its own, one of so many."""
    engine = engine_beside(job.experiment.engine, jobs)
    at_once = len(federation.silos) if engine.name == "lanes" else 1
    with engines(dataclasses.replace(job.experiment, engine=engine), at_once, silent) as engine_for:
        return attempt(job, federation, objects, engine_for, Shelf(engine.features_limit), guarded(listeners))


def as_facts(ended: Ended) -> dict[str, Any]:
    facts = {"rounds": ended.rounds, "why": ended.why, "at_chance": ended.at_chance}
    return {"seconds": round(ended.seconds, 2), **facts}
