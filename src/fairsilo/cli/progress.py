"""Live progress in a terminal; one line per round where there is none."""

from __future__ import annotations

import time
from itertools import pairwise

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fairsilo.analysis.remaining import seconds_left
from fairsilo.engine.events import Event, Listener


class ProgressListener(Listener):
    """Shows round, silo, loss and time left of the method under way."""

    def __init__(self, console: Console, quiet: bool = False, rounds: bool = True) -> None:
        """Without `rounds` there is a line for each note, and none for rounds, where there is no terminal."""
        self.console = console
        self.quiet = quiet
        self.rounds = rounds
        self.method = ""
        self.losses: dict[str, float] = {}
        self.begun = time.perf_counter()
        self.bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),  # names of methods and silos are no markup
            BarColumn(bar_width=24),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[doing]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=1, doing="", left="", visible=False)
        self._ends: list[float] = []  # when the rounds before the first one, and each since, ended
        self._evaluated: list[int] = []

    def __enter__(self) -> ProgressListener:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, event: Event) -> None:
        if not self.quiet:
            super().__call__(event)

    def on_method(self, event: Event) -> None:
        self.method = f"{event.text} ({event.where})" if event.where else event.text
        self.bar.reset(self.task, total=event.rounds, description=self.method, doing="", left="", visible=True)

    def on_note(self, event: Event) -> None:
        self._say(f"{self.method}: {event.text}" if self.rounds and self.method else event.text)

    def on_start(self, event: Event) -> None:
        self.bar.update(self.task, completed=event.round)
        self.begun = time.perf_counter()
        self._ends, self._evaluated = [self.begun], []

    def on_evaluated(self, event: Event) -> None:
        self._evaluated = [*self._evaluated[-1:], event.round]

    def on_reply(self, event: Event) -> None:
        doing = f"{event.text} {event.silo}"
        if event.text == "train" and event.loss is not None:
            self.losses[event.silo] = event.loss
            doing += f", loss {event.loss:.3f}"
        self.bar.update(self.task, doing=doing)

    def on_failed(self, event: Event) -> None:
        self._say(f"{self.method}, round {event.round}: silo {event.silo} left out ({event.text})")

    def on_round(self, event: Event) -> None:
        self._ends.append(time.perf_counter())
        left = self._left(event)
        self.bar.update(
            self.task, completed=event.round, left=f"{clock(left)} left" if event.round < event.rounds else ""
        )
        if event.text:
            self._say(f"{self.method}, round {event.round}: {event.text}")
        if self.rounds and not self.console.is_terminal:
            mean = sum(self.losses.values()) / max(len(self.losses), 1)
            spent = time.perf_counter() - self.begun
            line = f"{self.method}: round {event.round}/{event.rounds}, training loss {mean:.3f}, {spent:.0f} s"
            self._say(line + (f", {clock(left)} left" if event.round < event.rounds else ""))
        self.losses = {}

    def _left(self, event: Event) -> float:
        """Seconds until the last round, from the rounds since this process began with the run."""
        took = [after - before for before, after in pairwise(self._ends)]
        first = event.round - len(took) + 1
        if len(self._evaluated) > 1:
            every = self._evaluated[1] - self._evaluated[0]
        else:  # so far one round evaluated, or none: then the last one will
            every = self._evaluated[0] if self._evaluated else event.rounds
        return seconds_left(took, event.rounds, every, first=first) or 0.0

    def _say(self, line: str) -> None:
        self.bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are some."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
