"""Ctrl-C ends a command with one sentence and exit code 130."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import typer

from fairsilo.cli.output import complain


@contextmanager
def interruptible(hint: str = "nothing was written yet", kept: bool = True) -> Iterator[None]:
    """Says how to go on: what the interrupted work noted on the exception, where it is `kept`; else `hint`."""
    try:
        yield
    except KeyboardInterrupt as stop:
        notes = getattr(stop, "__notes__", ()) if kept else ()
        complain("; ".join(filter(None, ("interrupted", *(notes or [hint])))))
        raise typer.Exit(130) from None


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
