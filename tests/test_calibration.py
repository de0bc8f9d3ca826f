"""Which engine `auto` takes, and that a checkpoint is written behind the next round."""

from __future__ import annotations

import dataclasses
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import tiny
from fairsilo import compare, run
from fairsilo.data.federation import Federation
from fairsilo.runs import calibration, engines
from fairsilo.runs.calibration import START, Choice, chosen, seconds_a_step
from fairsilo.runs.saved import SavedRun
from test_cli import packed  # noqa: F401 - a fixture


def test_a_step_is_timed_on_the_runs_own_network(people: Federation) -> None:
    assert 0 < seconds_a_step(tiny.plan("fedavg"), people) < 10


@pytest.mark.parametrize(("step", "running", "kind"), [(1e-4, False, "sequential"), (1e-4, True, "processes")])
def test_processes_are_started_where_they_save_more_than_their_start(
    step: float, running: bool, kind: str, people: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "seconds_a_step", lambda *_: step)
    plan = tiny.plan("fedavg")
    found = chosen(plan, people, 2, running)
    assert found.kind == kind
    assert "a step takes about 0.1 ms" in found.why
    assert found.said.startswith(
        f"engine: {'2 processes' if running else 'one process'}, since a step takes 0.1 ms and"
    )
    assert len(found.said) < 80
    monkeypatch.setattr(calibration, "seconds_a_step", lambda *_: START)
    assert chosen(plan, people, 2, running=False).kind == "processes"


def test_who_sits_out_costs_nothing(people: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same steps, a third of the silos a round: a third of the time."""
    steps = sum(-(-len(silo.train) // tiny.TRAINING.batch_size) for silo in people.silos) * tiny.TRAINING.epochs
    whole = steps * tiny.TRAINING.rounds
    monkeypatch.setattr(calibration, "seconds_a_step", lambda *_: 90 / whole)
    few = dataclasses.replace(tiny.TRAINING, participation="1")
    assert "the run's steps 90 s" in chosen(tiny.plan("fedavg"), people, 2, running=False).why
    assert "the run's steps 30 s" in chosen(tiny.plan("fedavg", few), people, 2, running=False).why


def noted(notes: list[str]) -> Any:
    """A listener that keeps what is said of the engine."""
    return lambda event: notes.append(event.text) if event.text.startswith("engine") else None


def test_a_run_says_what_it_chose_and_its_folder_has_it_in_full(people: Federation, tmp_path: Path) -> None:
    notes: list[str] = []
    small: dict[str, Any] = {"rounds": 1, "epochs": 1, "batch_size": 8, "model": tiny.TinyNet}
    run(federation=people, method="fedavg", baseline="local", **small, listener=noted(notes), out=tmp_path / "run")
    assert len(notes) == 1
    assert notes[0].startswith(("engine: one process, since a step takes ", "engine: 2 processes, since a step takes "))
    for place in ("run", "run/baseline"):
        full = SavedRun(tmp_path / place).read_json("run.json")["engine"]
        assert full.startswith(("engine sequential: a step takes about ", "engine processes with "))


def test_a_comparison_says_it_once(
    packed: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a step takes this time, and for whatever held-out domain; its folders all have it."""
    times = count(1)

    def measured(*_: object, **__: object) -> Choice:
        return Choice("sequential", "in full", f"engine: one process, since a step takes {next(times)} ms")

    monkeypatch.setattr(engines, "engine_kind", lambda *_: ("processes", 2))
    monkeypatch.setattr(engines, "chosen", measured)
    notes: list[str] = []
    data: dict[str, Any] = {"data": {"packed": str(packed)}, "held_out": ["ink", "paint"], "seeds": [0, 1]}
    small: dict[str, Any] = {"rounds": 1, "epochs": 1, "batch_size": 8, "model": tiny.TinyNet}
    found = compare(["fedavg"], **data, **small, listener=noted(notes), out=tmp_path / "c")
    assert notes == ["engine: one process, since a step takes 1 ms"]
    assert [SavedRun(found.folder / cell["folder"]).read_json("run.json")["engine"] for cell in found.cells] == [
        "in full"
    ] * 4


# ---------------------------------------------------------------------------------------------------------- checkpoints
class Watching(SavedRun):
    """Notes in which thread checkpoints are written; fails where it is told to."""

    def __init__(self, folder: Path, fails: int | None = None) -> None:
        super().__init__(folder)
        self.fails, self.threads = fails, dict[int, bool]()

    def write_checkpoint(self, round_: int, server: Any) -> None:
        self.threads[round_] = threading.current_thread() is threading.main_thread()
        if round_ == self.fails:
            raise OSError(28, "No space left on device")
        super().write_checkpoint(round_, server)


def watched(people: Federation, folder: Path, fails: int | None = None) -> tuple[Any, Watching]:
    loop = tiny.looped(tiny.plan("scaffold"), people, folder=folder, server_data=tiny.synthetic())
    loop.records = records = Watching(folder, fails)
    return loop, records


def test_checkpoints_are_written_behind_the_next_round(people: Federation, tmp_path: Path) -> None:
    loop, records = watched(people, tmp_path / "run")
    history = loop.run()
    assert records.threads == {0: True, 1: False, 2: False, 3: False}  # 0: before training
    number, server = records.read_checkpoint() or (0, {})
    assert number == tiny.TRAINING.rounds
    assert server["vector"].equal(history.vector)


def test_a_checkpoint_that_cannot_be_written_stops_the_run_and_the_one_before_is_taken_up(
    people: Federation, tmp_path: Path
) -> None:
    whole = watched(people, tmp_path / "whole")[0].run()
    with pytest.raises(OSError, match="No space left"):
        watched(people, tmp_path / "run", fails=2)[0].run()
    found = SavedRun(tmp_path / "run").read_checkpoint()
    assert found is not None
    assert found[0] == 1
    assert watched(people, tmp_path / "run")[0].run().rows == whole.rows
