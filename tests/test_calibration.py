"""Which engine `auto` takes, and that a checkpoint is written behind the next round."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

import tiny
from fairsilo import Event, run
from fairsilo.data.federation import Federation
from fairsilo.runs import calibration
from fairsilo.runs.calibration import START, chosen, seconds_a_step
from fairsilo.runs.folder import RunFolder


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


def test_a_run_says_what_it_chose() -> None:
    notes: list[str] = []

    def listener(event: Event) -> None:
        if event.kind == "note":
            notes.append(event.text)

    run(method="fedavg", rounds=1, epochs=1, listener=listener)
    assert [note for note in notes if note.startswith(("engine sequential: a step", "engine processes with"))]


# ---------------------------------------------------------------------------------------------------------- checkpoints
class Watching(RunFolder):
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
    found = RunFolder(tmp_path / "run").read_checkpoint()
    assert found is not None
    assert found[0] == 1
    assert watched(people, tmp_path / "run")[0].run().rows == whole.rows
