"""What fairsilo raises when the input, not the program, is at fault."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

_IN_THE_MAKING = re.compile(r"(^|/)\.([^/]+)\.part(?:ial)?(?=/|$)")  # what is written beside, then put in place


class FairsiloError(Exception):
    """Bad input: one sentence that names the field or file, the value and what would be right (exit code 2).

    Example:
        >>> import fairsilo
        >>> try:
        ...     fairsilo.method("fedprx")
        ... except fairsilo.FairsiloError as problem:
        ...     print("refused")
        refused
    """


class UnknownSettingError(FairsiloError):
    """A setting that a run does not have; it may be one of a method."""

    def __init__(self, key: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown setting {key!r}{near(key, known) or '; `fairsilo settings` lists what there is'}")
        self.key = key


class StoppedError(FairsiloError):
    """A run that cannot go on, such as one whose quorum failed; its last checkpoint can be resumed (exit code 1)."""


class QuorumError(StoppedError):
    """Too few silos answered a round."""


def file_problem(problem: OSError) -> str:
    """A sentence about a file that cannot be read or written, and what was noted with it."""
    reason = problem.strerror or str(problem) or type(problem).__name__
    named = "" if problem.filename is None else _IN_THE_MAKING.sub(r"\1\2", str(problem.filename))
    where = f"cannot read or write {named}: " if named else ""
    return "; ".join([f"{where}{reason}", *getattr(problem, "__notes__", ())])


def reason_of(problem: Exception) -> str:
    """The exception and the line that raised it: enough to find it, nothing of the data."""
    frames = traceback.extract_tb(problem.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(problem).__name__}: {problem}{where}"


@contextmanager
def told_of(thing: Path, beside: Path | None = None) -> Iterator[None]:
    """What goes wrong with a temporary file or folder is told of the one that it would have become.

    Args:
        thing: What the user knows.
        beside: What is made in its place at first; where it has a random name, whatever file is in trouble is told so.
    """
    try:
        yield
    except FairsiloError as problem:
        if beside is None or str(beside) not in str(problem):
            raise
        raise FairsiloError(str(problem).replace(str(beside), str(thing))) from problem
    except OSError as problem:
        if problem.filename is not None and (beside is None or str(beside) in str(problem.filename)):
            here = "" if beside is None else str(problem.filename).partition(str(beside))[2]
            problem.filename = f"{thing}{here}"
        raise


def near(word: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean 'rounds'?`; empty where nothing is near."""
    known = sorted(known)
    last = word.rpartition(".")[2]  # `evaluate.held_out` is `data.held_out` under another head
    same = [one for one in known if "." in word and one.rpartition(".")[2] == last]
    match = same or get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {match[0]!r}?" if match else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint, or the list of what is known where nothing is near."""
    known = sorted(known)
    return near(word, known) or (f"; known: {', '.join(known)}" if known else "")
