"""A run of which some files are damaged: what can still be read of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from fairsilo.report.blocks import Run
from fairsilo.report.page import read_run
from fairsilo.runs.folder import BASELINE
from fairsilo.watch.places import RUN_FILES

LeftOut = tuple[str, ...]  # names of files, or of the folder of the baseline
T = TypeVar("T")


def most_of(folder: Path, draw: Callable[[Run, Run | None, LeftOut], T]) -> tuple[T | None, LeftOut]:
    """What is drawn of a run and its baseline without as few pieces as possible, and these; None: nothing can be drawn.

    No file is judged by itself: one that can be read may hold what no run writes, which only shows when it is drawn.
    """
    for left_out in _ways(folder):
        with suppress(Exception):  # files of anybody's, with anything in them
            return draw(*_read_without(folder, left_out), left_out), left_out
    return None, ()


def _ways(folder: Path) -> Iterator[LeftOut]:
    """What may be left out: nothing, then single pieces, then more."""
    pieces = [name for name in (BASELINE, *RUN_FILES) if there(folder / name)]
    for count in range(len(pieces)):
        yield from combinations(pieces, count)


def _read_without(folder: Path, left_out: Collection[str]) -> tuple[Run, Run | None]:
    """From a copy: a file that is not there is done without, wherever a run is read."""
    with TemporaryDirectory() as place:
        copy = Path(place)
        _copy(folder, copy, left_out)
        run = read_run(copy)
        if BASELINE in left_out or not there(folder / BASELINE / "run.json"):
            return run, None
        (copy / BASELINE).mkdir()
        _copy(folder / BASELINE, copy / BASELINE)
        return run, read_run(copy / BASELINE, like=run)


def _copy(folder: Path, into: Path, left_out: Collection[str] = ()) -> None:
    for name in RUN_FILES:
        if name not in left_out and there(folder / name):
            shutil.copyfile(folder / name, into / name)


def there(path: Path) -> bool:
    """Whether a file can be seen to be there."""
    with suppress(OSError):  # of a folder that may not be looked into
        return path.exists()
    return False
