"""A federation as real processes on this machine: a server, sites, certificates; and ways to hurt them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fairsilo.config import experiment
from fairsilo.deploy.flare import administration, attendance, kits
from fairsilo.deploy.flare.machines import Kept, Session, job_processes
from fairsilo.deploy.flare.supervisor import Supervisor, submit
from tiny_sites import TRAINING, UNSEEN, settings, write_site

NAMES = (*TRAINING, UNSEEN)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class System:
    """Provisioned once; what a test stops is started again for the next one."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "federation"
        self.fingerprint = kits.init(self.folder, kits.Profile("trial", "localhost", free_port()))
        self.server = self.finding(administration.server_of(self.folder))
        self.sites: dict[str, Kept] = {}
        for name in NAMES:
            self.admit(name)
        self.away: set[str] = set()  # sites that nobody starts
        self.session = Session(self.folder)
        self.said: list[str] = []
        self.supervisor = Supervisor(self.folder, self.session, self.tend, self.said.append)

    def admit(self, name: str, **described: Any) -> None:
        """One more site becomes a member; it is started when everything is tended next."""
        request = kits.request(self.site(name), "trial", name)
        kits.install(self.site(name), kits.approve(self.folder, request), self.fingerprint)
        write_site(self.site(name), name, **described)
        self.sites[name] = self.finding(attendance.site_of(self.site(name)), name)

    def dismiss(self, name: str, seconds: float = 60.0) -> None:
        """A site goes for good; returns when the server knows."""
        self.sites.pop(name).stop()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.session.system()
            if found is not None and name not in found.sites:
                return
            time.sleep(0.5)

    def site(self, name: str) -> Path:
        return self.root / name

    def kit(self, name: str) -> Path:
        return self.site(name) / "kit"

    def finding(self, process: Kept, site: str = "server") -> Kept:
        """A process whose jobs find packages that a test puts into `packages`, of everybody or of a site alone."""
        folders = (
            self.root / "packages",
            self.root / "packages-at" / site,
            *os.environ.get("PYTHONPATH", "").split(":"),
        )
        process.more["PYTHONPATH"] = ":".join(str(one) for one in folders if str(one))
        return process

    def tend(self) -> None:
        for one in (self.server, *(kept for name, kept in list(self.sites.items()) if name not in self.away)):
            if not one.running:
                one.not_before = 0.0  # a test does not wait for a machine to be patient
            one.tend()

    def down(self) -> None:
        self.session.close()
        for one in (*self.sites.values(), self.server):
            one.stop()

    # -------------------------------------------------------------------------------------------------------- runs
    def begun(self, name: str, method: str, **changes: Any) -> Path:
        return submit(self.folder, experiment({**settings(**changes), "method": method}), name)

    def run(self, run: Path, seconds: float = 240.0, least: int = len(NAMES)) -> str:
        """See a run through; returns its outcome, empty where the time was up."""
        end = time.monotonic() + seconds
        return self.supervisor.see_through(run, least, lambda: time.monotonic() > end)

    @contextlib.contextmanager
    def meanwhile(
        self, *acts: tuple[Callable[[list[dict[str, Any]]], bool], Callable[[], object]], run: Path
    ) -> Iterator[list[str]]:
        """In a thread, do each act when its moment has come, which the events of a run tell."""
        done: list[str] = []
        over = threading.Event()

        def watch() -> None:
            for moment, act in acts:
                while not over.is_set() and not moment(events(run)):
                    time.sleep(0.02)
                if not over.is_set():
                    act()
                    done.append(getattr(act, "__name__", "act"))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield done
        finally:
            over.set()
            thread.join(10)

    def connected(self, sites: int = len(NAMES), seconds: float = 60.0) -> None:
        """Wait until so many sites are there."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tend()
            found = self.session.system()
            if found is not None and len(found.sites) == sites:
                return
            time.sleep(0.3)
        raise TimeoutError(self.said)

    # ------------------------------------------------------------------------------------------------------- harm
    def kill_job(self, name: str) -> None:
        """The process of the job at a site, as if memory ran out; the site itself stays."""
        for pid in set(job_processes(self.kit(name))) - {self.sites[name].pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze(self, name: str, number: signal.Signals) -> None:
        """Stop the process of the job at a site for a while, or let it go on."""
        for pid in set(job_processes(self.kit(name))) - {self.sites[name].pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_site(self, name: str, stays_away: bool = False) -> None:
        if stays_away:
            self.away.add(name)
        for pid in job_processes(self.kit(name)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_server(self) -> None:
        for pid in job_processes(self.folder / "server"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def events(run: Path) -> list[dict[str, Any]]:
    path = run / "events.jsonl"
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def seen(kind: str, number: int, times: int = 1) -> Callable[[list[dict[str, Any]]], bool]:
    """Whether an event of a round was told so often."""
    return lambda told: sum(one["kind"] == kind and one["round"] == number for one in told) >= times
