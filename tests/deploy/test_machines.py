"""Real servers and sites over mutual TLS: the numbers of a simulation, whatever is killed on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from system import System, seen
from tiny_sites import simulated

pytestmark = [pytest.mark.deploy, pytest.mark.filterwarnings("default")]


def rows(folder: Path, name: str = "metrics") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def assert_same(run: Path, here: Path) -> None:
    assert rows(run) == rows(here)
    ours, theirs = (load_file(one / "models" / "global.safetensors") for one in (run, here))
    assert all(bool((ours[key] == theirs[key]).all()) for key in ours)
    assert [row["round"] for row in rows(run, "rounds")] == [row["round"] for row in rows(here, "rounds")]


@pytest.mark.parametrize("how", ["fedavg", "scaffold", "fedheal", "fft-gp", "ditto", "fedbn"])
def test_numbers_are_those_of_a_simulation(how: str, system: System, tmp_path: Path) -> None:
    run = system.begun(f"same-{how}", how)
    assert system.run(run) == "finished", system.said
    simulated(tmp_path / "here", how)
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
