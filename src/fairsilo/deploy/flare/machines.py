"""FLARE's processes on this machine: a server or a site is kept running until it is told to stop."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fairsilo.deploy.flare.kits import ADMIN, site_name

_APP = "nvflare.private.fed.app"
# freed memory goes back to the system at once, whichever allocator torch was built with: for a process that moves
# models and trains none; training would pay for it with every step
FRUGAL = {
    "MIMALLOC_PURGE_DELAY": "0",
    "MALLOC_MMAP_THRESHOLD_": str(2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**20),
}


def server_command(folder: Path) -> list[str]:
    kit = (folder / "server").resolve()
    options = ["-m", str(kit), "-s", "fed_server.json", "--set", "secure_train=true", "org=server"]
    return [sys.executable, "-u", "-m", f"{_APP}.server.server_train", *options, "config_folder=config"]


def site_command(folder: Path) -> list[str]:
    kit = (folder / "kit").resolve()
    options = ["-m", str(kit), "-s", "fed_client.json", "--set", "secure_train=true", f"uid={site_name(folder)}"]
    return [sys.executable, "-u", "-m", f"{_APP}.client.client_train", *options, "org=site", "config_folder=config"]


class Kept:
    """A process that is started again when it ends by itself.

    Args:
        command: What to run.
        kit: Where it runs.
        log: Where its output goes.
        more: Added to the environment.
    """

    def __init__(self, command: list[str], kit: Path, log: Path, more: Mapping[str, str] | None = None) -> None:
        self.command, self.kit, self.log, self.more = command, kit, log, dict(more or {})
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.not_before = 0.0

    def __enter__(self) -> Self:
        self.tend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def tend(self) -> None:
        """Start the process unless it runs; one that keeps ending is started less and less often."""
        if self.running:
            return
        now = time.monotonic()
        if now < self.not_before:
            return
        self.not_before = now + min(60.0, 2.0**self.starts)
        self.starts += 1
        (self.kit / "transfer").mkdir(exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "MALLOC_ARENA_MAX": "4", "PYTHONUNBUFFERED": "1", **self.more}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.command, cwd=self.kit, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def stop(self, patience: float = 10.0) -> None:
        """End it and the job processes that it started, which live in sessions of their own."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in job_processes(self.kit):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def job_processes(kit: Path) -> list[int]:
    """The processes of jobs that belong to a kit: their command line names its folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if str(kit.resolve()) in words and any(word.startswith(_APP) for word in words):
                    found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class System:
    """Since when the server runs, and when each connected site was last heard of (a site that died is, for a while)."""

    since: object
    heard: dict[str, float]

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(sorted(self.heard))


class Session:
    """The administrator's connection to the server, made anew when it breaks.

    A session that is left open when the server ends keeps its process from ending.
    """

    def __init__(self, folder: Path) -> None:
        self.kit = str((folder / "admin").resolve())
        self._open: Any = None
        self.problem = ""  # why the last question was not answered
        if not logging.getLogger().handlers:  # else FLARE tells of every attempt to connect
            logging.getLogger().addHandler(logging.NullHandler())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _session(self) -> Any:
        if self._open is None:
            from nvflare.fuel.flare_api.flare_api import new_secure_session

            self._open = new_secure_session(ADMIN, self.kit, timeout=5.0)
        return self._open

    def close(self) -> None:
        found, self._open = self._open, None
        if found is not None:
            with contextlib.suppress(Exception):
                found.close()

    def _asked(self, name: str, *arguments: object) -> Any:
        """What the server says; None where it cannot be reached."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # it says that it connects, which is nobody's business
                found = getattr(self._session(), name)(*arguments)
        except Exception as problem:  # noqa: BLE001 - FLARE has errors of many kinds for a server that is not there
            self.problem = str(problem) or type(problem).__name__
            self.close()
            return None
        self.problem = ""
        return found

    def system(self) -> System | None:
        """None where the server cannot be reached."""
        found = self._asked("get_system_info")
        if found is None:
            return None
        return System(
            found.server_info.start_time, {str(one.name): float(one.last_connect_time) for one in found.client_info}
        )

    def submit(self, job: Path) -> str | None:
        found = self._asked("submit_job", str(job))
        return None if found is None else str(found)

    def status(self, job: str) -> str | None:
        found = self._asked("get_job_status", job)
        return None if found is None else str(found)

    def abort(self, job: str) -> None:
        self._asked("abort_job", job)
