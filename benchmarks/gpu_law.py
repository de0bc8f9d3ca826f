"""Runs every entry of the catalogue on a GPU twice, step by step and recorded on lanes, and compares the numbers.

    CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONPATH=src:tests python benchmarks/gpu_law.py [--fused] [ENTRY ...]

One line an entry: equal bit by bit, or the largest relative difference of the final model; how many steps were
captured; what the engine said. With `--fused` the recorded run has fairsilo's own kernels (`engine.fused`). It ends
with 1 where an entry differs by more than 1e-5, relative, after three rounds.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import time

import torch

import tiny
from fairsilo.core.arithmetic import EXACT, Arithmetic
from fairsilo.data.federation import Federation
from fairsilo.engine.lanes import Lanes
from fairsilo.errors import FairsiloError

TRAINING = dataclasses.replace(tiny.TRAINING, rounds=3)
tiny.plan = functools.partial(tiny.plan, device="cuda")


def sharing() -> Federation:
    """The laws' federation, two of its silos with the same test samples: lanes measure a model there once."""
    people = tiny.federation()
    one, other, *rest = people.silos
    return dataclasses.replace(people, silos=(one, dataclasses.replace(other, test=one.test), *rest))


def compared(how: str, arithmetic: Arithmetic) -> tuple[float, str]:
    """The largest relative difference, and a line about it."""
    people, said, lanes = sharing(), [], []

    def engine(plan, silos):
        plan = dataclasses.replace(plan, arithmetic=arithmetic)
        lanes.append(Lanes(plan, silos, 2, strict=True, say=said.append))
        return lanes[0]

    begun = time.perf_counter()
    plain, _ = tiny.run(how, people, TRAINING)
    recorded, _ = tiny.run(how, people, TRAINING, engine=engine)
    seconds = time.perf_counter() - begun
    captured = sum(recorder.captured for recorder in lanes[0].recorders)
    one, other = plain.vector.double(), recorded.vector.double()
    largest = float((one - other).abs().max() / one.abs().max()) if len(one) else 0.0
    for before, after in zip(plain.rows, recorded.rows, strict=True):
        largest = max(largest, abs(before["loss"] - after["loss"]) / max(abs(before["loss"]), 1e-12))
    same = plain.rows == recorded.rows and torch.equal(one, other)
    largest, words = (0.0, "bit by bit") if same else (largest, f"{largest:.1e}")
    lanes[0].close()
    return largest, f"{how:45s} {words:12s} {captured:3d} captured {seconds:5.1f} s  {'; '.join(dict.fromkeys(said))}"


def main(names: list[str]) -> int:
    torch.use_deterministic_algorithms(True, warn_only=True)
    bad, equal = [], 0
    fused, names = "--fused" in names, [one for one in names if one != "--fused"]
    with EXACT.set():
        for how in names or tiny.ALL:
            try:
                largest, line = compared(how, Arithmetic(fused=fused))
            except (FairsiloError, RuntimeError, ValueError, AttributeError, TypeError) as problem:
                largest, line = float("inf"), f"{how:45s} raised {type(problem).__name__}: {str(problem)[:300]}"
            print(line, flush=True)
            equal += "bit by bit" in line
            if not largest <= 1e-5:
                bad.append(how)
    print(f"{equal} of {len(names or tiny.ALL)} equal bit by bit; beyond 1e-5: {', '.join(bad) or 'none'}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
