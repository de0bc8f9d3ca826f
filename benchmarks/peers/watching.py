"""A program and all processes below it: their memory, their time, their end; and how much others ran beside them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

PROC = Path("/proc")
EVERY = 0.5  # seconds between two looks: more often would take time from what is measured
TICKS = os.sysconf("SC_CLK_TCK")  # of a processor's time, in a second


class TooLongError(Exception):
    """A program did not end in time."""


@dataclass(frozen=True)
class Seen:
    """What was seen of a program: the most MiB at any time, and the share of the cores that others had meanwhile."""

    peak: int
    others: float


class Tree:
    """The process of a program and what it started, also what it left behind."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.seen: dict[int, str] = {}  # with when each was started: numbers of processes are used again
        self.ticks: dict[int, int] = {}  # processor time of each
        self.peak = 0  # MiB of all processes at the time when that was most

    def look(self) -> set[int]:
        """Who is running."""
        stats = {int(one.name): stat for one in PROC.iterdir() if one.name.isdigit() and (stat := _stat(one))}
        running = {pid for pid, began in self.seen.items() if pid in stats and stats[pid][1] == began}
        if self.root in stats:
            running.add(self.root)
        below = dict[int, list[int]]()
        for pid, (parent, _, _) in stats.items():
            below.setdefault(parent, []).append(pid)
        waiting = list(running)
        while waiting:
            new = [pid for pid in below.get(waiting.pop(), ()) if pid not in running]
            running.update(new)
            waiting += new
        self.seen |= {pid: stats[pid][1] for pid in running}
        self.ticks |= {pid: stats[pid][2] for pid in running}
        self.peak = max(self.peak, sum(map(_resident, running)) // 1024)
        return running

    def end(self, patience: float = 10.0) -> None:
        """Wait for what the program left behind, then kill it: the next one must have the cores for itself."""
        until = time.monotonic() + patience
        while running := self.look() - {self.root}:
            if time.monotonic() > until:
                for pid in running:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)


def _stat(place: Path) -> tuple[int, str, int] | None:
    """The parent of a process, when it was started, and its ticks; None if it is over."""
    try:
        fields = (place / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else (int(fields[1]), fields[19], int(fields[11]) + int(fields[12]))


def _resident(pid: int) -> int:
    """KiB; pages that several processes share count in each of them."""
    try:
        return int((PROC / str(pid) / "status").read_text(encoding="utf-8").split("VmRSS:")[1].split()[0])
    except (OSError, IndexError):
        return 0


def _busy() -> int:
    """Ticks that the cores of this process have worked since the machine was started, for anybody."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = [line.split() for line in (PROC / "stat").read_text(encoding="utf-8").splitlines()]
    return sum(int(ticks) for name, *all_ in lines if name in ours for ticks in (*all_[:3], *all_[5:7]))


def others_share(seconds: float) -> float:
    """The share of the cores that is taken while this process does nothing."""
    before, begun = _busy(), time.monotonic()
    time.sleep(seconds)
    return _share(_busy() - before, begun)


def _share(ticks: int, begun: float) -> float:
    return max(0.0, ticks / TICKS / (time.monotonic() - begun) / len(os.sched_getaffinity(0)))


def watched(command: list[str], environment: dict[str, str], out: TextIO, error: TextIO, limit: float) -> Seen:
    """Run a program to its end.

    Raises:
        TooLongError: It ran for more than `limit` seconds.
        CalledProcessError: It ended with an error.
    """
    begun, busy = time.monotonic(), _busy()
    process = subprocess.Popen(
        command, env=environment | {"PEERS_BEGUN": repr(begun)}, stdout=out, stderr=error, stdin=subprocess.DEVNULL
    )
    tree = Tree(process.pid)
    try:
        while process.poll() is None:
            if time.monotonic() - begun > limit:
                raise TooLongError(f"it did not end within {limit:g} s")
            tree.look()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(EVERY)
        others = _share(_busy() - busy - sum(tree.ticks.values()), begun)
    finally:
        process.kill()
        process.wait()
        tree.end()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Seen(tree.peak, others)
