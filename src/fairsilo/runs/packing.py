"""A run or a comparison as one file for somebody elsewhere: what a report is made from, and no sample of a silo."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from fairsilo.errors import FairsiloError, told_of
from fairsilo.runs.counting import is_comparison
from fairsilo.runs.folder import BASELINE, PLAN, RESULTS, RunFolder
from fairsilo.runs.inventory import runs_under
from fairsilo.runs.lock import in_use

RUN = ("config.yaml", "run.json", "metrics.jsonl", "groups.jsonl", "rounds.jsonl", "summary.json")
COMPARISON = (PLAN, RESULTS, "comparison.csv", "comparison.tex", "comparison.html")
HEAVY = ("checkpoint", "local", "features")  # what nobody needs elsewhere
LARGEST = 20_000_000_000  # bytes that are unpacked
FROM = ".packed"  # in an unpacked folder: which file it came from


def pack(folder: Path, path: Path, *, models: bool = True, samples: bool = False) -> int:
    """Write a zip that `fairsilo report` opens elsewhere; returns its bytes.

    It has settings (with the paths that they name), rows, results and models. Reasons of failures are left out, since
    they repeat what exceptions said.

    Args:
        folder: Of the run, or of the comparison with its runs.
        path: The zip.
        models: Take the trained models along.
        samples: Take along all else that is of silos' samples: example and synthetic images, figures, pages,
            fingerprints, reasons of failures.
    """
    if not (folder / "run.json").exists() and not is_comparison(folder):
        raise FairsiloError(f"{folder} holds neither a run nor a comparison")
    if path.resolve().is_relative_to(folder.resolve()):
        raise FairsiloError(f"{path} would lie in the folder that it packs; name another place with --out")
    if path.exists() and not _packs(path, folder):
        raise FairsiloError(f"{path} is there already and holds something else; name another file with --out")
    places = [one.folder for one in runs_under(folder)]
    busy = next((place for place in (folder, *places) if in_use(place)), None)
    if busy:
        raise FairsiloError(f"{busy} is still running; wait until it ends")
    files = sorted(set(_files(folder, places, models, samples)))
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    try:
        with told_of(path, beside), zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
            for inner in files:
                name = str(PurePosixPath(folder.resolve().name, inner.relative_to(folder)))
                told = None if samples else _without_reasons(inner)
                if told is None:
                    archive.write(inner, name)
                else:  # who unpacks it may read it as the file that it is made from
                    archive.writestr(zipfile.ZipInfo.from_file(inner, name), told, zipfile.ZIP_DEFLATED)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path.stat().st_size


def _packs(path: Path, folder: Path) -> bool:
    """Whether it is a zip of a folder of this name, as an earlier one of the same run is."""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return {PurePosixPath(name).parts[0] for name in archive.namelist()} == {folder.resolve().name}
    return False


def _files(folder: Path, runs: list[Path], models: bool, samples: bool) -> Iterator[Path]:
    yield from (folder / name for name in COMPARISON if (folder / name).is_file())
    for run in runs:
        for place in (run, run / BASELINE):
            yield from (place / name for name in RUN if (place / name).is_file())
            yield from _inside(place / "models") if models else ()
            if samples and place.is_dir():
                for one in place.iterdir():
                    if one.name not in (*HEAVY, "models", BASELINE) and not one.name.startswith("."):
                        yield from _inside(one) if one.is_dir() else [one]


def _inside(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _without_reasons(path: Path) -> str | None:
    """A run's file without what exceptions said; None where it goes as it is."""
    if path.name == "rounds.jsonl":
        rows = RunFolder(path.parent).rows("rounds")
        return "".join(json.dumps(_silenced(row)) + "\n" for row in rows)
    if path.name == "run.json":
        return json.dumps({**json.loads(path.read_text(encoding="utf-8")), "message": ""}, indent=2)
    return None


def _silenced(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "failures": [{**one, "detail": ""} for one in row.get("failures") or ()]}


def unpack(path: Path) -> Path:
    """The folder of a packed run or comparison, beside the zip; the same file is unpacked once."""
    try:
        with zipfile.ZipFile(path) as archive:
            top = _top(path, archive)
            code = hashlib.sha256(path.read_bytes()).hexdigest()
            for number in range(1, 1000):
                folder = path.parent / (path.stem if number == 1 else f"{path.stem}-{number}")
                if (folder / FROM).exists() and (folder / FROM).read_text() == code:
                    return folder / top
                if not folder.exists():
                    break
            _extract(archive, folder, code)
            return folder / top
    except zipfile.BadZipFile as problem:
        raise FairsiloError(f"{path} is damaged: {problem}") from problem


def _top(path: Path, archive: zipfile.ZipFile) -> str:
    """The one folder that all is in."""
    parts = [PurePosixPath(name).parts for name in archive.namelist()]
    if len({some[0] for some in parts if some}) != 1 or any({"..", "/"} & set(some) or not some for some in parts):
        raise FairsiloError(f"{path} was not written by `fairsilo runs export`")
    if sum(one.file_size for one in archive.infolist()) > LARGEST:
        raise FairsiloError(f"{path} holds more than {LARGEST / 1e9:g} GB")
    return parts[0][0]


def _extract(archive: zipfile.ZipFile, folder: Path, code: str) -> None:
    """Whole or not at all."""
    with told_of(folder), tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        inside = Path(beside) / folder.name
        archive.extractall(inside)
        (inside / FROM).write_text(code)
        shutil.move(inside, folder)
