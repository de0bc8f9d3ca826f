"""The runs and comparisons below a folder, by the names that addresses have for them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import NOW, PLAN
from fairsilo.runs.inventory import Kept, kept
from fairsilo.runs.lock import in_use
from fairsilo.runs.running import BASELINE

FRESH = 0.5  # seconds for which a look at the disk serves all who ask
FILES = ("run.json", "config.yaml", "rounds.jsonl", "metrics.jsonl", "summary.json", "report.html", NOW)
Mark = tuple[object, ...]  # differs where something that is shown has changed


@dataclass
class Places:
    """What there is to see.

    A page is found by a name that was found here before; no address is ever made into a path.

    Attributes:
        root: The folder that is watched: a run, a comparison, or anything above.
    """

    root: Path
    _runs: dict[str, Path] = field(default_factory=dict)
    _comparisons: dict[str, Path] = field(default_factory=dict)
    _looked: float = -FRESH
    _known: dict[Path, tuple[Mark, Kept]] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def runs(self) -> dict[str, Path]:
        """Name -> folder."""
        self._look()
        return self._runs

    @property
    def comparisons(self) -> dict[str, Path]:
        self._look()
        return self._comparisons

    def name(self, folder: Path) -> str:
        """What a folder is called in addresses and on pages."""
        return folder.relative_to(self.root).as_posix()

    def kept(self, folder: Path) -> Kept | None:
        """How far a run is; read again only where its files changed. None: it is not there any more."""
        now = mark(folder)
        with self._guard:
            known = self._known.get(folder)
        if known is None or known[0] != now:
            try:
                known = (now, kept(folder))
            except (FairsiloError, OSError):  # deleted, or written this moment
                return None
            with self._guard:
                self._known[folder] = known
        return known[1]

    def _look(self) -> None:
        with self._guard:
            if time.monotonic() - self._looked < FRESH:
                return
            runs: dict[str, Path] = {}
            comparisons: dict[str, Path] = {}
            for folder, is_run in _found(self.root):
                (runs if is_run else comparisons)[self.name(folder)] = folder
            self._runs, self._comparisons, self._looked = runs, comparisons, time.monotonic()


def _found(root: Path) -> Iterator[tuple[Path, bool]]:
    """Folders of runs (True) and of comparisons; inside a run there are none."""
    for place, inside, files in os.walk(root):
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        if PLAN in files or "comparison.json" in files:
            yield Path(place), False
        if "run.json" in files and "config.yaml" in files:
            inside.clear()
            yield Path(place), True


def mark(folder: Path) -> Mark:
    """What tells whether a run looks as it did."""
    found: list[object] = [in_use(folder)]
    for path in (place / name for place in (folder, folder / BASELINE) for name in FILES):
        try:
            about = path.stat()
            found.append((about.st_mtime_ns, about.st_size))
        except OSError:
            found.append(None)
    return tuple(found)
