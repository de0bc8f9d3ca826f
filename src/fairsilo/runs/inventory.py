"""The runs under a folder: how far they came, what they take on the disk, and what of that can go."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo.analysis.metrics import headline
from fairsilo.config import read_yaml
from fairsilo.core.files import numbered, numbers
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import PLAN, RunFolder
from fairsilo.runs.lock import in_use, locked
from fairsilo.runs.running import BASELINE, finished, status_of

FINISHED, RUNNING, INTERRUPTED, STOPPED = "finished", "running", "interrupted", "stopped"


@dataclass(frozen=True)
class Kept:
    """One run folder.

    Attributes:
        folder: Where it is.
        state: finished, running, interrupted (its process is gone; it can be resumed) or stopped (by an error).
        method: Its text; empty where the run came to nothing.
        held_out: The domain held out; `-` for none.
        seed: Of the run.
        rounds: How many are complete, and of how many.
        numbers: The three answers, where there are results.
        metric: What they are in.
        share: Whether that is a share of something.
        bytes: On the disk; 0 where nobody asked.
        changed: When its rows were last written, in seconds since 1970.
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

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder), "rounds": list(self.rounds)}


def runs_under(root: Path) -> list[Kept]:
    """All runs in a folder, however deep, by name; a baseline counts as part of its run."""
    if not root.is_dir():
        raise FairsiloError(f"{root} is no folder")
    return [kept(folder) for folder in sorted(one for one, is_run in folders_under(root) if is_run)]


def folders_under(root: Path) -> Iterator[tuple[Path, bool]]:
    """Folders of runs (True) and of comparisons, however deep; inside a run there are none."""
    for place, inside, files in os.walk(root):
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        if PLAN in files or "comparison.json" in files:
            yield Path(place), False
        if "run.json" in files and "config.yaml" in files:
            inside.clear()
            yield Path(place), True


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
    stopped = any(one.get("status") == STOPPED for one in places)
    state = FINISHED if finished(folder) else STOPPED if stopped else INTERRUPTED
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
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() and not path.is_symlink() else 0
    except FileNotFoundError:  # a run that goes on moves its files
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
            single = _beside(run.folder) not in busy and not _of_comparison(run.folder)
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


def _of_comparison(folder: Path) -> bool:
    names = (PLAN, "comparison.json")
    return any((place / name).exists() for place in folder.resolve().parents for name in names)


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
