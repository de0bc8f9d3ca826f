"""What scale costs: seconds and memory of a round as silos and parameters grow, and what checkpoints cost.

    python benchmarks/scale.py [--out FOLDER]

FedAvg on the engine `sequential` at one thread; every case in a process of its own. Prints tables to paste; with
--out also draws them (scale.svg).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fairsilo.config import EngineSettings, EvaluateSettings, TrainSettings
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.methods.text import method
from fairsilo.runs.bench import Job, one_round
from fairsilo.runs.saved import SavedRun
from fairsilo.tasks.classify import Classify

SILOS = (2, 8, 32, 128, 512, 2048)
PARAMETERS = (0.1, 0.4, 1.6, 6.4, 25.0, 86.0)  # million
INPUTS, CLASSES, SAMPLES = 64, 10, 64
ROUNDS = 3


def network(parameters: float) -> Any:
    """A maker of networks of two layers with so many million parameters."""
    width = round(parameters * 1e6 / (INPUTS + CLASSES + 1))

    def make(classes: int, channels: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, classes))

    return make


def people(silos: int) -> Federation:
    stream = torch.Generator().manual_seed(0)
    found = []
    for number in range(silos):
        inputs = torch.randn(SAMPLES, INPUTS, generator=stream)
        split = Split(inputs, torch.randint(0, CLASSES, (SAMPLES,), generator=stream))
        found.append(SiloData(f"s{number:04d}", "noise", split, split.subset([]), split))
    return Federation("noise", tuple(map(str, range(CLASSES))), tuple(found))


def memory(field: str) -> float:
    """Of this process, in MiB."""
    return int(Path("/proc/self/status").read_text(encoding="utf-8").split(f"{field}:")[1].split()[0]) / 1024


def case(silos: int, parameters: float) -> dict[str, float]:
    """Seconds a round and the most memory above what the process had before."""
    torch.set_num_threads(1)
    training = TrainSettings(rounds=1, epochs=1, batch_size=32, lr=0.01, momentum=0.9)
    federation = people(silos)
    before = memory("VmRSS")
    plan = Blueprint(method("fedavg"), network(parameters), Classify(CLASSES), 1, training, seed=0)
    loop = Loop(plan, federation.roster, Sequential(plan, federation, strict=True))
    times = []
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        one_round(loop)
        times.append(time.perf_counter() - begun)
    size = 4 * plan.layout.size / 2**20
    return {"seconds": statistics.median(times[1:]), "memory": memory("VmHWM") - before, "model": size}


def checkpoints() -> dict[str, float]:
    """Of a run with a checkpoint after every round: how long a round is, and how long it waits for the disk."""
    torch.set_num_threads(1)
    job = Job(model="resnet-10", silos=4, samples=14, rounds=4)  # some five seconds a round
    waited: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        folder = SavedRun(Path(place) / "run")
        folder.create()
        training = TrainSettings(rounds=6, epochs=1, batch_size=job.batch, lr=0.01, momentum=0.9)
        plan, federation = Blueprint(method("scaffold"), job.model, Classify(CLASSES), 3, training, seed=0), job.people
        engine = Sequential(plan, federation, strict=True, folder=folder.folder)
        evaluate = EvaluateSettings(every=100)
        loop = Loop(plan, federation.roster, engine, evaluate=evaluate, settings=EngineSettings(), records=folder)
        plain = loop._save

        def timed(number: int) -> None:
            begun = time.perf_counter()
            plain(number)
            waited.append(time.perf_counter() - begun)

        loop._save = timed  # type: ignore[method-assign]
        rounds = [record["seconds"] for record in loop.run().rounds]
    middle = statistics.median(rounds[1:-1])  # the last one is evaluated
    return {
        "round": middle,
        "waits": statistics.median(waited[1:-1]),
        "share": statistics.median(waited[1:-1]) / middle,
    }


def apart(*arguments: str) -> dict[str, float]:
    """A case in a process of its own."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def drawn(by_silos: dict[float, dict[str, float]], by_size: dict[float, dict[str, float]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), constrained_layout=True)
    for column, (found, label) in enumerate(((by_silos, "silos"), (by_size, "million parameters"))):
        for row, (key, words) in enumerate((("seconds", "seconds a round"), ("memory", "MiB above the start"))):
            axis = axes[row][column]
            axis.plot(list(found), [one[key] for one in found.values()], marker="o")
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel=words)
            axis.grid(visible=True, which="major", alpha=0.3)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", nargs=2, type=float)
    parser.add_argument("--checkpoints", action="store_true")
    chosen = parser.parse_args()
    if chosen.case:
        print(json.dumps(case(int(chosen.case[0]), chosen.case[1])))
        return
    if chosen.checkpoints:
        print(json.dumps(checkpoints()))
        return
    by_silos = {float(count): apart("--case", str(count), "0.1") for count in SILOS}
    print("| silos | seconds a round | ms a silo | MiB above the start |\n|---|---|---|---|")
    for count, one in by_silos.items():
        print(f"| {count:.0f} | {one['seconds']:.3f} | {1000 * one['seconds'] / count:.2f} | {one['memory']:.0f} |")
    by_size = {size: apart("--case", "4", str(size)) for size in PARAMETERS}
    print(
        "\n| million parameters | seconds a round, 4 silos | ns a number and silo | MiB above the start | in models |"
    )
    print("|---|---|---|---|---|")
    for size, one in by_size.items():
        each = 1e9 * one["seconds"] / (4 * size * 1e6)
        share = one["memory"] / one["model"]
        print(f"| {size:g} | {one['seconds']:.3f} | {each:.1f} | {one['memory']:.0f} | {share:.1f} |")
    found = apart("--checkpoints")
    print(
        f"\nA checkpoint after a round of {found['round']:.1f} s holds it up by {1000 * found['waits']:.0f} ms: "
        f"{100 * found['share']:.1f} %."
    )
    if chosen.out:
        drawn(by_silos, by_size, chosen.out / "scale.svg")


if __name__ == "__main__":
    main()
