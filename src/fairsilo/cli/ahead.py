"""How far a comparison is: which of its runs is under way, and how long those that are left will take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairsilo.analysis.remaining import roughly, runs_left
from fairsilo.runs.cells import Cell
from fairsilo.runs.folder import status_of


class Ahead:
    """All runs of a comparison, read from their folders.

    Runs that were there before it was made do not tell how long a run takes: they may be of another machine, or may
    have been made in two pieces.

    Args:
        cells: The runs, in the order in which they are made.
        at_once: How many are made side by side; None: as many as are under way.
    """

    def __init__(self, cells: Sequence[Cell], at_once: int | None = 1) -> None:
        self.cells, self.at_once = cells, at_once
        self._numbers = {cell.folder: number for number, cell in enumerate(cells, 1)}
        self._rows = {cell.folder: cell.row for cell in cells}
        self._earlier = {cell.folder for cell in cells if rounds_done(cell) or cell.finished}
        self._took: dict[Path, float] = {}

    def which(self, folder: Path | None) -> str:
        """Which run of how many; empty where it is none of them."""
        number = self._numbers.get(folder) if folder else None
        return f"run {number} of {len(self.cells)}" if number else ""

    def row(self, folder: Path | None) -> str:
        """What a run is called in the comparison, with settings of its own; empty where it is none of them."""
        return self._rows.get(folder, "") if folder else ""

    def left(self, but: Path | None = None) -> float | None:
        """Seconds until the last run is finished, without the run in one of the folders; None: not known yet."""
        took: dict[str, list[float]] = {}
        open_runs, under_way = [], 0
        for cell in self.cells:
            if cell.folder not in self._took:
                status = status_of(cell.folder)
                if status.get("status") == "finished":
                    self._took[cell.folder] = float(status.get("seconds", 0.0))
                elif cell.folder != but:
                    under_way += status.get("status") == "running"
                    open_runs.append((cell.row, 1 - rounds_done(cell) / cell.experiment.train.rounds))
            if cell.folder in self._took and cell.folder not in self._earlier:
                took.setdefault(cell.row, []).append(self._took[cell.folder])
        return runs_left(took, open_runs, self.at_once or max(under_way, 1))


def rounds_done(cell: Cell) -> int:
    try:
        return (cell.folder / "rounds.jsonl").read_text(encoding="utf-8").count("\n")
    except OSError:
        return 0


def in_all(seconds: float | None) -> str:
    """What to add to a line; nothing where it is not known or nothing is left."""
    return f", about {roughly(seconds)} left in all" if seconds else ""
