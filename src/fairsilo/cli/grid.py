"""A comparison whose cells run elsewhere: a table that fills, read from their folders; lines where no terminal is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fairsilo.engine.events import Event, Listener
from fairsilo.runs.cells import Cell

EVERY = 0.5  # seconds


class GridListener(Listener):
    """Rows are methods, columns held-out domains and seeds: how many rounds of each are done."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.cells: Sequence[Cell] = ()
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal and not quiet else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def begin(self, cells: Sequence[Cell]) -> None:
        """All cells, before the first of them runs."""
        self.cells = cells
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
            self.live.update(table(self.cells), refresh=True)
            self.live.stop()

    def __call__(self, event: Event) -> None:
        if not self.quiet:
            super().__call__(event)

    def on_note(self, event: Event) -> None:
        self.console.print(event.text, markup=False, highlight=False, soft_wrap=True)

    def _follow(self) -> None:
        assert self.live is not None
        while not self._over.wait(EVERY):
            self.live.update(table(self.cells), refresh=True)


def table(cells: Sequence[Cell]) -> Table:
    """How far each cell is: rounds done of all, or that it is finished."""
    columns = list(dict.fromkeys((cell.held_out, cell.experiment.seed) for cell in cells))
    found = Table(caption=f"{sum(cell.finished for cell in cells)} of {len(cells)} runs are finished")
    found.add_column("method")
    for domain, seed in columns:
        found.add_column(f"{domain}\nseed {seed}", justify="right")
    for row in dict.fromkeys(cell.row for cell in cells):
        own = {(cell.held_out, cell.experiment.seed): cell for cell in cells if cell.row == row}
        found.add_row(row, *(_state(own[column]) if column in own else "" for column in columns))
    return found


def _state(cell: Cell) -> str:
    if cell.finished:
        return "done"
    rounds = _lines(cell.folder / "rounds.jsonl")
    return f"{rounds}/{cell.experiment.train.rounds}" if cell.folder.exists() else "-"


def _lines(path: Path) -> int:
    try:
        return path.read_text(encoding="utf-8").count("\n")
    except OSError:
        return 0
