"""A thread that does a tracker's work, so that a run waits for no server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], object]


class Worker:
    """Does jobs one after the other in a thread of its own, until one of them raises.

    What a job raises is raised again by the next call here, in the thread of the run. The thread does not keep the
    program from ending.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(self, job: Job) -> None:
        """Have it done some time."""
        if self._problem:
            raise self._problem
        self._jobs.put(job)

    def end(self, seconds: float) -> None:
        """Wait until all jobs are done.

        Raises:
            TimeoutError: They are not, after so many seconds; what is left may still be done, or not.
        """
        self._jobs.put(None)
        self._thread.join(seconds)
        if self._problem:
            raise self._problem
        if self._thread.is_alive():
            raise TimeoutError(f"its work was not done {seconds:g} s after the run")

    def _work(self) -> None:
        for job in iter(self._jobs.get, None):
            try:
                job()
            except Exception as problem:  # noqa: BLE001 - whatever a tracker's package raises
                self._problem = problem
                return
