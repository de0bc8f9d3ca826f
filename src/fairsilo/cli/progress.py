"""Live progress in a terminal; one line per round where there is none."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import pairwise

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fairsilo.analysis.remaining import seconds_left
from fairsilo.cli.ahead import Ahead, in_all
from fairsilo.cli.output import write
from fairsilo.engine.events import Event, Listener
from fairsilo.runs.cells import Cell


class Bar(Progress):
    """A bar with a line above it that may be as long as it needs."""

    heading = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.heading:
            yield Text(self.heading, style="bold")  # names of methods and silos are no markup
        yield from super().get_renderables()


class ProgressListener(Listener):
    """Shows round, silo, loss and time left of the method under way, and of a comparison how much of it is left."""

    def __init__(self, console: Console, quiet: bool = False, rounds: bool = True, opening: str = "") -> None:
        """Without `rounds` there is a line for each note, and none for rounds, where there is no terminal.

        The `opening` is said when the first method begins.
        """
        self.opening = opening
        self.console = console
        self.quiet = quiet
        self.rounds = rounds
        self.method = ""
        self._which = ""
        self.losses: dict[str, float] = {}
        self.begun = time.perf_counter()
        self.ahead: Ahead | None = None
        self.bar = Bar(
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
        self._others: float | None = None  # seconds that the runs of a comparison will take that come after this one

    def begin(self, cells: Sequence[Cell]) -> None:
        """All runs of a comparison, before the first of them."""
        self.ahead = Ahead(cells)

    def __enter__(self) -> ProgressListener:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, event: Event) -> None:
        if not self.quiet:
            super().__call__(event)

    def on_method(self, event: Event) -> None:
        if self.opening:
            self._say(self.opening)
            self.opening = ""
        method = (self.ahead and self.ahead.row(event.folder)) or event.text
        self.method = f"{method} ({event.where})" if event.where else method
        self._which, self._others, left = "", None, None
        if self.ahead and (which := self.ahead.which(event.folder)):
            self._which, self._others, left = f"{which}: ", self.ahead.left(but=event.folder), self.ahead.left()
            if not self.console.is_terminal:
                self._say(f"{self._which}{self.method}{in_all(left)}")
        self._head(left)
        self.bar.reset(self.task, total=event.rounds, doing="", left="", visible=True)

    def on_over(self, event: Event) -> None:
        self.method = ""  # what is said until the next run begins is of that one

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
        if self._others is not None:
            self._head(left + self._others)
        if event.text:
            self._say(f"{self.method}, round {event.round}: {event.text}")
        if self.rounds and not self.console.is_terminal:
            mean = sum(self.losses.values()) / max(len(self.losses), 1)
            spent = time.perf_counter() - self.begun
            line = f"{self.method}: round {event.round}/{event.rounds}, training loss {mean:.3f}, {spent:.0f} s"
            self._say(line + (f", {clock(left)} left" if event.round < event.rounds else ""))
        self.losses = {}

    def _head(self, left: float | None) -> None:
        self.bar.heading = f"{self._which}{self.method}{in_all(left)}"

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
        write(self.console, line)


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are some."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
