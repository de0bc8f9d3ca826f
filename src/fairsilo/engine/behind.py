"""Writes behind the work: a checkpoint goes to the disk while the next round trains."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue


class Behind:
    """One job at a time in a thread. Who hands in the next one waits for the one before, and gets what it raised.

    An interrupt may come at any line. So nothing here remembers whether a job is under way: the thread takes jobs in
    order, waiting is one more job, and the queues are the one kind that an interrupt cannot leave half changed.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._ended: SimpleQueue[object] = SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs, self._ended), name="checkpoint", daemon=True).start()
        weakref.finalize(self, self._jobs.put, None)

    def begin(self, job: Callable[[], object]) -> None:
        """Start a job; there is none under way (`wait` comes first)."""
        self._jobs.put(job)

    def wait(self) -> None:
        """Until the job under way is done; raises what it raised."""
        ended, mark, problem = self._ended, object(), None
        self._jobs.put(lambda: ended.put(mark))
        while (one := ended.get()) is not mark:
            problem = one
        if isinstance(problem, BaseException):
            raise problem


def _work(jobs: SimpleQueue[Callable[[], object] | None], ended: SimpleQueue[object]) -> None:
    while (job := jobs.get()) is not None:
        try:
            job()
        except BaseException as problem:  # noqa: BLE001 - it is raised where somebody can act on it
            ended.put(problem)
