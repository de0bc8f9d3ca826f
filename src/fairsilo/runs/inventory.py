"""The runs under a folder: how far they came, what they take on the disk, and what of that can go."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairsilo.analysis.metrics import at_chance, headline
from fairsilo.config import read_yaml
from fairsilo.core.disk import numbered, numbers
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import BASELINE, PLAN, RESULTS, RunFolder, finished, status_of
from fairsilo.runs.lock import in_use, locked

FINISHED, RUNNING, INTERRUPTED, STOPPED = "finished", "running", "interrupted", "stopped"
WAITING = "waiting"  # over sites, for sites or for its turn: the federation's server lives and takes it up
DAMAGED = "damaged"  # it cannot be read
MARKS = ("run.json", "config.yaml", "rounds.jsonl")  # a folder with two of them is a run's, whole or not
ATTEMPT, GIVEN_UP = "attempt.json", "failed"  # of a run over sites: how the last attempt ended; there is no other one


@dataclass(frozen=True)
class Kept:
    """One run folder.

    Attributes:
        folder: Where it is.
        state: finished, running, waiting (for sites), interrupted (its process is gone; it can be resumed), stopped (by
            an error) or damaged.
        method: Its text; empty where the run came to nothing.
        held_out: The domain held out; `-` for none.
        seed: Of the run.
        rounds: How many are complete, and of how many.
        numbers: The three answers, where there are results, and what stands beside the spread (its mean, the tails).
        metric: What they are in.
        share: Whether that is a share of something.
        bytes: On the disk; 0 where nobody asked.
        changed: When its rows were last written, in seconds since 1970.
        why: What is damaged, as a sentence; else empty.
        at_chance: Which of the three answers are no better than guessing.
        higher: Whether more of the metric is better; None where the folder does not say.
    """

    folder: Path
    state: str
    method: str
    held_out: str
    seed: int | None
    rounds: tuple[int, int | None]
    numbers: dict[str, float | None]
    metric: str
    share: bool | None
    bytes: int
    changed: float
    why: str = ""
    at_chance: Mapping[str, bool] = field(default_factory=dict)
    higher: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder), "rounds": list(self.rounds)}


def runs_under(root: Path, *, damaged: bool = False) -> list[Kept]:
    """All runs in a folder, however deep, by name; a baseline counts as part of its run.

    Args:
        root: The folder.
        damaged: List runs that cannot be read too, and folders that cannot be looked into.

    Raises:
        FairsiloError: There is no such folder, or a run is damaged and nobody asked for those.
    """
    if not root.is_dir():
        raise FairsiloError(f"{root} is no folder")
    found = sorted(one for one, is_run in folders_under(root) if is_run)
    if damaged:
        return [kept_or_damaged(folder) for folder in found]
    return [kept(folder) for folder in found if _whole(folder)]


def _whole(folder: Path) -> bool:
    """Whether what a run begins with is there, and may be looked at."""
    try:
        return all((folder / name).is_file() for name in MARKS[:2])
    except OSError:
        return False


def folders_under(root: Path) -> Iterator[tuple[Path, bool]]:
    """Folders of runs (True) and of comparisons, however deep; inside a run there are none.

    A folder that cannot be looked into counts as a run: it may be one.
    """
    closed: list[OSError] = []
    for place, inside, files in os.walk(root, onerror=closed.append):
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        if PLAN in files or RESULTS in files:
            yield Path(place), False
        if len(set(MARKS) & set(files)) > 1:
            inside.clear()
            yield Path(place), True
    for problem in closed:
        if not isinstance(problem, FileNotFoundError | NotADirectoryError):  # gone since it was found
            yield Path(problem.filename), True


def kept(folder: Path, *, running: bool | None = None, sized: bool = True) -> Kept:
    """How far a run is.

    Args:
        folder: Of the run.
        running: Whether a process holds it, where the caller has asked already.
        sized: Whether to add up its files, which takes a look at each.
    """
    run_folder = RunFolder(folder)
    status, settings = run_folder.read_json("run.json"), read_yaml(folder / "config.yaml")
    places = [one for one in (status, status_of(folder / BASELINE)) if one]
    state = FINISHED if finished(folder) else _unfinished(folder, places)
    if in_use(folder) if running is None else running:
        state = RUNNING
    results = run_folder.read_json("summary.json") if (folder / "summary.json").exists() else None
    rows = folder / "rounds.jsonl"
    return Kept(
        folder,
        state,
        str(status.get("method") or settings.get("method") or ""),
        str((settings.get("data") or {}).get("held_out") or "-"),
        settings.get("seed"),
        (len(run_folder.rows("rounds")), (settings.get("train") or {}).get("rounds")),
        headline(results) if results else {},
        str((results or {}).get("metric", "")),
        (results or {}).get("share"),
        sum(_size(path) for path in folder.rglob("*")) if sized else 0,
        (rows if rows.exists() else folder / "run.json").stat().st_mtime,
        at_chance=at_chance(results) if results else {},
        higher=(results or {}).get("higher_is_better"),
    )


def _unfinished(folder: Path, places: Sequence[Mapping[str, Any]]) -> str:
    """The state of a run that is not at its end and that no process works on."""
    if _outcome(folder) == GIVEN_UP:
        return STOPPED
    if awaited(folder):
        return WAITING
    return STOPPED if any(one.get("status") == STOPPED for one in places) else INTERRUPTED


def _outcome(folder: Path) -> object:
    return RunFolder(folder).read_json(ATTEMPT).get("outcome") if (folder / ATTEMPT).exists() else None


def awaited(folder: Path) -> bool:
    """Whether the server of a federation lives that sees the run through: it holds the folder of all of its runs."""
    return in_use(folder.parent)


def kept_or_damaged(folder: Path, *, running: bool | None = None, sized: bool = True) -> Kept:
    """As `kept`; one odd folder does not keep anybody from seeing the others, whatever is odd about it."""
    try:
        found = kept(folder, running=running, sized=sized)
        numbers = [*found.rounds, *found.numbers.values()]
        if not all(one is None or isinstance(one, int | float) for one in numbers):
            raise FairsiloError(f"{folder} is damaged: it has texts for numbers")
    except Exception as problem:  # noqa: BLE001 - files of anybody's, with anything in them
        size = sum(_size(path) for path in folder.rglob("*")) if sized else 0
        why = why_damaged(folder, problem)
        return Kept(folder, DAMAGED, "", "-", None, (0, None), {}, "", None, size, _began(folder), why)
    return found


def why_damaged(folder: Path, problem: Exception) -> str:
    """What keeps a run from being read, as one line."""
    return " ".join(_why(folder, problem).split())


@contextmanager
def damage_told(folder: Path) -> Iterator[None]:
    """What fails on a folder's files, which may hold anything, is told as bad input.

    That a file cannot be read or written is told already, and need not be damage: the disk may be full.
    """
    try:
        yield
    except (FairsiloError, OSError):
        raise
    except Exception as problem:
        raise FairsiloError(why_damaged(folder, problem)) from problem


def _why(folder: Path, problem: Exception) -> str:
    if isinstance(problem, FairsiloError):
        return str(problem)
    if isinstance(problem, OSError):
        return f"{problem.filename or folder} cannot be read ({problem.strerror or problem})"
    return f"{folder} holds what no run writes ({type(problem).__name__}: {problem})"


def _began(folder: Path) -> float:
    """When a run began that says nothing else, in seconds since 1970: its settings are written once."""
    for path in (folder / "config.yaml", folder):
        with suppress(OSError):
            return path.stat().st_mtime
    return time.time()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() and not path.is_symlink() else 0
    except OSError:  # a run that goes on moves its files, and some may not be looked at
        return 0


# --------------------------------------------------------------------------------------------------------- what can go
@dataclass(frozen=True)
class Goes:
    """What can be deleted of a run."""

    run: Kept
    paths: tuple[Path, ...]
    bytes: int


def prunable(
    runs: Sequence[Kept], *, older: float = 0.0, checkpoints: bool = False, local: bool = False, whole: bool = False
) -> list[Goes]:
    """What of the finished runs is not needed any more; of others everything may be.

    Always: all checkpoints but the last one, from which nothing reads at the end.

    Args:
        runs: Those that are looked at.
        older: Only runs that ended at least so many seconds ago.
        checkpoints: The last checkpoint too: then silos' and server's memory are gone, which newcomers and some
            methods' predictions start from.
        local: Each round's local models, which figures are drawn from.
        whole: The runs themselves, but for those that are part of a comparison or lie beside one that is running.
    """
    busy = {_beside(one.folder) for one in runs if one.state == RUNNING}
    found = []
    for run in runs:
        if run.state != FINISHED or time.time() - run.changed < older:
            continue
        if whole:
            single = _beside(run.folder) not in busy and comparison_of(run.folder) is None
            paths = [run.folder] if single and not run.folder.is_symlink() else []
        else:
            paths = list(_needless(run.folder, checkpoints, local))
        if paths:
            size = sum(_size(inner) for path in paths for inner in (path, *path.rglob("*")))
            found.append(Goes(run, tuple(paths), size))
    return found


def _beside(folder: Path) -> Path:
    """Where the folder of a comparison would be, which has its methods' folders, and these its runs."""
    return folder.resolve().parent.parent


def comparison_of(folder: Path) -> Path | None:
    """The folder of the comparison that a run is part of; None where it is part of none."""
    names = (PLAN, RESULTS)
    return next((place for place in above(folder) if any((place / name).exists() for name in names)), None)


def above(folder: Path) -> tuple[Path, ...]:
    """The folders that a run lies in, from the inside out: in the words of the caller where these lead there."""
    return (*folder.parents, *folder.resolve().parents)


def _needless(folder: Path, checkpoints: bool, local: bool) -> Iterator[Path]:
    """Files and folders of the run itself: what a link leads to is somebody else's."""
    for place in filter(_own, (folder, folder / BASELINE)):
        saved = place / "checkpoint"
        if _own(saved) and checkpoints:
            yield saved
        elif _own(saved):
            for name in ("server", "silos"):
                yield from (numbered(saved, name, one) for one in numbers(saved, name)[:-1])
        yield from filter(_own, (place / name for name in ("features", *(["local"] if local else []))))


def _own(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


def prune(goes: Sequence[Goes]) -> int:
    """Delete; returns the bytes. A run that somebody took up meanwhile stays."""
    freed = 0
    for one in goes:
        with suppress(FairsiloError), locked(one.run.folder):
            for path in one.paths:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            freed += one.bytes
    return freed
