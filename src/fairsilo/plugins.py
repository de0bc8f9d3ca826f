"""Code of other packages: entry points of installed ones by name, and anything importable as `package:name`.

Importing runs code. What a user names in a call of `run` or `compare` is imported; what a run folder names is imported
only if the user says so (`trust`): see `runs.opened.read_experiment`.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from fairsilo.errors import FairsiloError

GROUPS = ("fairsilo.methods", "fairsilo.models", "fairsilo.datasets", "fairsilo.tasks")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*")


def is_reference(text: str) -> bool:
    """Whether a text has the form `package.module:name`."""
    return bool(_REFERENCE.fullmatch(text))


def imported(text: str, what: str) -> Any:
    """The object that `package.module:name` names; modules beside the user's configuration are found too.

    Args:
        text: The reference.
        what: What it is for, such as "model", for the error.

    Raises:
        FairsiloError: It cannot be imported.
    """
    package, _, name = text.partition(":")
    try:
        with _working_directory_importable():
            found: Any = importlib.import_module(package)
        for attribute in name.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as problem:
        raise FairsiloError(f"{what} {text!r} cannot be imported: {problem}") from problem
    except Exception as problem:  # the module's own code may raise anything
        raise FairsiloError(f"{what} {text!r} cannot be imported: {type(problem).__name__}: {problem}") from problem
    return found


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    """As with `python -m`, but for the time of one import only."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def found_by(group: str, name: str, what: str) -> Any:
    """The object that a name stands for: an entry point of the group, or else `package:name`."""
    return offered(group, name, what) if name in registered(group) else imported(name, what)


def called(function: Any, arguments: tuple[object, ...], what: str, signature: str) -> Any:
    """What the function of another package returns; whatever it raises becomes one sentence.

    Args:
        function: The function, or what should be one.
        arguments: What it is called with.
        what: What it makes, for the error, such as "data set 'mine:scans'".
        signature: Its arguments in words, for the error.

    Raises:
        FairsiloError: It cannot be called so, or raises.
    """
    if not callable(function):
        raise FairsiloError(f"{what} is not callable; it must be a function of {signature}")
    try:
        return function(*arguments)
    except FairsiloError:
        raise
    except TypeError as problem:
        raise FairsiloError(f"{what} cannot be called with {signature}: {problem}") from problem
    except Exception as problem:  # the package of somebody else may raise anything
        raise FairsiloError(f"{what} raised {type(problem).__name__}: {problem}") from problem


@cache
def registered(group: str) -> dict[str, EntryPoint]:
    """What installed packages offer: name -> entry point, not imported yet."""
    return {point.name: point for point in entry_points(group=group)}


def offered(group: str, name: str, what: str) -> Any:
    """The object behind an entry point."""
    point = registered(group)[name]
    try:
        return point.load()
    except Exception as problem:  # the package of somebody else may raise anything
        raise FairsiloError(
            f"{what} {name!r} of the package {point.value!r} cannot be imported: {problem}"
        ) from problem
