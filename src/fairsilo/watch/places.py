"""The runs and comparisons below a folder, by the names that addresses have for them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from fairsilo.report.blocks import Run
from fairsilo.report.page import read_run
from fairsilo.runs.folder import BASELINE, NOW
from fairsilo.runs.inventory import ATTEMPT, DAMAGED, MARKS, Kept, awaited, folders_under, kept_or_damaged
from fairsilo.runs.lock import in_use
from fairsilo.runs.tryouts import Tryouts, tryouts_in

FRESH = 0.5  # seconds for which a look at the disk serves all who ask
REST = 10  # times as long as it took, at least, until the next one
RUN_FILES = ("run.json", "config.yaml", "metrics.jsonl", "rounds.jsonl", "groups.jsonl")  # what sections are drawn from
KEPT_FILES = (*RUN_FILES, "summary.json", ATTEMPT)
FILES = (*KEPT_FILES, "report.html", NOW)
Mark = tuple[object, ...]  # differs where something that is shown has changed
T = TypeVar("T")


class Memory(Generic[T]):
    """What was made of files, for as long as these look the same.

    Args:
        most: How many things are remembered; those that nobody asked for the longest are forgotten first.
    """

    def __init__(self, most: int) -> None:
        self._most, self._guard = most, threading.Lock()
        self._known: OrderedDict[Hashable, tuple[Mark, T]] = OrderedDict()

    def get(self, key: Hashable, looks: Mark, make: Callable[[], T]) -> T:
        with self._guard:
            known = self._known.get(key)
        if known is None or known[0] != looks:
            known = (looks, make())
        with self._guard:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return known[1]


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
    _tryouts: dict[str, Tryouts] = field(default_factory=dict)
    _due: float = 0.0  # when the disk is looked at again
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _kept: Memory[Kept | None] = field(default_factory=lambda: Memory(10_000))
    _read: Memory[Run] = field(default_factory=lambda: Memory(16))
    _drawn: Memory[tuple[str, ...]] = field(default_factory=lambda: Memory(16))

    @property
    def runs(self) -> dict[str, Path]:
        """Name -> folder."""
        self._look()
        return self._runs

    @property
    def comparisons(self) -> dict[str, Path]:
        self._look()
        return self._comparisons

    @property
    def tryouts(self) -> dict[str, Tryouts]:
        """Folders in which a command tries things out, if there are runs in them."""
        self._look()
        return self._tryouts

    def name(self, folder: Path) -> str:
        """What a folder is called in addresses."""
        return folder.relative_to(self.root).as_posix()

    def title(self, name: str) -> str:
        """What a folder is called on pages."""
        return self.root.name if name == "." else name

    def tryouts_of(self, name: str) -> Tryouts | None:
        """Those that a run, or a comparison, is part of."""
        above = innermost(self._tryouts, name)
        return None if above is None else self._tryouts[above]

    def kept(self, folder: Path) -> Kept | None:
        """How far a run is; read again only where its files changed. None: it is not there any more."""
        running = in_use(folder)
        looks = (running, awaited(folder), *looks_of(KEPT_FILES, folder, folder / BASELINE))
        found = self._kept.get(folder, looks, lambda: _how_far(folder, running))
        above = self.tryouts_of(self.name(folder))
        return replace(found, state=above.state_of(found)) if found and above else found

    def read(self, folder: Path, like: Path | None = None) -> Run:
        """What a run folder holds, summarised as the run in another folder where one is given."""
        looks = looks_of(RUN_FILES, folder, *([like] if like else []))
        return self._read.get((folder, like), looks, lambda: read_run(folder, like=self.read(like) if like else None))

    def drawn(self, folders: Sequence[Path], draw: Callable[[], tuple[str, ...]], state: str = "") -> tuple[str, ...]:
        """Pieces of a page about run folders; what draws them reads these through `read`, so nothing older is kept."""
        return self._drawn.get(tuple(folders), (state, *looks_of(RUN_FILES, *folders)), draw)

    def _look(self) -> None:
        with self._guard:
            begun = time.monotonic()
            if begun < self._due:
                return
            runs: dict[str, Path] = {}
            comparisons: dict[str, Path] = {}
            for folder, is_run in folders_under(self.root):
                (runs if is_run else comparisons)[self.name(folder)] = folder
            tryouts = {self.name(one.folder): one for one in map(tryouts_in, self._above(runs.values())) if one}
            ended = time.monotonic()
            self._runs, self._comparisons, self._tryouts = runs, comparisons, tryouts
            self._due = ended + max(FRESH, REST * (ended - begun))

    def _above(self, folders: Iterable[Path]) -> set[Path]:
        """The folders that runs lie in, at any depth, as far as the root."""
        return {above for folder in folders for above in folder.parents if above.is_relative_to(self.root)}


def innermost(names: Container[str], name: str) -> str | None:
    """Which of the folders with these names a run, or a comparison, lies in: the innermost of several."""
    while name := name.rpartition("/")[0]:
        if name in names:
            return name
    return "." if "." in names else None


def within(folder: str, name: str) -> bool:
    """Whether a run lies in a folder, by their names."""
    return folder in (".", name) or name.startswith(f"{folder}/")


def _how_far(folder: Path, running: bool) -> Kept | None:
    found = kept_or_damaged(folder, running=running, sized=False)
    return found if found.state != DAMAGED or _there(folder) else None


def _there(folder: Path) -> bool:
    for name in MARKS:
        try:
            (folder / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # it may not be looked at
            return True
        return True
    return False


def began(folder: Path) -> float:
    """When a run began, in seconds since 1970: its settings are written once."""
    try:
        return (folder / "config.yaml").stat().st_mtime
    except OSError:
        return 0.0


def mark(folder: Path) -> Mark:
    """What tells whether a run looks as it did."""
    return (in_use(folder), awaited(folder), *looks_of(FILES, folder, folder / BASELINE))


def looks_of(names: Sequence[str], *folders: Path) -> Mark:
    found: list[object] = []
    for path in (folder / name for folder in folders for name in names):
        try:
            about = path.stat()
            found.append((about.st_mtime_ns, about.st_size, about.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)
