"""Where a GPU's time goes in a round: its kernels by name, and how much of the round it was busy.

    PYTHONPATH=src python benchmarks/kernels.py fedavg engine.device=cuda engine.name=lanes [--round 3] [--top 25]
    PYTHONPATH=src python benchmarks/kernels.py fedavg --table fft-gp/tables2-3-pacs --held-out photo data.root=PATH ...

A method and settings as `fairsilo run` takes them; with --table its settings are the table's. One round is watched
after others have recorded their steps. What is watched takes longer than it does otherwise, so that shares say more
than milliseconds. With `evaluate.every` above the round, it trains and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import fairsilo
from fairsilo.config import Experiment, changed, experiment
from fairsilo.reproduction.tables import read_table
from fairsilo.runs.comparison import read_comparison_file


@dataclass
class Kernel:
    """All calls of one kernel."""

    name: str
    microseconds: float = 0.0
    calls: int = 0
    blocks: list[int] = field(default_factory=list)


@dataclass
class Round:
    """What a trace says; times in microseconds."""

    kernels: list[Kernel]
    streams: int
    lasted: float
    busy: float

    @property
    def summed(self) -> float:
        return sum(one.microseconds for one in self.kernels)


def busy(spans: Iterable[tuple[float, float]]) -> float:
    """Time in which at least one of them was under way."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def read(trace: dict[str, Any]) -> Round:
    kernels: dict[str, Kernel] = {}
    spans, streams = [], set()
    for event in trace["traceEvents"]:
        if event.get("cat") != "kernel":
            continue
        kernel = kernels.setdefault(event["name"], Kernel(event["name"]))
        kernel.microseconds, kernel.calls = kernel.microseconds + event["dur"], kernel.calls + 1
        kernel.blocks.append(math.prod(event["args"].get("grid", [0])))
        streams.add(event["args"].get("stream"))
        spans.append((event["ts"], event["ts"] + event["dur"]))
    lasted = max(end for _, end in spans) - min(begin for begin, _ in spans) if spans else 0.0
    return Round(sorted(kernels.values(), key=lambda one: -one.microseconds), len(streams), lasted, busy(spans))


def asked(method: str, settings: list[str], table: str | None, held_out: str) -> Experiment:
    if table is None:
        return experiment(overrides=[*settings, f"method={method}"])
    common = read_comparison_file(read_table(table).file, settings).experiment
    return changed(common, {"method": method, "data.held_out": held_out})


def watched(run: Experiment, round_: int) -> Round:
    there = torch.cuda.is_available()
    profiler = profile(activities=[ProfilerActivity.CUDA if there else ProfilerActivity.CPU])

    def listener(event: fairsilo.Event) -> None:
        if event.kind == "round" and event.round == round_ - 1:
            profiler.start()
        elif event.kind == "round" and event.round == round_:
            profiler.stop()

    with tempfile.TemporaryDirectory() as folder:
        fairsilo.run(changed(run, {"train.rounds": round_}), out=Path(folder) / "run", listener=listener)
        profiler.export_chrome_trace(f"{folder}/trace.json")
        return read(json.loads(Path(f"{folder}/trace.json").read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--table", help="whose settings these are on top of")
    parser.add_argument("--held-out", default="-", help="with --table: the domain that takes no part")
    parser.add_argument("--round", type=int, default=3, help="from the second on")
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_intermixed_args()
    if chosen.round < 2 or (chosen.held_out != "-" and not chosen.table):
        parser.error("--round is 2 or more, and --held-out goes with --table (else data.held_out=DOMAIN)")
    found = watched(asked(chosen.method, chosen.settings, chosen.table, chosen.held_out), chosen.round)
    if not found.kernels:
        raise SystemExit("no kernel of a GPU was seen: set engine.device=cuda on a machine that has one")
    calls = sum(one.calls for one in found.kernels)
    print(
        f"{calls} kernels on {found.streams} streams: {found.lasted / 1000:.0f} ms from the first to the last, "
        f"{found.busy / 1000:.0f} ms with at least one under way, {found.summed / 1000:.0f} ms in sum"
    )
    for one in found.kernels[: chosen.top]:
        middle = sorted(one.blocks)[len(one.blocks) // 2]
        share, each = one.microseconds / found.summed, one.microseconds / one.calls
        print(f"{share:6.1%} {one.calls:7d} x {each:7.1f} us, {middle:6d} blocks  {one.name[:110]}")
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(found)), encoding="utf-8")


if __name__ == "__main__":
    main()
