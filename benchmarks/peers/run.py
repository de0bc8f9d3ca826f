"""The same FedAvg job in fairsilo and its peers, in turns, each in an environment of its own on two cores.

    python benchmarks/peers/run.py [--turns 3] [--only fairsilo pfl]

Needs Linux, and downloads some 2 GB of packages the first time. Prints a table in Markdown. See job.py for the job.
Where other work takes more than a tenth of the cores, it is waited for, and what was measured beside it is measured
again, while fewer than `--patience` minutes have passed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from environments import HERE, ROOT, CannotInstallError, python_of
from watching import TooLongError, others_share, watched

CORES, LIMIT, TOLERANCE = 2, 600.0, 3.0  # seconds for a side; points of accuracy
DEFAULT = "fairsilo"
BUSY = 0.1  # the share of the cores that others may have
# `torch.set_num_threads(1)` alone leaves oneDNN's kernels for ARM at more threads, a tenth slower. Ray sets this for
# its actors; the others get it here. Not fairsilo: its rows are what a user gets who sets nothing.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass
class Side:
    """One row: a program in an environment, and what was found."""

    name: str
    title: str
    environment: str
    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    found: list[dict[str, Any]] = field(default_factory=list)  # one entry for each turn
    problem: str = ""

    @property
    def rounds(self) -> list[float]:
        """Seconds of all later rounds of all turns."""
        return [seconds for one in self.found for seconds in one["rounds"]]

    @property
    def accuracy(self) -> float:
        return statistics.median(one["accuracy"] for one in self.found)


def sides() -> list[Side]:
    own, pfl, fedlab = ("with_fairsilo.py",), ("with_pfl.py", "--processes"), ("with_fedlab.py", "--processes")
    return [
        Side("plain", "plain PyTorch loop, 2 threads", "fairsilo", ("with_plain.py",)),
        Side(DEFAULT, "**fairsilo**, default settings, 2 workers", "fairsilo", own),
        Side("channels-last", "**fairsilo**, `engine.channels_last=true`", "fairsilo", (*own, "channels_last=true")),
        Side("fast", "**fairsilo**, `engine.preset=fast`", "fairsilo", (*own, "preset=fast")),
        Side("pfl", "pfl, 2 processes", "pfl", (*pfl, "2"), ONE_THREAD),
        Side("pfl-threads", "pfl, 1 process with 2 threads", "pfl", (*pfl, "1")),
        Side("flower", "Flower simulation, 2 actors", "flower", ("with_flower.py",)),
        Side("fedlab", "FedLab, server and 2 processes", "fedlab", (*fedlab, "2"), ONE_THREAD),
        Side("fedlab-threads", "FedLab, 1 process with 2 threads", "fedlab", (*fedlab, "1")),
    ]


def environment_variables() -> dict[str, str]:
    """No GPU, no telemetry, fairsilo from this checkout."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return os.environ | quiet | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")}


def measure(side: Side, python: Path, until: float) -> None:
    """One turn of one side, without other work beside it if that can be had until then."""
    while True:
        while time.monotonic() < until and others_share(5) > BUSY:
            time.sleep(5)
        _measure(side, python)
        if side.problem or side.found[-1]["others"] <= BUSY or time.monotonic() > until:
            return
        side.found.pop()


def _measure(side: Side, python: Path) -> None:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as error:
        command = [str(python), str(HERE / side.command[0]), *side.command[1:]]
        try:
            seen = watched(command, environment_variables() | side.variables, out, error, LIMIT)
            out.seek(0)
            line = next(line for line in out.read().splitlines()[::-1] if line.startswith('{"first"'))
            side.found.append({**json.loads(line), **asdict(seen)})
        except (TooLongError, subprocess.CalledProcessError, StopIteration) as problem:
            error.seek(0)
            said = [line for line in error.read().splitlines() if line.strip()]
            why = problem if isinstance(problem, TooLongError) else "it failed"
            side.problem = f"{why}: {said[-1] if said else 'it said nothing'}"[:400]


def table(found: list[Side]) -> str:
    """Markdown; ratios are taken within a turn."""
    lines = [
        "| | a later round, s: median (range) | times the default's round (range over turns) | to the end of the first "
        "round, s | peak MiB | accuracy, % |",
        "|---|---|---|---|---|---|",
    ]
    default = next((side for side in found if side.name == DEFAULT and side.found), None)
    for side in found:
        if not side.found:
            lines.append(f"| {side.title} | failed: see below | | | | |")
            continue
        seconds, first = side.rounds, statistics.median(one["first"] for one in side.found)
        ratio = "-"
        if default is not None:
            turns = [
                statistics.median(one["rounds"]) / statistics.median(other["rounds"])
                for one, other in zip(side.found, default.found, strict=False)
            ]
            ratio = f"{statistics.median(turns):.2f} ({min(turns):.2f} to {max(turns):.2f})"
        mark = " (differs)" if default is not None and _differs(side, default) else ""
        lines.append(
            f"| {side.title} | {statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f}) | {ratio} "
            f"| {first:.1f} | {max(one['peak'] for one in side.found)} | {side.accuracy:.1f}{mark} |"
        )
    return "\n".join(lines)


def remarks(found: list[Side]) -> list[str]:
    """The machine, versions, and what went wrong."""
    versions: dict[str, str] = {}
    for side in found:
        for one in side.found[:1]:
            versions |= one["versions"]
    others = [one["others"] for side in found for one in side.found]
    said = [f"{platform.machine()}, {CORES} cores, of which other work had at most {max(others, default=0):.0%}"]
    said += [", ".join(f"{name} {number}" for name, number in versions.items())]
    said += [f"{side.name}: {side.problem}" for side in found if side.problem]
    default = next((side for side in found if side.name == DEFAULT and side.found), None)
    for side in found:
        if default is not None and side.found and _differs(side, default):
            said.append(f"{side.name}: its accuracy differs by more than {TOLERANCE:g} points; it does another job")
    return said


def _differs(side: Side, default: Side) -> bool:
    return abs(side.accuracy - default.accuracy) > TOLERANCE


def chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[side.name for side in sides()])
    parser.add_argument("--patience", type=float, default=10, metavar="MINUTES")
    parser.add_argument("--out", type=Path, help="also write every number there, as JSON")
    return parser.parse_args()


def main() -> None:
    given = chosen()
    found = [side for side in sides() if not given.only or side.name in given.only]
    pythons: dict[str, Path] = {}
    for name in dict.fromkeys(["fairsilo", *(side.environment for side in found)]):
        try:
            pythons[name] = python_of(name)
        except CannotInstallError as problem:
            for side in found:
                if side.environment == name:
                    side.problem = f"cannot be installed: {problem}"
    if "fairsilo" not in pythons:
        sys.exit("the environment of fairsilo cannot be made, and it writes the data of all")
    subprocess.run([str(pythons["fairsilo"]), str(HERE / "job.py")], check=True)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # what is started has the same
    until = time.monotonic() + 60 * given.patience
    for turn in range(given.turns):
        for side in found[turn % len(found) :] + found[: turn % len(found)]:
            if not side.problem:
                measure(side, pythons[side.environment], until)
                said = side.problem or json.dumps(side.found[-1])
                print(f"turn {turn + 1} of {given.turns}: {side.name}: {said}", file=sys.stderr, flush=True)
    print(table(found))
    print("\n" + "\n".join(remarks(found)))
    if given.out:
        given.out.write_text(json.dumps({side.name: side.found for side in found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
