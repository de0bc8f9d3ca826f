"""Public data sets, one module each: `ABOUT` says what is known of one, and its layouts how it is read.

A data set's name is its module's, with hyphens. Nothing is read, and nothing heavy imported, to list them.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fairsilo.data.about import PARQUET, About, Layout
from fairsilo.errors import FairsiloError

if TYPE_CHECKING:
    from fairsilo.data.dataset import Dataset
    from fairsilo.data.reading import Stack

VARIABLE = "FAIRSILO_DATA"


def names() -> list[str]:
    """All data sets by name."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def about(name: str) -> About:
    """What is known of one of them."""
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    found: About = module.ABOUT
    return found


def layouts(name: str) -> tuple[Layout, ...]:
    """The forms in which it is read, in order of preference; images of classes also as the Hub has them."""
    facts = about(name)
    return (*facts.layouts, PARQUET) if facts.task == "classify" else facts.layouts


def root_of(root: str | None) -> Path | None:
    """Where data sets are looked for: `data.root`, else what the environment says."""
    given = root or os.environ.get(VARIABLE)
    return Path(given).expanduser() if given else None


def candidates(name: str, root: Path) -> Iterator[Path]:
    """The folders where a data set is looked for, under a root and the root itself."""
    yield from (root / place for place in about(name).places)
    yield root


def located(name: str, root: Path) -> tuple[Path, Layout] | None:
    """The first folder that has one of the data set's forms, and the form."""
    for folder in candidates(name, root):
        for layout in layouts(name):
            if folder.is_dir() and layout.fits(folder):
                return folder, layout
    return None


def read(name: str, root: str | None, stack: Stack) -> Dataset:
    """The data set as it is found under the root: a prepared copy of this size, else the form people have.

    Raises:
        FairsiloError: No root is given, or nothing of the data set is found there.
    """
    from fairsilo.data.prepared import find_prepared, read_prepared

    where = root_of(root)
    if where is None:
        raise FairsiloError(
            f"data set {name!r} is looked for in the folder that data.root or the environment variable {VARIABLE} "
            f"names, and neither is set; `fairsilo datasets {name}` says how to get it"
        )
    kept = find_prepared(where, name, stack.size, stack.fit)
    if kept is not None:
        return read_prepared(kept)
    found = located(name, where)
    if found is None:
        raise FairsiloError(missing(name, where))
    return read_from(name, *found, stack)


def read_from(name: str, folder: Path, layout: Layout, stack: Stack) -> Dataset:
    """The data set in a folder of a known form."""
    from dataclasses import replace

    facts = about(name)
    dataset = layout.read(folder, stack)
    return replace(dataset, name=name, about=facts.shows, source={"folder": str(folder), "form": layout.words})


def missing(name: str, root: Path) -> str:
    """Where a data set was looked for, in a sentence."""
    facts = about(name)
    places = ", ".join(facts.places)
    forms = "; or ".join(layout.words for layout in layouts(name))
    return (
        f"{facts.title} is not in {root}: looked for a folder {places}, or that folder itself, with {forms}; "
        f"`fairsilo datasets {name}` says how to get it"
    )
