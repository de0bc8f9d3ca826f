"""Real servers and sites over mutual TLS: the numbers of a simulation, whatever is killed on the way."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from system import System, events, seen
from tiny_sites import TRAIN, images, settings_for, simulated, write_site

pytestmark = [pytest.mark.deploy, pytest.mark.filterwarnings("default")]


def rows(folder: Path, name: str = "metrics") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def assert_same(run: Path, here: Path) -> None:
    assert rows(run) == rows(here)
    ours, theirs = (load_file(one / "models" / "global.safetensors") for one in (run, here))
    assert all(bool((ours[key] == theirs[key]).all()) for key in ours)
    assert [row["round"] for row in rows(run, "rounds")] == [row["round"] for row in rows(here, "rounds")]


SAME = ["fedavg", "scaffold", "fedheal", "fft-gp", "ditto", "fedbn", "fedclip", "scaffold | secure-aggregation"]


@pytest.mark.parametrize("how", SAME)
def test_numbers_are_those_of_a_simulation(how: str, system: System, tmp_path: Path) -> None:
    run = system.begun(f"same-{SAME.index(how)}", how, **settings_for(how))
    assert system.run(run) == "finished", system.said
    simulated(tmp_path / "here", how, **settings_for(how))
    assert_same(run, tmp_path / "here")
    assert (run / "report.html").exists()


LONGER: dict[str, Any] = {"train": {"rounds": 4, "epochs": 12, "lr": 0.02, "batch_size": 8}}


def test_a_job_process_that_is_killed_twice(system: System, tmp_path: Path) -> None:
    """A stateful method, so that a step that counted twice would show."""
    run = system.begun("killed-job", "scaffold", **LONGER)
    acts = [(seen("opened", 2), lambda: system.kill_job("scan")), (seen("opened", 3), lambda: system.kill_job("print"))]
    with system.meanwhile(*acts, run=run) as done:
        assert system.run(run) == "finished", system.said
    assert len(done) == 2
    simulated(tmp_path / "here", "scaffold", **LONGER)
    assert_same(run, tmp_path / "here")


def test_a_server_that_is_killed(system: System, tmp_path: Path) -> None:
    run = system.begun("killed-server", "ditto", **LONGER)
    with system.meanwhile((seen("opened", 3), system.kill_server), run=run) as done:
        assert system.run(run) == "finished", system.said
    assert done
    simulated(tmp_path / "here", "ditto", **LONGER)
    assert_same(run, tmp_path / "here")


SOME: dict[str, Any] = {"train": {**LONGER["train"], "quorum": 0.5}}


def counted(run: Path) -> list[list[str]]:
    return [row["counted"] for row in rows(run, "rounds")]


def test_a_site_that_stays_away(system: System) -> None:
    """The run goes on without it, and names it."""
    run = system.begun("stays-away", "fedavg", **SOME)
    try:
        with system.meanwhile((seen("opened", 2), lambda: system.kill_site("scan", stays_away=True)), run=run) as done:
            assert system.run(run) == "finished", system.said
        assert done
        assert counted(run)[0] == ["print", "scan", "sketch"]
        assert counted(run)[2:] == [["print", "sketch"]] * 2
        failures = [(one["silo"], one["kind"]) for row in rows(run, "rounds") for one in row["failures"]]
        assert ("scan", "lost") in failures
        assert {silo for silo, _ in failures} == {"scan"}
    finally:
        system.away.discard("scan")
        system.tend()


def test_a_site_that_comes_back(system: System) -> None:
    """It is killed with all its processes, started again, and takes part in a later round."""
    longer = {"train": {**SOME["train"], "rounds": 8, "epochs": 40}}
    run = system.begun("comes-back", "scaffold", **longer)
    with system.meanwhile((seen("opened", 2), lambda: system.kill_site("scan")), run=run) as done:
        assert system.run(run, 400) == "finished", system.said
    assert done
    assert len(counted(run)) == 8
    assert counted(run)[-1] == ["print", "scan", "sketch"], system.said


def test_one_site_joins_and_another_leaves_for_good(system: System) -> None:
    """A member is started for the first time when the run is under way; when it has joined, another site is gone."""
    longer = {"train": {**SOME["train"], "rounds": 8, "epochs": 40}}
    run = system.begun("joins-and-leaves", "scaffold", **longer)
    system.away.add("late")
    system.admit("late", folder=str(images() / "sketch"))
    acts = [
        (seen("opened", 2), lambda: system.away.discard("late")),
        (answered("late"), lambda: system.kill_site("print", stays_away=True)),
    ]
    try:
        with system.meanwhile(*acts, run=run) as done:
            assert system.run(run, 400) == "finished", system.said
        assert len(done) == 2
        who = counted(run)
        assert len(who) == 8
        first = next(number for number, silos in enumerate(who, start=1) if "late" in silos)
        assert 2 < first <= 7
        assert who[: first - 1] == [["print", "scan", "sketch"]] * (first - 1)
        assert who[-1] == ["late", "scan", "sketch"]
        page = (run / "report.html").read_text()
        assert f"late joined in round {first}." in page
        gone = next(number for number, silos in enumerate(who, start=1) if "print" not in silos)
        assert f"print gave no usable answer from round {gone} on: its site is not connected." in page
    finally:
        system.away.clear()
        system.dismiss("late")
        system.tend()


def answered(silo: str) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda told: any((one["kind"], one["silo"]) == ("reply", silo) for one in told)


def test_a_kill_during_a_probe_and_one_while_a_checkpoint_is_written(system: System, tmp_path: Path) -> None:
    run = system.begun("killed-probe", "faa(warmup=0)", **LONGER)
    acts = [(seen("trained", 2), lambda: system.kill_job("sketch")), (seen("evaluated", 3), system.kill_server)]
    with system.meanwhile(*acts, run=run) as done:
        assert system.run(run, 400) == "finished", system.said
    assert len(done) == 2
    simulated(tmp_path / "here", "faa(warmup=0)", **LONGER)
    assert_same(run, tmp_path / "here")


def test_a_site_slower_than_the_deadline_is_left_out_of_the_round(system: System) -> None:
    run = system.begun("slow", "scaffold", **SOME, engine={"timeout": 12})
    acts = [
        (seen("opened", 2), lambda: system.freeze("scan", signal.SIGSTOP)),
        (seen("closed", 2), lambda: system.freeze("scan", signal.SIGCONT)),
    ]
    with system.meanwhile(*acts, run=run) as done:
        assert system.run(run) == "finished", system.said
    assert len(done) == 2
    found = rows(run, "rounds")
    assert found[1]["counted"] == ["print", "sketch"]
    assert ("scan", "timeout") in [(one["silo"], one["kind"]) for one in found[1]["failures"]]
    assert found[3]["counted"] == ["print", "scan", "sketch"]


MARKER = "patient-4711"


def bytes_in(*folders: Path) -> bytes:
    return b"".join(path.read_bytes() for one in folders for path in sorted(one.rglob("*")) if path.is_file())


@pytest.mark.parametrize("where", ["class", "state"])
def test_nothing_that_a_site_did_not_mean_to_say_is_at_the_server(where: str, system: System, tmp_path: Path) -> None:
    """A label, or a path in an exception, bears a mark: the site's own log has it, nothing of the server's does."""
    shutil.copytree(images() / "scan", tmp_path / MARKER)
    if where == "class":
        (tmp_path / MARKER / "3").rename(tmp_path / MARKER / f"{MARKER}-label")
    (tmp_path / f"{MARKER}-file").touch()
    state = f"{tmp_path}/{MARKER}-file/state" if where == "state" else "state"
    run = system.begun(f"marked-{where}", "fedavg", train={**TRAIN, "quorum": 0.5})
    before = bytes_in(system.site("scan") / "kit", system.site("scan") / "logs").count(MARKER.encode())
    try:
        write_site(system.site("scan"), "scan", folder=str(tmp_path / MARKER), state=state)
        assert system.run(run) == "finished", system.said
    finally:
        write_site(system.site("scan"), "scan")
    assert MARKER.encode() not in bytes_in(system.folder)
    assert bytes_in(system.site("scan") / "kit", system.site("scan") / "logs").count(MARKER.encode()) > before
    told = [one["text"] for one in events(run) if one["kind"] in ("note", "failed")]
    assert any("scan" in text or "its step failed" in text or "could not make sense" in text for text in told), told
