"""Atomic, synced writes that survive a power failure, and where files lie; nothing of what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file under the name that is yielded; it replaces `path` when it is complete and synced to the disk."""
    beside = path.with_name(f".{path.name}.part")
    yield beside
    sync(beside)
    beside.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """fsync a file or a folder (its list of names)."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def model_path(folder: Path, name: Sequence[str]) -> Path:
    """Where a model lies below a folder; `name` gives folders and file.

    Silo names are free text: characters such as `/` are escaped (%2F), so that no file lies outside the folder.
    """
    *folders, leaf = name
    return folder.joinpath(*folders, f"{quote(leaf, safe=' ')}.safetensors")


# ----------------------------------------------------------------------------------------------------- files by round
def numbered(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:06d}.safetensors"


def numbers(folder: Path, name: str) -> list[int]:
    """The numbers of which a folder has a file of this name, in order."""
    return sorted(int(path.stem.removeprefix(f"{name}-")) for path in folder.glob(f"{name}-*.safetensors"))


def drop_old(folder: Path, name: str, keep: int) -> None:
    for number in numbers(folder, name)[:-keep]:
        numbered(folder, name, number).unlink()
