"""Speed and memory, as ratios taken in one run: `make bench`. These machines are noisy, so each ratio is the median of
interleaved repetitions, with its range.

    (a) a round of the sequential engine over a plain PyTorch loop of the same steps
    (b) the weighted mean of 20 models of 4.9 M floats, as a share of memory copy bandwidth
    (c) peak memory of a FedAvg round above that of a one-silo PyTorch loop, in model vectors
    (d) what the other rules of aggregation take, in copies of the 20 models
    (e) a round of FAA over one of FedAvg: two probes and the local model's loss, on a tenth of the samples
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.vectors import gram, squared_norms, weighted_mean
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.methods.geometry import masked_mean
from fairsilo.methods.text import method
from fairsilo.models.registry import build
from fairsilo.runs.bench import Job, one_round
from fairsilo.tasks.classify import Classify


def plain_round(model: nn.Module, people: Federation, training: TrainSettings) -> None:
    """FedAvg as one would write it by hand: load, train, add up."""
    start = {key: value.clone() for key, value in model.state_dict().items()}
    total = {key: torch.zeros_like(value, dtype=torch.float32) for key, value in start.items()}
    for silo in people.silos:
        model.load_state_dict(start)
        model.train()
        optimizer = torch.optim.SGD(
            model.parameters(), training.lr, training.momentum, weight_decay=training.weight_decay
        )
        split = silo.train
        for _ in range(training.epochs):
            order = torch.randperm(len(split))
            for begin in range(0, len(split), training.batch_size):
                chosen = order[begin : begin + training.batch_size]
                inputs = split.inputs[chosen].float().div_(127.5).sub_(1.0)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs).prediction, split.targets[chosen])
                loss.backward()
                optimizer.step()
        for key, value in model.state_dict().items():
            total[key] += value / len(people.silos)
    model.load_state_dict(total)


def make_loop(name: str, people: Federation, training: TrainSettings, how: str = "fedavg") -> Loop:
    plan = Blueprint(method(how), name, Classify(10), 3, training, seed=0)
    return Loop(plan, people.roster, Sequential(plan, people, strict=True))


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ratios(one: Callable[[], object], other: Callable[[], object], repetitions: int) -> list[float]:
    """one / other, the two taken in turns so that a slow moment of the machine meets both."""
    one(), other()
    found = []
    for index in range(repetitions):
        first, second = (one, other) if index % 2 == 0 else (other, one)
        times = {first: seconds(first)}
        times[second] = seconds(second)
        found.append(times[one] / times[other])
    return found


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "repetitions": len(values)}


def engine_overhead(name: str, samples: int, batch: int, repetitions: int) -> dict[str, float]:
    people = Job(silos=4, samples=samples).people
    training = TrainSettings(rounds=1, epochs=1, batch_size=batch, lr=0.01, momentum=0.9, weight_decay=1e-4)
    loop, model = make_loop(name, people, training), build(name, 10, 3, 0)
    return summary(ratios(lambda: one_round(loop), lambda: plain_round(model, people, training), repetitions))


def mean_bandwidth(repetitions: int = 15) -> dict[str, float]:
    rows = torch.randn(20, 4_900_000)
    copy, weights = torch.empty_like(rows), torch.full((20,), 0.05, dtype=torch.float64)
    # bytes moved: the copy reads and writes 20 rows, the mean reads 20 and writes 1
    found = ratios(lambda: copy.copy_(rows), lambda: weighted_mean(rows, weights), repetitions)
    return summary([ratio * 21 / 40 for ratio in found])


def rules(repetitions: int = 7) -> dict[str, dict[str, float]]:
    """Times of aggregation rules over 20 models, as multiples of the time of a copy of them."""
    rows = torch.randn(20, 4_900_000)
    copy, weights, mask = torch.empty_like(rows), torch.full((20,), 0.05, dtype=torch.float64), rows > 0
    works: dict[str, Callable[[], object]] = {
        "masked mean (FedHEAL)": lambda: masked_mean(rows, mask, weights),
        "cosines (GRACE), projections (FedFV)": lambda: gram(rows),
        "squared norms (q-FFL)": lambda: squared_norms(rows),
    }
    return {
        f"{name} of 20 models / copy": summary(ratios(work, lambda: copy.copy_(rows), repetitions))
        for name, work in works.items()
    }


def probing(repetitions: int = 9) -> dict[str, float]:
    people = Job(silos=8).people
    silos = tuple(replace(silo, validation=silo.train.subset(range(len(silo.train) // 10))) for silo in people.silos)
    people = replace(people, silos=silos)
    training = TrainSettings(rounds=100, epochs=1, batch_size=50, lr=0.01, momentum=0.9, weight_decay=1e-4)
    probed, plain = (make_loop("small-cnn", people, training, how) for how in ("faa(warmup=0)", "fedavg"))
    return summary(ratios(lambda: one_round(probed), lambda: one_round(plain), repetitions))


def peak_memory(kind: str, silos: int) -> float:
    """Peak resident bytes of a fresh process that does one thing."""
    command = [sys.executable, __file__, "--peak", kind, "--silos", str(silos)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak_child(kind: str, silos: int) -> None:
    torch.set_num_threads(1)
    people = Job(silos=silos, samples=4, size=16).people
    training = TrainSettings(rounds=1, epochs=1, batch_size=2, lr=0.01, momentum=0.9)
    if kind == "plain":
        one = Federation("one", people.classes, people.silos[:1])
        model = build("resnet-10", 10, 3, 0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
        for _ in range(4):
            optimizer.zero_grad()
            inputs: Tensor = one.silos[0].train.inputs[:2].float()
            nn.functional.cross_entropy(model(inputs).prediction, one.silos[0].train.targets[:2]).backward()
            optimizer.step()
    else:
        loop = make_loop("resnet-10", people, training)
        one_round(loop)
    # not ru_maxrss: it survives exec, so a child would report its parent's peak
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(1024 * int(status.split("VmHWM:")[1].split()[0]))


def memory_above_plain(repetitions: int = 3) -> dict[str, dict[str, float]]:
    vector = 4 * sum(parameter.numel() for parameter in build("resnet-10", 10, 3, 0).parameters())
    found: dict[str, list[float]] = {"4 silos": [], "16 silos": []}
    for _ in range(repetitions):
        plain = peak_memory("plain", 1)
        for silos in (4, 16):
            found[f"{silos} silos"].append((peak_memory("round", silos) - plain) / vector)
    return {key: summary(values) for key, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peak")
    parser.add_argument("--silos", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.peak:
        peak_child(arguments.peak, arguments.silos)
        return
    torch.set_num_threads(1)
    results = {
        "engine / plain loop, small CNN": engine_overhead("small-cnn", 256, 32, 9),
        "engine / plain loop, ResNet-10": engine_overhead("resnet-10", 32, 16, 5),
        "mean of 20 models / copy bandwidth": mean_bandwidth(),
        **rules(),
        "round of FAA / round of FedAvg": probing(),
        **{f"memory above a one-silo loop, {key}": value for key, value in memory_above_plain().items()},
    }
    print("| what | median | range | repetitions |\n|---|---|---|---|")
    for name, found in results.items():
        print(
            f"| {name} | {found['median']:.3f} | {found['low']:.3f} to {found['high']:.3f} | {found['repetitions']} |"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
