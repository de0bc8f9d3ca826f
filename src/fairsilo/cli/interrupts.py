"""Ctrl-C ends a command with one sentence and exit code 130."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fairsilo.cli.output import complain


@contextmanager
def interruptible(hint: str = "nothing was written yet") -> Iterator[None]:
    """Says how to go on: what the interrupted work noted on the exception, else `hint`."""
    try:
        yield
    except KeyboardInterrupt as stop:
        complain(f"interrupted; {'; '.join(getattr(stop, '__notes__', ())) or hint}")
        raise typer.Exit(130) from None
