"""A comparison whose cells run elsewhere: a table that fills, read from their folders; lines where no terminal is."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fairsilo.cli.ahead import Ahead, in_all, rounds_done
from fairsilo.cli.fitting import ENDLESS, fitted
from fairsilo.cli.output import write
from fairsilo.engine.events import Event, Listener
from fairsilo.runs.cells import Cell

EVERY = 0.5  # seconds


class GridListener(Listener):
    """Rows are methods, columns held-out domains and seeds: how many rounds of each are done."""

    def __init__(self, console: Console, quiet: bool = False, at_once: int | None = None) -> None:
        """So many runs are made `at_once`; None: nobody knows."""
        self.console, self.quiet, self.at_once = console, quiet, at_once
        self.cells: Sequence[Cell] = ()
        self.ahead: Ahead | None = None
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal and not quiet else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def begin(self, cells: Sequence[Cell]) -> None:
        """All cells, before the first of them runs."""
        self.cells, self.ahead = cells, Ahead(cells, self.at_once)
        if self.live:
            self._thread.start()

    def __enter__(self) -> GridListener:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.live:
            self.live.update(self.drawn(), refresh=True)
            self.live.stop()

    def __call__(self, event: Event) -> None:
        if not self.quiet:
            super().__call__(event)

    def on_note(self, event: Event) -> None:
        tail = "" if self.live else self._left()  # a terminal has it below the table
        write(self.console, event.text + tail)

    def _left(self) -> str:
        return in_all(self.ahead.left()) if self.ahead else ""

    def _follow(self) -> None:
        assert self.live is not None
        while not self._over.wait(EVERY):
            self.live.update(self.drawn(), refresh=True)

    def drawn(self) -> Table:
        """Seeds share a column where there is no room for one each."""
        left = self._left()
        whole = table(self.cells, left=left)
        wide = self.console.measure(whole, options=self.console.options.update(max_width=ENDLESS)).maximum
        return fitted(
            whole if wide <= self.console.width else table(self.cells, by_seed=False, left=left), self.console
        )


def table(cells: Sequence[Cell], by_seed: bool = True, left: str = "") -> Table:
    """How far each cell is: rounds done of all, or that it is finished; all seeds of a domain together if need be.

    Below it how many are finished, and what is left.
    """

    def place(cell: Cell) -> str:
        return f"{cell.held_out}\nseed {cell.experiment.seed}" if by_seed else cell.held_out

    columns = list(dict.fromkeys(map(place, cells)))
    found = Table(caption=f"{sum(cell.finished for cell in cells)} of {len(cells)} runs are finished{left}")
    found.add_column("method")
    for column in columns:
        found.add_column(escape(column), justify="right")
    for row in dict.fromkeys(cell.row for cell in cells):
        own = [cell for cell in cells if cell.row == row]
        found.add_row(escape(row), *(_state([cell for cell in own if place(cell) == column]) for column in columns))
    return found


def _state(cells: Sequence[Cell]) -> str:
    if not cells or all(cell.finished for cell in cells):
        return "done" if cells else ""
    if not any(cell.folder.exists() for cell in cells):
        return "-"
    done = sum(map(rounds_done, cells))
    return f"{done}/{sum(cell.experiment.train.rounds for cell in cells)}"
