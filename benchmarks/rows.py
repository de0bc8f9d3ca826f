"""Fills the ledger: runs that tables lack, several side by side on one machine, for as long as there is time.

    PYTHONPATH=src python benchmarks/rows.py fedheal/table2-digits grace/table1-lung engine.preset=fast \
        --jobs 6 --minutes 20 --out lines.jsonl

Tables in the order given, in each the first seed of all rows before the second. A run is one `fairsilo reproduce` in a
process of its own; what is not finished in time, or when the script is interrupted or ended, is stopped, and with
`--folder F` stays there, so that the next call goes on with it, also on another machine. OUT gets a line for every
finished run as soon as it is there; one that ends with an error or loses a silo's update is tried once more instead.
With `python benchmarks/rows.py --merge lines.jsonl` lines come into this checkout's ledger.

Runs that share a GPU by MPS get their part of its work queues, which lanes need (README.md). Where several of these
scripts run at once, say how many a run may have: CUDA_DEVICE_MAX_CONNECTIONS=8.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fairsilo.reproduction import ledger
from fairsilo.reproduction.standing import runs_of
from fairsilo.reproduction.tables import read_table
from fairsilo.runs.compare import domains_of
from fairsilo.runs.comparison import is_setting, read_comparison_file
from fairsilo.runs.setup import Objects, dataset_of

QUEUES = 96  # of work on one GPU for all runs together, as far as was tried: 128 were too many on an H200


@dataclass(frozen=True)
class Cell:
    table: str
    row: str
    held_out: str
    seed: int

    def __str__(self) -> str:
        return f"{self.table}, {self.row}, {self.held_out}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """The same in every process, which a hash of strings is not."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:16]


def missing(name: str, given: list[str], rows: list[str], seeds: str | None) -> Iterator[Cell]:
    """What a table lacks; runs in which a silo failed count as missing."""
    table = read_table(name)
    asked = read_comparison_file(table.file, given, seeds=seeds)
    domains = domains_of(asked.experiment, asked.held_out, dataset_of(asked.experiment.data), Objects())
    plain = [one for one in runs_of(table) if not any(one.get(key) for key in ("failures", "settings", "tuned"))]
    there = {(one["method"], _set(one["held_out"]), one["seed"]) for one in plain}
    for seed, row, domain in itertools.product(asked.seeds, asked.methods, domains):
        if (row, _set(domain), seed) not in there and (not rows or row in rows):
            yield Cell(name, row, domain, seed)


def _set(domains: str) -> frozenset[str]:
    """Several that are held out at once, in whatever order a file names them."""
    return frozenset(domains.split("+"))


def listen() -> list[int]:
    """Signals that ask for an end, noted as they come; nothing is raised, so that all threads go their way to it.

    Runs can then be interrupted although a shell has its background jobs, and all that these start, ignore that.
    """
    asked: list[int] = []
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda number, _: asked.append(number))
    return asked


def stop(process: subprocess.Popen[bytes]) -> None:
    """Let it put its things away: when one is killed, others that share a GPU with it by MPS may end too."""
    for what, seconds in ((signal.SIGINT, 30), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, what)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def made(cell: Cell, given: list[str], folder: Path, ends: float, asked: Sequence[int] = ()) -> str:
    """Run one; returns the line of its ledger, or nothing where it was not finished in time or before the end."""
    out = folder / cell.folder
    command = [sys.executable, "-m", "fairsilo.cli", "reproduce", cell.table, *given, "--rows", cell.row]
    command += ["--seeds", str(cell.seed), "--held-out", cell.held_out, "--out", str(out), "--lines", str(out) + ".l"]
    with Path(f"{out}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        code = None
        while code is None:
            if asked or time.monotonic() > ends:
                stop(process)
                return ""
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(1)
    shutil.rmtree(out, ignore_errors=True)  # its line is all that is kept, and another try must not read it again
    if code:
        print(f"{cell}: ended with {code}\n{Path(f'{out}.log').read_text(encoding='utf-8')[-1500:]}", flush=True)
        return ""
    return Path(f"{out}.l").read_text(encoding="utf-8").strip()


def fill(
    cells: list[Cell],
    given: list[str],
    jobs: int,
    minutes: float,
    out: Path,
    commit: str,
    kept: Path | None = None,
    asked: Sequence[int] = (),
) -> None:
    """What ends with an error or loses a silo's update, mostly for want of memory, is tried once more when all others
    have been; a line is written of whole runs alone."""
    ends, waiting, again, lock = time.monotonic() + 60 * minutes, deque(cells), deque[Cell](), threading.Lock()

    def work(folder: Path) -> None:
        while time.monotonic() < ends and not asked:
            with lock:
                first = bool(waiting)
                if not waiting and not again:
                    return
                cell = (waiting or again).popleft()
            line = made(cell, given, folder, ends, asked)
            told = {"table": cell.table, **json.loads(line)} | ({"commit": commit} if commit else {}) if line else {}
            with lock:
                if told and not told["failures"]:
                    with out.open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(told) + "\n")
                elif first:
                    again.append(cell)
            if told:
                print(f"{cell}: {told['seconds']:.0f} s, failures {told['failures']}", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = kept or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(jobs) as pool:
            working = [pool.submit(work, folder) for _ in range(jobs)]
        for one in working:
            one.result()


def merge(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        name = record.pop("table")
        print(f"{name}: {record['method']}, {record['held_out']}, seed {record['seed']}: ", end="")
        print("new" if ledger.append(name, [record]) else "there already")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("arguments", nargs="*", help="tables, and settings as key=value")
    parser.add_argument("--rows", default="", help="only these, separated by semicolons")
    parser.add_argument("--seeds", help="instead of the tables' own")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("lines.jsonl"))
    parser.add_argument("--folder", type=Path, help="where runs are made; those that were stopped go on from there")
    parser.add_argument("--commit", default="", help="of these sources, where there is no git")
    parser.add_argument("--merge", type=Path, help="lines that come into the ledger; runs nothing")
    chosen = parser.parse_args()
    if chosen.merge:
        merge(chosen.merge)
        return
    asked = listen()
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", str(max(1, min(32, QUEUES // chosen.jobs))))
    tables = [text for text in chosen.arguments if not is_setting(text)]
    given = [text for text in chosen.arguments if is_setting(text)]
    rows = [row.strip() for row in chosen.rows.split(";") if row.strip()]
    cells = [cell for name in tables for cell in missing(name, given, rows, chosen.seeds)]
    print(f"{len(cells)} runs are missing", flush=True)
    fill(cells, given, chosen.jobs, chosen.minutes, chosen.out, chosen.commit, chosen.folder, asked)
    if asked:
        raise SystemExit(128 + asked[0])


if __name__ == "__main__":
    main()
