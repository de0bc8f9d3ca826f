"""The runs under a folder: how far they came, what they take on the disk, what can go, and how one is taken away."""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fairsilo.analysis.metrics import headline
from fairsilo.config import read_yaml
from fairsilo.core.files import numbered, numbers
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.lock import LOCK, OWNER
from fairsilo.runs.running import BASELINE, status_of

INSIDE = ("checkpoint", "models", "local", "synthetic", "features")  # folders of a run that hold no other run
FINISHED, RUNNING, INTERRUPTED, STOPPED = "finished", "running", "interrupted", "stopped"
EXAMPLES = "examples.safetensors"
SAMPLES = (EXAMPLES, "seen.safetensors")  # of the silos' own samples: images, and fingerprints


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
        bytes: On the disk.
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
    return [kept(folder) for folder in sorted(_folders(root))]


def _folders(root: Path) -> Iterator[Path]:
    for place, inside, files in os.walk(root):
        if "run.json" in files and "config.yaml" in files:
            inside.clear()
            yield Path(place)
        else:
            inside[:] = [name for name in inside if name not in INSIDE and not name.startswith(".")]


def kept(folder: Path) -> Kept:
    run_folder = RunFolder(folder)
    status, settings = run_folder.read_json("run.json"), read_yaml(folder / "config.yaml")
    states = [str(one.get("status", STOPPED)) for one in (status, status_of(folder / BASELINE)) if one]
    state = next((one for one in states if one != FINISHED), FINISHED)
    if state == RUNNING and not in_use(folder):
        state = INTERRUPTED
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
        sum(_size(path) for path in folder.rglob("*")),
        (rows if rows.exists() else folder / "run.json").stat().st_mtime,
    )


def in_use(folder: Path) -> bool:
    """Whether a process writes the folder now."""
    if not (folder / LOCK).exists():
        return False
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


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
        whole: The runs themselves.
    """
    ended = [one for one in runs if one.state == FINISHED and time.time() - one.changed >= older]
    found = []
    for run in ended:
        paths = [run.folder] if whole else list(_needless(run.folder, checkpoints, local))
        if paths:
            size = sum(_size(inner) for path in paths for inner in (path, *path.rglob("*")))
            found.append(Goes(run, tuple(paths), size))
    return found


def _needless(folder: Path, checkpoints: bool, local: bool) -> Iterator[Path]:
    for place in (folder, folder / BASELINE):
        saved = place / "checkpoint"
        if saved.is_dir() and checkpoints:
            yield saved
        elif saved.is_dir():
            for name in ("server", "silos"):
                yield from (numbered(saved, name, one) for one in numbers(saved, name)[:-1])
        yield from (place / name for name in ("features", *(["local"] if local else [])) if (place / name).is_dir())


def prune(goes: Sequence[Goes]) -> int:
    """Delete; returns the bytes. A run that somebody took up meanwhile stays."""
    freed = 0
    for one in goes:
        if in_use(one.run.folder):
            continue
        for path in one.paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        freed += one.bytes
    return freed


# ----------------------------------------------------------------------------------------------------------- take away
def pack(folder: Path, path: Path, *, models: bool = True, samples: bool = False) -> int:
    """A run or a comparison as a zip that `fairsilo report` opens elsewhere; returns its bytes.

    Without checkpoints, local models and what belongs to this machine.

    Args:
        folder: Of the run, or of the comparison with its runs.
        path: The zip.
        models: Take the trained models along.
        samples: Take along what shows silos' samples: example images, pages with these, and fingerprints.
    """
    if not any((folder / name).exists() for name in ("run.json", "comparison.json")):
        raise FairsiloError(f"{folder} holds neither a run nor a comparison")
    busy = next((one.folder for one in runs_under(folder) if one.state == RUNNING), None)
    if busy:
        raise FairsiloError(f"{busy} is still running; wait until it ends")
    left = {"checkpoint", "local", "features", *(() if models else ("models",))}
    hidden = {LOCK, OWNER, *(() if samples else SAMPLES)}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner in sorted(folder.rglob("*")):
            within = inner.relative_to(folder)
            shows = inner.name == "report.html" and _shows_samples(inner.parent) and not samples
            if inner.is_file() and not left & set(within.parts[:-1]) and inner.name not in hidden and not shows:
                archive.write(inner, Path(folder.resolve().name) / within)
    beside.replace(path)
    return path.stat().st_size


def _shows_samples(folder: Path) -> bool:
    """Whether a run's page has images of silos in it, its own or its baseline's."""
    return any((place / EXAMPLES).exists() for place in (folder, folder / BASELINE, folder.parent))


def unpack(path: Path) -> Path:
    """The folder of a packed run, beside the zip; unpacked once."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.split("/")[0] for name in archive.namelist()}
            if len(names) != 1:
                raise FairsiloError(f"{path} was not written by `fairsilo runs export`")
            folder = path.parent / path.stem
            if not folder.exists():
                archive.extractall(folder)
    except zipfile.BadZipFile as problem:
        raise FairsiloError(f"{path} is damaged: {problem}") from problem
    return folder / names.pop()
