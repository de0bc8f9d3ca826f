"""How fast this machine is: rounds of FedAvg by engine, taken in turns, and the mean of models against a copy."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fairsilo import __version__
from fairsilo.config import TrainSettings
from fairsilo.core.arithmetic import EXACT
from fairsilo.core.messages import Exchange
from fairsilo.core.round import close_round, open_round
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.screening import screened
from fairsilo.core.vectors import weighted_mean
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.lanes import LANES, Lanes
from fairsilo.engine.loop import Loop
from fairsilo.engine.processes import Pool, Processes
from fairsilo.engine.sequential import Sequential
from fairsilo.engine.simulation import Simulation
from fairsilo.methods.text import method
from fairsilo.tasks.classify import Classify

CLASSES = 10
ROWS, COLUMNS = 20, 1_000_000  # of the models whose mean is taken


@dataclass(frozen=True)
class Job:
    """What is timed: every silo trains one epoch on noise, and the server takes the mean."""

    model: str = "small-cnn"
    silos: int = 20
    samples: int = 500
    size: int = 32
    batch: int = 50
    rounds: int = 3

    @property
    def people(self) -> Federation:
        stream = torch.Generator().manual_seed(0)
        found = []
        for number in range(self.silos):
            shape = (self.samples, 3, self.size, self.size)
            images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=stream)
            split = Split(images, torch.randint(0, CLASSES, (self.samples,), generator=stream))
            found.append(SiloData(f"s{number:03d}", "noise", split, split, split))
        return Federation("noise", tuple(map(str, range(CLASSES))), tuple(found))

    def plan(self, device: str = "cpu") -> Blueprint:
        training = TrainSettings(rounds=1, epochs=1, batch_size=self.batch, lr=0.01, momentum=0.9, weight_decay=1e-4)
        return Blueprint(method("fedavg"), self.model, Classify(CLASSES), 3, training, seed=0, device=device)


def one_round(loop: Loop) -> None:
    """A round's training and aggregation, without evaluation."""
    server = loop.server
    server.round += 1
    messages = open_round(server, server.names, {})
    replies = loop.engine.ask(Exchange("train", server.round, messages))
    close_round(server, screened("train", messages, replies, server), quorum=1)


def bench(job: Job, workers: int | None = None, say: Callable[[str], object] | None = None) -> dict[str, Any]:
    """Seconds per round of each engine that this machine has, and how fast a mean of models is.

    Rounds are taken in turns, so that a slow moment of the machine meets every engine; the first is not counted.

    Args:
        job: What a round is.
        workers: Of the engine `processes`; by default one for each core.
        say: Told what is measured.
    """
    workers = min(workers or os.cpu_count() or 1, job.silos)
    people = job.people
    times: dict[str, list[float]] = {}
    with ExitStack() as stack, _one_thread(), EXACT.set():
        loops = {name: stack.enter_context(made(job, people, workers)) for name, made in _engines(workers).items()}
        for number in range(job.rounds + 1):
            for name, loop in loops.items():
                if say:
                    say(f"{name}: round {number} of {job.rounds}" if number else f"{name}: a first round")
                begun = time.perf_counter()
                one_round(loop)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                times.setdefault(name, []).append(time.perf_counter() - begun)
        memory = {name: _memory(loop) for name, loop in loops.items()}
    rows = [
        {
            "engine": name,
            "first": spent[0],
            "seconds": statistics.median(spent[1:]),
            "low": min(spent[1:]),
            "high": max(spent[1:]),
            "samples_per_second": job.silos * job.samples / statistics.median(spent[1:]),
            "memory": memory[name],
        }
        for name, spent in times.items()
    ]
    return {"machine": machine(), "job": vars(job), "engines": rows, "mean": mean_of_models()}


def machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "fairsilo": __version__,
        "torch": torch.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": gpu,
    }


def mean_of_models(repetitions: int = 9) -> dict[str, float]:
    """GB/s that a weighted mean reads and writes, and that as a share of a copy's, the two in turns."""
    rows = torch.randn(ROWS, COLUMNS)
    copy, weights = torch.empty_like(rows), torch.full((ROWS,), 1 / ROWS, dtype=torch.float64)
    size = COLUMNS * rows.element_size()
    work: dict[str, tuple[Callable[[], object], int]] = {
        "mean": (lambda: weighted_mean(rows, weights), (ROWS + 1) * size),
        "copy": (lambda: copy.copy_(rows), 2 * ROWS * size),
    }
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repetitions + 1):
        for name, (done, moved) in work.items():
            begun = time.perf_counter()
            done()
            found[name].append(moved / (time.perf_counter() - begun) / 1e9)
    mean, copied = (statistics.median(found[name][1:]) for name in work)
    return {"gigabytes_per_second": mean, "share_of_copy": mean / copied}


# ------------------------------------------------------------------------------------------------------------ engines
def _engines(workers: int) -> dict[str, Callable[[Job, Federation, int], Any]]:
    found: dict[str, Callable[[Job, Federation, int], Any]] = {"sequential": _sequential("cpu")}
    if workers > 1:
        found[f"processes, {workers} workers"] = _processes
    if torch.cuda.is_available():
        found["sequential on the GPU"] = _sequential("cuda")
        found[f"lanes, {LANES} on the GPU"] = _lanes
    return found


def _sequential(device: str) -> Callable[[Job, Federation, int], Any]:
    @contextmanager
    def made(job: Job, people: Federation, workers: int) -> Iterator[Loop]:
        plan = job.plan(device)
        yield Loop(plan, people.roster, Sequential(plan, people, strict=True))

    return made


@contextmanager
def _lanes(job: Job, people: Federation, workers: int) -> Iterator[Loop]:
    plan = job.plan("cuda")
    engine = Lanes(plan, people, min(LANES, job.silos), strict=True)
    try:
        yield Loop(plan, people.roster, engine)
    finally:
        engine.close()


@contextmanager
def _processes(job: Job, people: Federation, workers: int) -> Iterator[Loop]:
    plan, pool = job.plan(), Pool(workers)
    try:
        yield Loop(plan, people.roster, Processes(plan, people, pool, strict=True))
    finally:
        pool.close()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _memory(loop: Loop) -> int:
    """The most bytes that the engine's processes, or its GPU, ever held."""
    engine = loop.engine
    if isinstance(engine, Simulation) and engine.blueprint.device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    workers = [one.process.pid for one in engine.pool.workers] if isinstance(engine, Processes) else []
    return sum(_peak(pid) for pid in (os.getpid(), *workers))


def _peak(pid: int | None) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        return 1024 * int(text.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError, ValueError):  # not on Linux, or over
        return 0
