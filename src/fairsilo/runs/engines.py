"""Which engine a run gets, and worker processes that serve several runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fairsilo.config import Experiment
from fairsilo.core.arithmetic import Arithmetic
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.events import Callback, Event
from fairsilo.engine.lanes import LANES, Lanes
from fairsilo.engine.processes import CannotTravelError, Pool, Processes
from fairsilo.engine.sequential import Sequential
from fairsilo.engine.simulation import Simulation
from fairsilo.errors import FairsiloError
from fairsilo.runs.calibration import chosen

EngineMaker = Callable[[Blueprint, Federation, Path], Simulation]


@contextmanager
def engines(
    experiment: Experiment, silos: int, listener: Callback, said: set[str] | None = None
) -> Iterator[EngineMaker]:
    """Makes engines of the chosen kind; worker processes are started once and serve all of them.

    What cannot be sent to another process (it cannot be pickled) runs in this one, and the listener is told. Of each
    kind of engine it is told once, whatever a step takes, also where several calls share what was `said`.
    """
    settings = experiment.engine
    kind, workers = engine_kind(experiment, silos)
    pools: list[Pool] = []
    known = set[str]() if said is None else said

    def say(text: str) -> None:
        listener(Event("note", 0, experiment.train.rounds, text=text))

    def once(about: str, text: str) -> None:
        if about not in known:
            known.add(about)
            say(text)

    def make(plan: Blueprint, federation: Federation, folder: Path) -> Simulation:
        if kind == "lanes":
            options = {"strict": settings.strict, "folder": folder}
            return Lanes(plan, federation, min(settings.lanes or LANES, silos), say=say, **options)  # type: ignore[arg-type]
        engine, why = kind, ""
        if settings.name == "auto" and kind == "processes" and settings.workers is None and settings.timeout is None:
            engine, why, short = chosen(plan, federation, workers, running=bool(pools))
            once(engine, short)
        if engine == "processes":
            try:
                if not pools:
                    pools.append(Pool(workers, settings.threads))
                options = {"timeout": settings.timeout, "strict": settings.strict, "folder": folder}
                made: Simulation = Processes(plan, federation, pools[0], **options)  # type: ignore[arg-type]
            except CannotTravelError as problem:
                engine, why = "sequential", f"silos run one after the other in this process: {problem}"
                say(why)
        if engine == "sequential":
            made = Sequential(plan, federation, settings.strict, folder)
        made.why = why
        return made

    if settings.device == "cpu" and torch.cuda.is_available():
        once("device", "there is a GPU, and this run does not use it; engine.device=auto does")
    try:
        with fixed_threads(settings.threads), Arithmetic.of(settings).set():
            yield make
    finally:
        for pool in pools:
            pool.close()


def engine_kind(experiment: Experiment, silos: int) -> tuple[str, int]:
    """Which engine, and how many workers it would have."""
    settings = experiment.engine
    workers = min(settings.workers or os.cpu_count() or 1, silos)
    kind = settings.name
    on_gpu = settings.device == "cuda"
    if kind == "auto":
        kind = "lanes" if on_gpu else "processes" if workers > 1 else "sequential"
    if kind == "lanes" and not on_gpu:
        raise FairsiloError("engine.name=lanes is for GPUs; set engine.device=cuda, or auto for a GPU if there is one")
    if settings.precision == "tf32" and not on_gpu:
        raise FairsiloError("engine.precision=tf32 is for GPUs; set engine.device=cuda or leave it at float32")
    if on_gpu:
        if kind == "processes":
            raise FairsiloError("engine.device=cuda is not for the processes engine; set engine.name=lanes")
        if not torch.cuda.is_available():
            raise FairsiloError("engine.device is 'cuda', and PyTorch finds no GPU here; set device=cpu")
    return kind, workers


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Torch at a fixed number of threads, as in the workers: results do not depend on the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
