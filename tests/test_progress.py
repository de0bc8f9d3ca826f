"""Progress where there is no terminal: every line says of which run it is and how long that will still take."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fairsilo.analysis.remaining import roughly, runs_left
from fairsilo.cli import progress
from fairsilo.cli.ahead import Ahead, in_all
from fairsilo.cli.progress import ProgressListener
from fairsilo.config import experiment
from fairsilo.engine.events import Event
from fairsilo.runs.cells import Cell

RUN = "fedprox(mu=0.1) | fedheal (photo held out, seed 3)"


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def tell(listener: ProgressListener, clock: Clock, done: int, rounds: int, took: list[float]) -> None:
    """A run that is resumed after `done` rounds; the next ones take so many seconds."""
    clock.now += 500  # before a run there is data to be read, which says nothing about its rounds
    listener(Event("method", 0, rounds, text="fedprox(mu=0.1) | fedheal", where="photo held out, seed 3"))
    listener(Event("start", done, rounds))
    for number, seconds in enumerate(took, done + 1):
        clock.now += seconds
        for silo, loss in (("a", 0.5), ("b", 1.5)):
            listener(Event("reply", number, rounds, silo=silo, text="train", loss=loss))
        listener(Event("evaluated", number, rounds))
        listener(Event("round", number, rounds))


def lines_of(clock: Clock, *runs: tuple[int, int, list[float]]) -> list[str]:
    """What is printed of runs, one after the other."""
    screen = io.StringIO()
    with ProgressListener(Console(file=screen, width=80)) as listener:
        for done, rounds, took in runs:
            tell(listener, clock, done, rounds, took)
    return screen.getvalue().splitlines()


def test_a_line_names_method_domain_and_seed_and_the_time_left(clock: Clock) -> None:
    assert lines_of(clock, (0, 4, [9.0, 2.0, 4.0, 3.0])) == [
        f"{RUN}: round 1/4, training loss 1.000, 9 s, 0:27 left",
        f"{RUN}: round 2/4, training loss 1.000, 11 s, 0:04 left",  # the first makes things ready, and does not count
        f"{RUN}: round 3/4, training loss 1.000, 15 s, 0:03 left",
        f"{RUN}: round 4/4, training loss 1.000, 18 s",
    ]


def test_of_a_resumed_run_the_rounds_since_then_count(clock: Clock) -> None:
    assert lines_of(clock, (5, 10, [60.0, 30.0, 40.0])) == [
        f"{RUN}: round 6/10, training loss 1.000, 60 s, 4:00 left",
        f"{RUN}: round 7/10, training loss 1.000, 90 s, 1:30 left",
        f"{RUN}: round 8/10, training loss 1.000, 130 s, 1:10 left",
    ]


def test_a_run_after_another_begins_with_a_clock_of_its_own(clock: Clock) -> None:
    assert lines_of(clock, (0, 2, [100.0, 100.0]), (0, 2, [5.0]))[-1].endswith(" 5 s, 0:05 left")


def test_a_silo_that_is_left_out_is_told_with_its_run() -> None:
    screen = io.StringIO()
    with ProgressListener(Console(file=screen, width=80)) as listener:
        listener(Event("method", 0, 4, text="fedavg", where="photo held out, seed 3"))
        listener(Event("failed", 2, 4, silo="b", text="timeout: no answer within 60 s"))
    said = "fedavg (photo held out, seed 3), round 2: silo b left out (timeout: no answer within 60 s)\n"
    assert screen.getvalue() == said


# ------------------------------------------------------------------------------------------------------- a comparison
def planned(folder: Path, *methods: str, seeds: int = 1) -> list[Cell]:
    """Runs of four rounds that have not begun."""
    settings = {"rounds": 4, "held_out": "photo"}
    return [
        Cell(experiment({**settings, "method": method, "seed": seed}), folder / method / f"photo-seed{seed}", method)
        for method in methods
        for seed in range(seeds)
    ]


def note(cell: Cell, status: str, rounds: int = 4, seconds: float = 0.0) -> None:
    """What a run leaves in its folder."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    (cell.folder / "run.json").write_text(json.dumps({"status": status, "seconds": seconds}))
    (cell.folder / "rounds.jsonl").write_text("{}\n" * rounds)


def test_a_run_takes_the_mean_of_its_method_and_an_unknown_one_that_of_all() -> None:
    took = {"fedavg": [10.0, 20.0], "faa": [60.0]}
    assert runs_left(took, [("fedavg", 1.0)]) == 15
    assert runs_left(took, [("fedavg", 0.2), ("faa", 0.5), ("afl", 1.0)]) == pytest.approx(3 + 30 + 30)
    assert runs_left(took, [("faa", 1.0), ("faa", 1.0), ("fedavg", 1.0)], at_once=2) == 75
    assert runs_left(took, []) == runs_left({}, []) == 0
    assert runs_left({}, [("fedavg", 1.0)]) is None


def test_runs_that_were_there_before_tell_nothing_of_the_time(tmp_path: Path) -> None:
    """Whole ones and halves; of a half the rest is left."""
    cells = planned(tmp_path, "fedavg", "faa", seeds=3)
    note(cells[0], "finished", seconds=1000.0)
    note(cells[1], "interrupted", rounds=3, seconds=900.0)
    ahead = Ahead(cells)
    assert [ahead.which(cell.folder) for cell in cells[:2]] == ["run 1 of 6", "run 2 of 6"]
    assert ahead.which(tmp_path) == ahead.which(None) == ""
    assert ahead.left() is None
    note(cells[1], "finished", seconds=920.0)
    assert ahead.left() is None
    note(cells[2], "finished", seconds=100.0)
    assert ahead.left() == 300
    note(cells[3], "finished", seconds=60.0)
    note(cells[4], "running", rounds=1)
    assert ahead.left() == 45 + 60
    assert ahead.left(but=cells[4].folder) == 60
    assert Ahead(cells[:2]).left() == 0  # nothing is left, and nothing was measured


def test_runs_side_by_side_are_as_many_as_are_asked_for_or_under_way(tmp_path: Path) -> None:
    cells = planned(tmp_path, "fedavg", seeds=5)
    two, unknown = Ahead(cells, 2), Ahead(cells, None)
    note(cells[0], "finished", seconds=100.0)
    assert (two.left(), unknown.left()) == (200, 400)
    for cell in cells[1:]:
        note(cell, "running", rounds=0)
    assert (two.left(), unknown.left()) == (200, 100)


def test_a_comparison_says_which_run_begins_and_what_is_left_in_all(clock: Clock, tmp_path: Path) -> None:
    cells = planned(tmp_path, "fedavg", "faa", seeds=2)
    note(cells[0], "finished", seconds=77.0)
    screen = io.StringIO()
    with ProgressListener(Console(file=screen, width=80)) as listener:
        listener.begin(cells)
        for cell, seconds in ((cells[1], 4000.0), (cells[2], 2000.0)):
            listener(Event("method", 0, 4, text=cell.row, where=cell.place, folder=cell.folder))
            note(cell, "finished", seconds=seconds)
        listener(Event("method", 0, 4, text="faa", where=cells[3].place, folder=cells[3].folder))
    assert screen.getvalue().splitlines() == [
        "run 2 of 4: fedavg (photo held out, seed 1)",
        "run 3 of 4: faa (photo held out, seed 0), about 2 h 13 min left in all",
        "run 4 of 4: faa (photo held out, seed 1), about 33 min left in all",
    ]


def test_rows_of_one_method_are_told_apart_by_their_settings(clock: Clock, tmp_path: Path) -> None:
    rows, screen = ("fedavg", "fedavg @ lr=0.02 clip=1"), io.StringIO()
    cells = [Cell(experiment({"rounds": 4, "held_out": "photo"}), tmp_path / row, row) for row in rows]
    with ProgressListener(Console(file=screen, width=80)) as listener:
        listener.begin(cells)
        for cell in cells:
            listener(Event("method", 0, 4, text="fedavg", where=cell.place, folder=cell.folder))
            listener(Event("start", 0, 4))
            listener(Event("round", 4, 4))
            listener(Event("over", 4, 4))
    assert screen.getvalue().splitlines() == [
        "run 1 of 2: fedavg (photo held out, seed 0)",
        "fedavg (photo held out, seed 0): round 4/4, training loss 0.000, 0 s",
        "run 2 of 2: fedavg @ lr=0.02 clip=1 (photo held out, seed 0)",
        "fedavg @ lr=0.02 clip=1 (photo held out, seed 0): round 4/4, training loss 0.000, 0 s",
    ]


def test_a_terminal_has_it_above_the_bar_and_adds_what_is_left_of_the_run(clock: Clock, tmp_path: Path) -> None:
    cells = planned(tmp_path, "fedavg", seeds=3)
    listener = ProgressListener(Console(file=io.StringIO(), width=80, force_terminal=True))
    heads = []
    listener.begin(cells)
    listener(Event("method", 0, 4, text="fedavg", where=cells[0].place, folder=cells[0].folder))
    heads.append(listener.bar.heading)
    note(cells[0], "finished", seconds=40.0)
    for cell in cells[1:]:
        listener(Event("method", 0, 4, text="fedavg", where=cell.place, folder=cell.folder))
        heads.append(listener.bar.heading)
        listener(Event("start", 0, 4))
        clock.now += 20.0
        listener(Event("round", 1, 4))
        heads.append(listener.bar.heading)
        note(cell, "finished", seconds=60.0)
    assert heads[1].startswith("run 2 of 3: fedavg (photo held out, seed 1)")
    assert [head.partition(" held out, seed ")[2] for head in heads] == [
        "0)",
        "1), about 80 s left in all",
        "1), about 2 min left in all",  # three rounds of 20 s and a run of 40 s
        "2), about 50 s left in all",
        "2), about 60 s left in all",
    ]


def test_a_run_by_itself_is_counted_nowhere(clock: Clock) -> None:
    listener = ProgressListener(Console(file=io.StringIO(), width=80, force_terminal=True))
    tell(listener, clock, 0, 2, [1.0])
    assert listener.bar.heading == RUN


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (99.4, "99 s"), (99.6, "2 min"), (3000, "50 min"), (6000, "1 h 40 min"), (7200, "2 h")],
)
def test_a_time_in_words_is_as_exact_as_an_estimate_is(seconds: float, words: str) -> None:
    assert roughly(seconds) == words
    assert in_all(seconds) == f", about {words} left in all"
    assert in_all(None) == in_all(0.0) == ""
