"""What fairsilo raises when the input, not the program, is at fault."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class FairsiloError(Exception):
    """Bad input: one sentence that names the field or file, the value and what would be right (exit code 2)."""


class StoppedError(FairsiloError):
    """A run that cannot go on; its last checkpoint can be resumed."""


class QuorumError(StoppedError):
    """Too few silos answered a round."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean 'rounds'?`, or the list of what is known when nothing is near."""
    known = sorted(known)
    match = get_close_matches(word, known, n=1, cutoff=0.6)
    if match:
        return f"; did you mean {match[0]!r}?"
    return f"; known: {', '.join(known)}" if known else ""
