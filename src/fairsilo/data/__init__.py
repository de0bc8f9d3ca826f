"""Data sets: the embedded ones by name, and the user's own images from folders, indexes and packed files.

Nothing heavy is imported here; a reader is imported when it is called for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairsilo.data.embedded import DATASETS
from fairsilo.errors import FairsiloError, nearest

# what leaves a silo where images in its style are made with one
TOKEN = "a textual-inversion token of its style, made from some of its images (ten a class in the paper)"

if TYPE_CHECKING:
    from fairsilo.data.dataset import Dataset

INDEX_SUFFIXES = (".csv", ".json")


def load(
    name: str | None = None,
    folder: str | None = None,
    index: str | None = None,
    packed: str | None = None,
    size: int | None = None,
    seed: int = 0,
    domains: Sequence[str] | None = None,
) -> Dataset:
    """The data set of exactly one source, resized if a size is given, with all or only the named domains."""
    sources = {"name": name, "folder": folder, "index": index, "packed": packed}
    given = {key: value for key, value in sources.items() if value is not None}
    if len(given) != 1:
        listed = ", ".join(f"{key}={value!r}" for key, value in given.items()) or "none"
        raise FairsiloError(f"Data need exactly one of name, folder, index and packed, but given: {listed}.")
    (kind, value), *_ = given.items()
    if kind == "folder" and Path(value).suffix.lower() in INDEX_SUFFIXES and not Path(value).is_dir():
        kind = "index"
    if kind == "packed":
        from fairsilo.data.packed import read_packed

        return read_packed(Path(value), size, domains)
    dataset = _named(value, size, seed) if kind == "name" else _read(kind, Path(value), size)
    if domains is None:
        return dataset
    from fairsilo.data.reading import restrict

    return restrict(dataset, domains)


def _named(name: str, size: int | None, seed: int) -> Dataset:
    if name not in DATASETS:
        raise FairsiloError(f"unknown data set {name!r}{nearest(name, DATASETS)}")
    from fairsilo.data.glyphs import glyphs

    return glyphs(seed) if size is None else glyphs(seed, size)


def _read(kind: str, path: Path, size: int | None) -> Dataset:
    from fairsilo.data.folder import read_folder, read_index

    return read_index(path, size) if kind == "index" else read_folder(path, size)
