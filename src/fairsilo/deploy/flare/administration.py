"""An administrator's day: the server and its supervisor, who is there, which runs there are."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fairsilo.config import read_yaml
from fairsilo.deploy.attempts import FAILED, WITHDRAWN, outcome_of, write_outcome
from fairsilo.deploy.flare.kits import Profile, lock_server, members, removed, renew
from fairsilo.deploy.flare.machines import FRUGAL, Kept, Session, server_command
from fairsilo.deploy.flare.supervisor import POLL, Supervisor, waiting
from fairsilo.deploy.serving import SITES, VERSIONS
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import BASELINE, finished, status_of
from fairsilo.runs.lock import locked
from fairsilo.tracking.registry import handed_on

LOCK = ".start.lock"
SAID = {"method": "{text} begins", "note": "{text}", "failed": "silo {silo} left out ({text})", "round": "done"}


def server_of(folder: Path, more: Mapping[str, str] | None = None) -> Kept:
    """The server's process; `more` is added to its environment, and so to that of its jobs."""
    lock_server(folder)
    environment = {**FRUGAL, **(more or {})}
    return Kept(server_command(folder), folder / "server", folder / "logs" / "server.log", environment)


def start(
    folder: Path,
    say: Callable[[str], object],
    stop: Callable[[], bool] = lambda: False,
    least: int = 1,
    *,
    track: Sequence[str] = (),
    anonymous: bool = False,
) -> None:
    """Keep the server running and see submitted runs through, one after the other, until told to stop.

    Args:
        folder: The federation's.
        say: Told what happens.
        stop: Asked often.
        least: Sites that must be connected before a run is tried.
        track: Trackers that are told of the runs, as `name` or `name:destination`.
        anonymous: Whether they are told silos and domains by number.
    """
    profile, more = Profile.read(folder), handed_on(track, anonymous)
    with started(folder), held(folder):
        refuse_taken(profile)
        _serve(folder, profile, say, stop, least, more)


def _serve(
    folder: Path,
    profile: Profile,
    say: Callable[[str], object],
    stop: Callable[[], bool],
    least: int,
    more: Mapping[str, str],
) -> None:
    with server_of(folder, more) as server, Session(folder) as session:
        say(f"server of {profile.name} listens on {profile.host}:{profile.port}; runs are taken from {folder / 'runs'}")
        supervisor = Supervisor(folder, session, server.tend, say)
        while not stop():
            for run in waiting(folder):
                outcome = supervisor.see_through(run, least, stop)
                if outcome:
                    page = run / "report.html"
                    say(f"{run.name}: {outcome}" + (f"; report: {page}" if page.exists() else ""))
            server.tend()
            time.sleep(POLL)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder of a federation's runs: those that wait for sites, or for their turn, are not given up.

    An attempt, which is another process, holds its run's own folder.
    """
    runs = folder / "runs"
    runs.mkdir(exist_ok=True)
    with locked(runs):
        yield


@contextlib.contextmanager
def started(folder: Path) -> Iterator[None]:
    """One process runs a federation's server at a time; its number is noted, for `stop`."""
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FairsiloError(f"the server of {folder} runs already, as process {_owner(folder)}") from None
    try:
        (folder / ".pid").write_text(str(os.getpid()))
        yield
    finally:
        (folder / ".pid").unlink(missing_ok=True)
        lock.release()


def refuse_taken(profile: Profile) -> None:
    """Refuse a port on which somebody else listens: FLARE would try for ever."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", profile.port))
        except OSError as problem:
            raise FairsiloError(
                f"port {profile.port} cannot be listened on ({problem.strerror}); end the program that does, "
                "`ss -ltnp` names it"
            ) from problem


def is_running(folder: Path) -> bool:
    """Whether a process runs the federation's server."""
    lock = FileLock(folder / LOCK, timeout=0)
    with contextlib.suppress(Timeout), lock:
        return False
    return True


def renew_own(folder: Path) -> None:
    """New certificates of the server and the administrator, while neither is in use."""
    Profile.read(folder)
    with started(folder):
        renew(folder)


def _owner(folder: Path) -> int | None:
    try:
        return int((folder / ".pid").read_text())
    except (OSError, ValueError):
        return None


def stop(folder: Path) -> int:
    """End the server and its supervisor; runs go on when it is started again. Returns the process that was told."""
    Profile.read(folder)
    if not is_running(folder):
        raise FairsiloError(f"the server of {folder} does not run")
    found = _owner(folder)
    if found is None:
        raise FairsiloError(f"the server of {folder} runs, but its process is not noted; end it by hand")
    os.kill(found, signal.SIGTERM)
    return found


def withdraw(folder: Path, run: str) -> None:
    """No further attempt at a run is made, and one under way is ended."""
    place = run_folder(folder, run)
    if finished(place):
        raise FairsiloError(f"{run} is finished")
    write_outcome(place, FAILED, WITHDRAWN)


def run_folder(folder: Path, run: str) -> Path:
    place = folder / "runs" / run
    if not (place / "config.yaml").exists():
        known = ", ".join(sorted(one.parent.name for one in (folder / "runs").glob("*/config.yaml"))) or "none"
        raise FairsiloError(f"there is no run {run!r}; there are: {known}")
    return place


def told_of(run: Path) -> list[str]:
    """What happened in a run, a line each: rounds, silos that were left out, notes; how the last attempt ended."""
    path, lines = run / "events.jsonl", []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            one = json.loads(text)
            if one["kind"] in SAID:
                moment = f"{one['time']}  " if one.get("time") else ""
                about = SAID[one["kind"]].format(**one)
                lines.append(f"{moment}round {one['round']}: {about}")
    outcome = outcome_of(run)
    if outcome:
        lines.append(f"the last attempt: {outcome['outcome']}" + f" ({outcome['message']})" * bool(outcome["message"]))
    return lines or ["nothing yet: no attempt at it has begun"]


# -------------------------------------------------------------------------------------------------------------- status
def sites_of(folder: Path, session: Session) -> list[dict[str, Any]]:
    """Members, and sites that were: connected or not, when last heard of, with which version they last joined."""
    gone = removed(folder)
    found = session.system()
    moment = datetime.datetime.fromtimestamp
    seen = {name: moment(at).isoformat(" ", "seconds") for name, at in (found.heard if found else {}).items()}
    versions: dict[str, str] = {}
    for path in sorted((folder / "runs").glob(f"*/{VERSIONS}"), key=lambda one: one.stat().st_mtime):
        versions |= json.loads(path.read_text(encoding="utf-8"))
    return [
        {
            "site": name,
            "connected": name in seen,
            "removed": name in gone,
            "last_seen": seen.get(name),
            "version": versions.get(name),
        }
        for name in sorted({*members(folder), *gone, *seen})
    ]


def runs_of(folder: Path) -> list[dict[str, Any]]:
    """Every run: its state, how far it is, over which sites."""
    found = []
    for path in sorted((folder / "runs").glob("*/config.yaml")):
        run = path.parent
        status, outcome = status_of(run), outcome_of(run)
        begun = "method" in status
        if begun and status["status"] == "finished" and not finished(run):
            status = status_of(run / BASELINE)
        state = "finished" if finished(run) else outcome.get("outcome") or status.get("status")
        rows = sum(_lines(place / "rounds.jsonl") for place in (run, run / BASELINE))
        asked = read_yaml(path)
        total = int((asked.get("train") or {}).get("rounds", 0)) * (2 if asked.get("baseline") else 1)
        if outcome.get("message") == WITHDRAWN:
            state = "withdrawn"
        sites = json.loads((run / SITES).read_text(encoding="utf-8")) if (run / SITES).exists() else {}
        found.append(
            {
                "run": run.name,
                "state": state if begun or outcome else "waiting",
                "rounds": rows,
                "of": total,
                "sites": sorted(set(sites.values())),
                "message": outcome.get("message") or status.get("message") or "",
            }
        )
    return found


def _lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0
