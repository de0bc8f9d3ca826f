"""Sees runs through: each is a sequence of disposable jobs over its run folder's checkpoint."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path

from fairsilo.config import Experiment
from fairsilo.core.disk import numbers
from fairsilo.deploy.attempts import (
    FAILED,
    FEW,
    FINISHED,
    PAUSE,
    WITHDRAWN,
    forget_outcome,
    outcome_of,
    present_in,
    write_outcome,
)
from fairsilo.deploy.brief import Brief
from fairsilo.deploy.flare.jobs import write_job
from fairsilo.deploy.flare.machines import Session, System
from fairsilo.deploy.serving import SITES
from fairsilo.errors import FairsiloError
from fairsilo.methods.pieces import references
from fairsilo.methods.text import method
from fairsilo.runs.folder import BASELINE, finished, slug
from fairsilo.runs.opened import read_experiment
from fairsilo.runs.running import start_folder
from fairsilo.runs.setup import Objects

POLL = 0.3  # seconds
MOST = 5  # attempts in a row that end without a further round
PATIENCE = 60.0  # seconds that a run which has begun waits for all of its sites
WAIT = 10.0  # seconds before another attempt where too few sites were there
ENDING = (
    15.0  # seconds for a job to end after its attempt did; FLARE waits much longer for what a site says that is gone
)


def submit(folder: Path, experiment: Experiment, name: str | None = None) -> Path:
    """A run of a federation, to be begun by whoever supervises it; returns its run folder."""
    Brief.of(experiment)
    for text in filter(None, (experiment.method, experiment.baseline)):
        if not references(text):  # code of other packages is looked for where it runs
            method(text)
    base = slug(name or f"{experiment.method}-seed{experiment.seed}")
    for number in range(1, 10_000):
        place = folder / "runs" / (base if number == 1 else f"{base}-{number}")
        if not place.exists():
            start_folder(place, experiment, Objects())
            return place
        if name:
            break
    raise FairsiloError(f"{place} exists already; give the run another name")


def waiting(folder: Path) -> list[Path]:
    """Runs that are not at their end, in the order of their names."""
    found = sorted(path.parent for path in (folder / "runs").glob("*/config.yaml"))
    return [one for one in found if not _at_its_end(one)]


def _at_its_end(run: Path) -> bool:
    return finished(run) or outcome_of(run).get("outcome") in (FINISHED, FAILED)


class Supervisor:
    """Makes attempts at a run until it is at its end.

    Args:
        folder: The federation's.
        session: The administrator's connection.
        tend: Called often; keeps the server's process running.
        say: Told what happens, a sentence at a time.
    """

    def __init__(
        self, folder: Path, session: Session, tend: Callable[[], object], say: Callable[[str], object] = print
    ) -> None:
        self.folder = folder.resolve()  # FLARE takes a relative path for one in a folder of its own
        self.session, self.tend, self.say = session, tend, say

    def see_through(self, run: Path, least: int = 1, stop: Callable[[], bool] = lambda: False) -> str:
        """Attempts at a run until it is finished or failed; returns its outcome.

        Args:
            run: Its folder.
            least: Sites that must be connected before the first attempt; later ones wait for so many a while only.
            stop: Whether to give up supervising, without an outcome.
        """
        fruitless, waited = 0, time.monotonic()
        while not stop():
            if _at_its_end(run):
                return str(outcome_of(run).get("outcome", FINISHED))
            patient = not (run / SITES).exists() or time.monotonic() - waited < PATIENCE
            if not self._sites_there(least if patient else 1, stop):
                continue
            before = _rounds_done(run)
            self.attempt(run, stop)
            outcome = outcome_of(run)
            fruitless, waited = 0 if _rounds_done(run) > before else fruitless + 1, time.monotonic()
            self.say(f"{run.name}: {_words(outcome)} after round {_rounds_done(run)}")
            if outcome.get("outcome") == FEW:
                self._wait(WAIT, stop)
                fruitless = 0
            elif fruitless >= MOST:
                write_outcome(run, FAILED, f"{MOST} attempts in a row ended without a further round")
        return ""

    def _sites_there(self, least: int, stop: Callable[[], bool]) -> bool:
        """Whether enough sites are connected; looks again a little later where not."""
        self.tend()
        found = self.session.system()
        if found is not None and len(found.sites) >= least:
            return True
        self._wait(POLL, stop)
        return False

    def attempt(self, run: Path, stop: Callable[[], bool]) -> None:
        """One job, from its submission to its end, or to that of the server it ran on."""
        forget_outcome(run)
        system = self.session.system()
        job_folder = write_job(self.folder / "flare" / "job", run.name)
        job = self.session.submit(job_folder)
        shutil.rmtree(job_folder, ignore_errors=True)
        if job is None or system is None:
            self.say(f"{run.name}: the server did not take the job: {self.session.problem or 'it is not there'}")
            self._wait(WAIT, stop)
            return
        self.say(f"{run.name}: job {job} over {', '.join(system.sites)}")
        done: float | None = None  # when the attempt was
        while not stop():
            self._wait(POLL, stop)
            self.tend()
            status = self.session.status(job)
            if status is not None and status.startswith("FINISHED"):
                return
            outcome, now = outcome_of(run), time.monotonic()
            done = done or (now if outcome else None)
            if outcome.get("message") == WITHDRAWN or (done and now - done > ENDING):
                break
            found = self.session.system()
            if found is not None and found.since != system.since:
                self.say(f"{run.name}: the server was started anew, and its job is lost")
                return
            if found is not None:
                self._call_back(run, found, system.sites)
        self.session.abort(job)

    def _call_back(self, run: Path, system: System, before: Collection[str]) -> None:
        """Let the attempt end at the next round where a site is there that is not part of the job.

        Either one of the run's that is there again, or one that came after the job was submitted: a site that was
        connected then and got no part in it would not get one by another job.
        """
        noted = present_in(run)
        if noted is None or not (run / SITES).exists() or (run / PAUSE).exists():
            return
        present, since = noted
        known = set(json.loads((run / SITES).read_text(encoding="utf-8")).values())
        outside = {site for site, heard in system.heard.items() if heard > since} - set(present)
        if outside & known or (outside - set(before) and read_experiment(run, trust=True).engine.newcomers):
            (run / PAUSE).touch()

    def _wait(self, seconds: float, stop: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not stop():
            time.sleep(min(POLL, seconds))
            self.tend()


def _rounds_done(run: Path) -> int:
    """Of the method, and of its baseline after it."""
    places = [place / "checkpoint" for place in (run, run / BASELINE)]
    return sum(max(numbers(place, "server"), default=0) for place in places if place.exists())


def _words(outcome: dict[str, str]) -> str:
    said = outcome.get("message")
    return f"{outcome.get('outcome', 'the attempt was cut off')}" + (f" ({said})" if said else "")
