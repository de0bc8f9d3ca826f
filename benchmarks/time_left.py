"""How far off the time left is: real runs, and after every round from the third what was said and what it then took.

    python benchmarks/time_left.py [--rounds 12] [--processor] [METHOD ...]

The built-in images, small CNN. What is left counts until the command would return, so that what comes after the last
round (silos' own models that are tuned at the end, the report) is in it. With --processor it counts
processor time in place of the clock's: what a quiet machine would show, on one that is not. Prints a table to paste.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fairsilo
from fairsilo.analysis.remaining import seconds_left

METHODS = ("fedavg", "fft-gp", "per-fedavg", "elcfs | fedheal", "grace", "fine-tune", "ditto", "fedbn")


def errors(method: str, rounds: int, every: int, now: Callable[[], float]) -> list[float]:
    """By round from the third on: (said - took) / took."""
    ends: list[float] = []

    def listener(event: fairsilo.Event) -> None:
        if event.kind == "round":
            ends.append(now())

    started = now()
    with tempfile.TemporaryDirectory() as folder:
        fairsilo.run(
            method=method,
            rounds=rounds,
            epochs=2,
            evaluate={"every": every},
            engine={"name": "sequential"},
            data={"held_out": "sketch"},
            out=Path(folder) / "run",
            listener=listener,
        )
    over = now()
    took = [after - before for before, after in zip([started, *ends], ends, strict=False)]
    found = []
    for done in range(3, rounds):
        said, left = seconds_left(took[:done], rounds, every), over - ends[done - 1]
        assert said is not None
        found.append((said - left) / left)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--processor", action="store_true")
    chosen = parser.parse_args()
    print("| method | evaluated every | after round 3 | median | worst | within a fifth |")
    print("|---|---|---|---|---|---|")
    for method in chosen.methods:
        for every in (1, 4):
            off = errors(method, chosen.rounds, every, time.process_time if chosen.processor else time.monotonic)
            worst, near = max(off, key=abs), sum(abs(one) <= 0.2 for one in off)
            numbers = f"{off[0]:+.0%} | {statistics.median(off):+.0%} | {worst:+.0%} | {near} of {len(off)}"
            print(f"| {method.replace('|', chr(92) + '|')} | {every} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
