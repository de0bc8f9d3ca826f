"""Attempts at a run: what decides whether there is another one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the package nvflare: pip install 'fairsilo[flare]'")

from nvflare.apis.utils.format_check import name_check

from fairsilo.config import experiment
from fairsilo.deploy.attempts import FAILED, FEW, FINISHED, PAUSED, outcome_of, write_outcome, write_present
from fairsilo.deploy.flare import administration, supervisor
from fairsilo.deploy.flare.jobs import write_job
from fairsilo.deploy.flare.machines import System
from fairsilo.deploy.flare.server import FederationController
from fairsilo.deploy.flare.supervisor import MOST, Supervisor, submit, waiting
from fairsilo.errors import FairsiloError
from fairsilo.runs.inventory import kept
from fairsilo.runs.lock import in_use, locked
from fairsilo.tracking.registry import HANDED_ON
from tiny_sites import settings


class Fake:
    """A server whose jobs end at once, each by an act on the run folder."""

    def __init__(self, run: Path, *acts: Callable[[Path], object]) -> None:
        self.run, self.acts, self.jobs = run, list(acts), 0
        self.problem = ""
        self.since, self.heard = 1.0, {"print": 0.0, "scan": 0.0}
        self.ended = True

    def system(self) -> System:
        return System(self.since, dict(self.heard))

    def submit(self, job: Path) -> str:
        assert job.is_absolute()
        assert json.loads((job / "meta.json").read_text())["name"] == self.run.name
        self.jobs += 1
        if self.acts:
            self.acts.pop(0)(self.run)
        return f"job-{self.jobs}"

    def status(self, job: str) -> str:
        return "FINISHED:COMPLETED" if self.ended else "RUNNING"

    def abort(self, job: str) -> None:
        self.aborted = job

    def close(self) -> None: ...


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("POLL", "WAIT"):
        monkeypatch.setattr(supervisor, name, 0.001)
    return submit(tmp_path, experiment({**settings(), "method": "fedavg"}), "first")


def seen_through(run: Path, *acts: Callable[[Path], object]) -> tuple[str, Fake, list[str]]:
    fake, said = Fake(run, *acts), list[str]()
    found = Supervisor(run.parents[1], fake, lambda: None, said.append).see_through(run)  # type: ignore[arg-type]
    return found, fake, said


def rounds(number: int) -> Callable[[Path], None]:
    """An attempt that is cut off after so many rounds."""

    def act(run: Path) -> None:
        (run / "checkpoint").mkdir(exist_ok=True)
        (run / "checkpoint" / f"server-{number:06d}.safetensors").touch()

    return act


def ended(outcome: str) -> Callable[[Path], None]:
    return lambda run: write_outcome(run, outcome, "because")


def test_a_run_is_tried_until_it_is_finished(run: Path) -> None:
    found, fake, said = seen_through(run, rounds(1), rounds(2), ended(PAUSED), ended(FEW), ended(FINISHED))
    assert (found, fake.jobs) == (FINISHED, 5)
    assert "the attempt was cut off after round 1" in said[1]
    assert "too few sites (because) after round 2" in said[-3]


def test_what_cannot_run_is_not_tried_again(run: Path) -> None:
    found, fake, _ = seen_through(run, ended(FAILED))
    assert (found, fake.jobs) == (FAILED, 1)
    assert waiting(run.parents[1]) == []


def test_attempts_without_a_further_round_come_to_an_end(run: Path) -> None:
    found, fake, _ = seen_through(run, rounds(1))
    assert (found, fake.jobs) == (FAILED, MOST + 1)
    assert "ended without a further round" in outcome_of(run)["message"]


def test_a_server_that_was_started_anew_has_lost_its_job(run: Path) -> None:
    fake, said = Fake(run), list[str]()

    def restarted(_: Path) -> None:
        fake.since, fake.ended = 2.0, False

    def finishes(found: Path) -> None:
        fake.ended = True
        write_outcome(found, FINISHED)

    fake.acts = [restarted, finishes]
    one = Supervisor(run.parents[1], fake, lambda: None, said.append)  # type: ignore[arg-type]
    original = fake.system
    fake.system = lambda: System(1.0 if fake.jobs == 0 else fake.since, fake.heard)  # type: ignore[method-assign]
    assert one.see_through(run) == FINISHED
    assert fake.jobs == 2
    assert any("the server was started anew, and its job is lost" in line for line in said)
    assert original().since == 2.0


@pytest.mark.parametrize(("heard", "pauses"), [(1e12, True), (0.0, False)])
def test_an_attempt_is_called_back_for_a_site_that_is_there_again(run: Path, heard: float, pauses: bool) -> None:
    """Only where it was heard of after it was lost: a site that died stays on the list for a while."""
    assert called_back(run, {"print": heard, "scan": heard}, before=("print", "scan")) == pauses


def called_back(run: Path, heard: dict[str, float], before: tuple[str, ...]) -> bool:
    """Of a run with two sites, one of which the attempt under way has."""
    (run / "sites.json").write_text(json.dumps({"a": "print", "b": "scan"}))
    write_present(run, ["print"])
    one = Supervisor(run.parents[1], Fake(run), lambda: None)  # type: ignore[arg-type]
    one._call_back(run, System(1.0, heard), before)
    return (run / "pause").exists()


@pytest.mark.parametrize(("before", "pauses"), [(("print",), True), (("print", "sketch"), False)])
def test_an_attempt_is_called_back_for_a_site_that_is_new(run: Path, before: tuple[str, ...], pauses: bool) -> None:
    """Not for one that was there when the job was submitted: it has a part in it, or will get none by another job."""
    assert called_back(run, {"print": 1e12, "sketch": 1e12}, before) == pauses


def test_no_attempt_is_called_back_for_newcomers_that_the_run_does_not_take(tmp_path: Path) -> None:
    chosen = experiment({**settings(engine={"newcomers": False}), "method": "fedavg"})
    assert not called_back(submit(tmp_path, chosen), {"print": 1e12, "sketch": 1e12}, ("print",))


def test_a_run_waits_for_as_long_as_its_server_lives(run: Path) -> None:
    """Also one whose last attempt ended for want of sites, and not one that is withdrawn."""
    folder, few = run.parents[1], submit(run.parents[1], experiment({**settings(), "method": "fedavg"}), "few")
    withdrawn = submit(folder, experiment({**settings(), "method": "fedavg"}), "withdrawn")
    write_outcome(few, FEW, "no site is there that trains")
    administration.withdraw(folder, "withdrawn")

    def states() -> list[str]:
        return [kept(one).state for one in (run, few, withdrawn)]

    assert states() == ["interrupted", "interrupted", "stopped"]
    seen = []
    with administration.held(folder):
        seen_through(run, lambda _: seen.extend(states()), ended(FINISHED))  # an attempt can take the run's own lock
        with locked(run):
            assert kept(run).state == "running"
    assert seen == ["waiting", "waiting", "stopped"]
    assert states()[1:] == ["interrupted", "stopped"]


def test_the_server_holds_its_runs_and_hands_trackers_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    given: list[Any] = []

    def serve(folder: Path, *others: Any) -> None:
        given.append((in_use(folder / "runs"), json.loads(others[-1][HANDED_ON])))

    monkeypatch.setattr(administration, "_serve", serve)
    monkeypatch.setattr(administration, "refuse_taken", lambda _: None)
    monkeypatch.setattr(administration.Profile, "read", lambda _: None)
    administration.start(tmp_path, told.append)
    administration.start(tmp_path, told.append, track=[f"tensorboard:{tmp_path}/logs"], anonymous=True)
    assert given == [
        (True, {"texts": [], "anonymous": False}),
        (True, {"texts": [f"tensorboard:{tmp_path}/logs"], "anonymous": True}),
    ]
    with pytest.raises(FairsiloError, match="there is no tracker 'tensorbord'"):
        administration.start(tmp_path, told.append, track=["tensorbord"])
    assert len(given) == 2
    assert not in_use(tmp_path / "runs")


def test_a_server_cannot_be_kept_from_a_run_by_a_tracker(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    controller = FederationController("first")
    monkeypatch.setattr(controller, "log_error", lambda _, text: told.append(text))
    for wrong in ('{"texts": ["tensorbord"]}', "no JSON"):
        monkeypatch.setenv(HANDED_ON, wrong)
        assert controller._trackers(None) == []  # type: ignore[arg-type]
    assert ["the run is not tracked: " in line for line in told] == [True, True]
    monkeypatch.setenv(HANDED_ON, '{"texts": ["tensorboard"], "anonymous": true}')
    assert [(one.label, one.anonymous) for one in controller._trackers(None)] == [("tensorboard", True)]  # type: ignore[arg-type]


def test_runs_have_names_of_their_own(run: Path) -> None:
    folder, chosen = run.parents[1], experiment({**settings(), "method": "fedavg"})
    assert submit(folder, chosen).name == "fedavg-seed0"
    assert submit(folder, chosen).name == "fedavg-seed0-2"
    with pytest.raises(FairsiloError, match="first exists already"):
        submit(folder, chosen, "first")
    assert [one.name for one in waiting(folder)] == ["fedavg-seed0", "fedavg-seed0-2", "first"]
    assert {one["state"] for one in administration.runs_of(folder)} == {"waiting"}


def test_a_job_is_ended_when_its_run_is_withdrawn(run: Path) -> None:
    fake = Fake(run, lambda found: administration.withdraw(found.parents[1], "first"))
    fake.ended = False
    found = Supervisor(run.parents[1], fake, lambda: None, lambda _: None).see_through(run)  # type: ignore[arg-type]
    assert (found, fake.aborted, fake.jobs) == (FAILED, "job-1", 1)


def test_a_job_that_does_not_end_with_its_attempt_is_ended(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE waits long for a site that was removed."""
    monkeypatch.setattr(supervisor, "ENDING", 0.01)
    fake = Fake(run, ended(FINISHED))
    fake.ended = False
    found = Supervisor(run.parents[1], fake, lambda: None, lambda _: None).see_through(run)  # type: ignore[arg-type]
    assert (found, fake.aborted, fake.jobs) == (FINISHED, "job-1", 1)


def test_a_job_is_given_time_to_end_with_its_attempt(run: Path) -> None:
    fake = Fake(run, ended(FINISHED))
    statuses = iter(("RUNNING", "RUNNING", "FINISHED:COMPLETED"))
    fake.status = lambda _: next(statuses)  # type: ignore[method-assign]
    found = Supervisor(run.parents[1], fake, lambda: None, lambda _: None).see_through(run)  # type: ignore[arg-type]
    assert (found, hasattr(fake, "aborted")) == (FINISHED, False)


def test_a_run_can_be_withdrawn(run: Path) -> None:
    folder = run.parents[1]
    administration.withdraw(folder, "first")
    assert waiting(folder) == []
    (found,) = administration.runs_of(folder)
    assert (found["state"], found["message"]) == ("withdrawn", "withdrawn by the administrator")
    with pytest.raises(FairsiloError, match="there is no run 'second'; there are: first"):
        administration.withdraw(folder, "second")


def test_a_job_has_a_name_that_flare_takes_whatever_the_run_is_called(tmp_path: Path) -> None:
    run = submit(tmp_path, experiment({**settings(), "method": "fedprox(mu=0.1) | fedheal"}))
    job = write_job(tmp_path / "job", run.name)
    named = json.loads((job / "meta.json").read_text())["name"]
    assert name_check(job.name, "job_name")[0] is False
    assert named == job.name
    server = json.loads((job / "app" / "config" / "config_fed_server.json").read_text())
    assert server["workflows"][0]["args"]["run"] == run.name  # the folder that the run is in


def test_why_a_job_is_not_taken_is_said(run: Path) -> None:
    class Refusing(Fake):
        def submit(self, job: Path) -> None:  # type: ignore[override]
            self.problem = "job name is not well formed"

    said: list[str] = []
    found = Supervisor(run.parents[1], Refusing(run), lambda: None, said.append).see_through(run)  # type: ignore[arg-type]
    assert found == FAILED
    assert "first: the server did not take the job: job name is not well formed" in said


@pytest.mark.parametrize("changes", [{"method": "fedporx"}, {"method": "fedavg", "baseline": "fedporx"}])
def test_a_method_that_does_not_exist_is_not_submitted(tmp_path: Path, changes: dict[str, str]) -> None:
    with pytest.raises(FairsiloError, match="did you mean 'fedprox'"):
        submit(tmp_path, experiment({**settings(), **changes}))
    assert not (tmp_path / "runs").exists()


def test_what_happened_in_a_run_in_lines(run: Path) -> None:
    assert administration.told_of(run) == ["nothing yet: no attempt at it has begun"]
    told = [
        {"kind": "method", "round": 0, "silo": "", "text": "fedavg", "time": "2026-01-01 10:00:00"},
        {"kind": "reply", "round": 1, "silo": "a", "text": "train"},
        {"kind": "failed", "round": 1, "silo": "b", "text": "lost: its site is not connected"},
        {"kind": "round", "round": 1, "silo": "", "text": ""},
    ]
    (run / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in told) + '{"cut')
    write_outcome(run, FEW, "no site is there that trains")
    assert administration.told_of(run) == [
        "2026-01-01 10:00:00  round 0: fedavg begins",
        "round 1: silo b left out (lost: its site is not connected)",
        "round 1: done",
        "the last attempt: too few sites (no site is there that trains)",
    ]
    (state,) = administration.runs_of(run.parents[1])
    assert (state["rounds"], state["of"]) == (0, 2)
    administration.withdraw(run.parents[1], "first")
    (state,) = administration.runs_of(run.parents[1])
    assert state["state"] == "withdrawn"
