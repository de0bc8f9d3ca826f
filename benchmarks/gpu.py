"""Milliseconds a round on a GPU: a plain PyTorch loop, silos one by one, lanes with graphs, and the preset `fast`.

    PYTHONPATH=src python benchmarks/gpu.py [--lanes 1 2 4 8] [--models small-cnn resnet-10] [--compiled] [--tried]
        [--only-lanes] [--silos 20] [--samples 640] [--size 32] [--batch 64]

20 silos with 640 images of 32 x 32 each, batches of 64, one epoch of SGD with momentum; all in one run, in turns.
`--compiled` adds lanes whose networks went through torch.compile, `--tried` lanes for which cuDNN tries its kernels and
takes the fastest: trials of what that would bring, no settings of a run. `--only-lanes` leaves out what is slow: ratios
are then to the first lanes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from fairsilo.core.arithmetic import EXACT, Arithmetic, fast
from fairsilo.core.vectors import FlatModel
from fairsilo.engine.lanes import Lanes
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.runs.bench import Job, one_round

TF32 = Arithmetic("tf32")
KINDS = {
    "float32": EXACT,
    "tf32": TF32,
    "tf32, channels last": Arithmetic("tf32", True),
    "tf32, fused": Arithmetic("tf32", fused=True),
    "fast": fast("cuda"),
}


def plain(job: Job, arithmetic: Arithmetic) -> Callable[[], None]:
    """The same steps without a federation: one network, a state dict loaded for each silo."""
    device = torch.device("cuda")
    network, people = job.plan("cuda").network(job.model).to(device), job.people
    data = [(silo.train.inputs.to(device), silo.train.targets.to(device)) for silo in people.silos]
    start = {name: tensor.clone() for name, tensor in network.state_dict().items()}

    def round_() -> None:
        total = {name: torch.zeros_like(tensor, dtype=torch.float32) for name, tensor in start.items()}
        with arithmetic.set():
            for images, targets in data:
                network.load_state_dict(start)
                optimizer = torch.optim.SGD(network.parameters(), 0.01, 0.9, weight_decay=1e-4, fused=True)
                for some in torch.randperm(len(images)).split(job.batch):
                    some = some.to(device)
                    optimizer.zero_grad()
                    output = network(images[some].float().div_(127.5).sub_(1))
                    F.cross_entropy(getattr(output, "prediction", output), targets[some]).backward()
                    optimizer.step()
                for name, tensor in network.state_dict().items():
                    total[name] += tensor / len(data)

    return round_


@contextmanager
def compiling() -> Iterator[None]:
    """Networks that are made meanwhile are compiled."""
    plain_init = FlatModel.__init__

    def init(self: FlatModel, *given: Any, **named: Any) -> None:
        plain_init(self, *given, **named)
        self.module.forward = torch.compile(self.module.forward, dynamic=False)

    FlatModel.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        FlatModel.__init__ = plain_init  # type: ignore[method-assign]


@contextmanager
def trying() -> Iterator[None]:
    """cuDNN measures its kernels for every new shape."""
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = False


def tried(round_: Callable[[], None]) -> Callable[[], None]:
    def meanwhile() -> None:
        with trying():
            round_()

    return meanwhile


def engine(job: Job, arithmetic: Arithmetic, lanes: int) -> Callable[[], None]:
    plan, people = replace(job.plan("cuda"), arithmetic=arithmetic), job.people
    made = Lanes(plan, people, lanes, strict=True, say=print) if lanes else Sequential(plan, people, strict=True)
    loop = Loop(plan, people.roster, made)

    def round_() -> None:
        with arithmetic.set():
            one_round(loop)

    return round_


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--models", nargs="+", default=["small-cnn", "resnet-10"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--tried", action="store_true")
    parser.add_argument("--only-lanes", action="store_true")
    for name, default in (("silos", 20), ("samples", 640), ("size", 32), ("batch", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for model in chosen.models:
        job = Job(model, chosen.silos, chosen.samples, chosen.size, chosen.batch)
        sides = {}
        if not chosen.only_lanes:
            sides = {"plain loop, float32": plain(job, EXACT), "plain loop, tf32": plain(job, TF32)}
            sides["one by one, float32"] = engine(job, EXACT, 0)
        for count in chosen.lanes:
            for name, arithmetic in KINDS.items():
                sides[f"{count} lanes, {name}"] = engine(job, arithmetic, count)
            if chosen.tried:
                for name in ("tf32", "fast"):
                    sides[f"{count} lanes, {name}, tried"] = tried(engine(job, KINDS[name], count))
            if chosen.compiled:
                with compiling():
                    for name in ("tf32", "fast"):
                        sides[f"{count} lanes, {name}, compiled"] = engine(job, KINDS[name], count)
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(chosen.rounds + 2):
            for name, round_ in sides.items():
                torch.cuda.synchronize()
                begun = time.perf_counter()
                round_()
                torch.cuda.synchronize()
                times[name].append(1e3 * (time.perf_counter() - begun))
        print(f"== {model}")
        first = next(iter(times))
        base = statistics.median(times[first][2:])
        for name, spent in times.items():
            middle = statistics.median(spent[2:])
            print(
                f"{name:25s} {middle:8.1f} ms ({min(spent[2:]):.1f} to {max(spent[2:]):.1f}), first {spent[0]:.0f}; "
                f"{base / middle:.2f} times as fast as {first}",
                flush=True,
            )
        del sides
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
