"""Ctrl-C ends a command with one sentence and exit code 130."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import typer

from fairsilo.cli.output import complain

SAME = "the same command"  # a hint that has these words shows the command in their place
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]*@")  # in an address, such as that of a tracker


@contextmanager
def interruptible(hint: str = "nothing was written yet", kept: bool = True) -> Iterator[None]:
    """Says how to go on: what the interrupted work noted on the exception, where it is `kept`; else `hint`.

    Where the hint says `the same command`, it stands there as it was given, quoted for a shell.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        notes = getattr(stop, "__notes__", ()) if kept else ()
        complain("; ".join(filter(None, ("interrupted", *(notes or [hint.replace(SAME, _given())])))))
        raise typer.Exit(130) from None


def _given() -> str:
    """The command to be copied, or words for it where it has a password, which must not stand in a log."""
    given = shlex.join(["fairsilo", *sys.argv[1:]])
    return SAME if _PASSWORD.search(given) else f"`{given}`"


@contextmanager
def until_stopped() -> Iterator[Callable[[], bool]]:
    """Yields a question: whether Ctrl-C or a polite kill has come. Work that asks it often ends in its own time."""
    asked = Event()
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
