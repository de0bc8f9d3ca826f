"""What is known of a public data set before any of it is read; imports nothing heavy."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairsilo.errors import FairsiloError

if TYPE_CHECKING:
    from fairsilo.data.dataset import Dataset
    from fairsilo.data.reading import Stack

PREPARED = "prepared"  # the folder of converted data sets, below the root of all


@dataclass(frozen=True)
class Layout:
    """A form in which people have a data set, and how it is read.

    `fits(folder)` says whether a folder has this form, by names of files alone; `read(folder, stack)` reads it.
    """

    words: str
    fits: Callable[[Path], bool]
    read: Callable[[Path, Stack], Dataset]


@dataclass(frozen=True)
class About:
    """A public data set.

    Attributes:
        title: Its name as the papers write it.
        shows: What it shows, in a phrase.
        domains: Domain -> how many samples it has in all; 0 where that is not fixed.
        classes: Their names, or as many of them as matter in a sentence.
        licence: As its authors state it.
        size: Of the download, in words.
        citation: The paper that introduced it.
        obtain: How to get it: sentences. Nothing is ever downloaded.
        places: Folders under `data.root` where it is looked for, in this order.
        layouts: The forms that are read, in order of preference.
        protocols: What papers do with it, as settings: a phrase each.
        usual: Settings without which it is hardly ever used, as they are typed.
        stand_ins: Domains of packed files that stand for one that could not be had, each with a word on it.
        sha256: File (relative to its folder) -> digest of the release that was checked.
        task: The name of the task.
        metric: What the papers report, where it is not the task's own choice.
    """

    title: str
    shows: str
    domains: Mapping[str, int]
    classes: Sequence[str]
    licence: str
    size: str
    citation: str
    obtain: str
    places: tuple[str, ...]
    layouts: tuple[Layout, ...] = ()
    protocols: tuple[str, ...] = ()
    usual: str = ""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)
    task: str = "classify"
    metric: str = ""


def on_use(reference: str, **given: Any) -> Callable[[Path, Stack], Dataset]:
    """A reader that is imported when it is called: `module:function` inside `fairsilo.data`."""

    def read(folder: Path, stack: Stack) -> Dataset:
        module, _, name = reference.partition(":")
        found: Dataset = getattr(importlib.import_module(f"fairsilo.data.{module}"), name)(folder, stack, **given)
        return found

    return read


def has_folders(*names: str, least: int = 2) -> Callable[[Path], bool]:
    """Whether a folder has at least so many of these folders, in any capitals."""
    return lambda folder: len(found_folders(folder, names)) >= least


def found_folders(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Name -> the folder of that name, whatever its capitals; `a|b` is found under either name, and called a."""
    present = {entry.name.lower(): entry for entry in sorted(folder.iterdir()) if entry.is_dir()}
    found = {}
    for name in names:
        match = next((present[one] for one in name.lower().split("|") if one in present), None)
        if match is not None:
            found[name.split("|")[0]] = match
    return found


def packed(*domains: str, stand_ins: Sequence[str] = ()) -> Layout:
    """Packed files of these domains; others in the folder are left alone."""

    def fits(folder: Path) -> bool:
        return any((folder / f"{name}.npz").is_file() for name in domains)

    return Layout("packed files (one .npz per domain)", fits, on_use("packed:those_of", names=(*domains, *stand_ins)))


def _has_parquet(folder: Path) -> bool:
    return any(folder.glob("*.parquet")) or any((folder / "data").glob("*.parquet"))


PARQUET = Layout(
    "parquet files of the Hugging Face Hub with columns image, label and domain (extra `hub`)",
    _has_parquet,
    on_use("hub:read_parquet"),
)


def needs_package(package: str, extra: str, what: str) -> None:
    """Raise one sentence where an optional package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise FairsiloError(f"{what} needs the package {package}: pip install 'fairsilo[{extra}]'")
