"""Progress where there is no terminal: every line says of which run it is and how long that will still take."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fairsilo.cli import progress
from fairsilo.cli.progress import ProgressListener
from fairsilo.engine.events import Event

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
