"""Writes behind the work: a checkpoint goes to the disk while the next round trains."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Behind:
    """One job at a time in a thread. Who hands in the next one waits for the one before, and gets what it raised."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None

    def begin(self, job: Callable[[], object]) -> None:
        """Start a job; there is none under way (`wait` comes first)."""

        def run() -> None:
            try:
                job()
            except BaseException as problem:  # noqa: BLE001 - it is raised where somebody can act on it
                self._problem = problem

        self._thread = threading.Thread(target=run, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Until the job under way is done; raises what it raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
