"""What is written behind the work is whole when somebody has waited for it, wherever an interrupt came."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fairsilo.engine.behind import Behind


def test_jobs_run_in_order_and_waiting_sees_their_end() -> None:
    behind, done = Behind(), list[str]()

    def slow() -> None:
        time.sleep(0.05)
        done.append("first")

    behind.begin(slow)
    behind.wait()
    assert done == ["first"]
    behind.begin(lambda: done.append("second"))
    behind.wait()
    behind.wait()
    assert done == ["first", "second"]


def test_what_a_job_raised_comes_out_once_where_somebody_waits() -> None:
    behind = Behind()
    behind.begin(Path("gone").stat)
    with pytest.raises(FileNotFoundError, match="gone"):
        behind.wait()
    behind.wait()


class InterruptAt:
    """Ctrl-C at the given place among all lines that run here, in whatever function."""

    def __init__(self, place: int) -> None:
        self.left = place

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def test_an_interrupt_at_any_line_of_begin_leaves_no_job_under_way_after_waiting() -> None:
    interrupted, place = True, 0
    while interrupted:
        place += 1
        behind, seen = Behind(), list[str]()

        def job(seen: list[str] = seen) -> None:
            seen.append("begun")
            time.sleep(0.01)
            seen.append("done")

        before = sys.gettrace()
        sys.settrace(InterruptAt(place))
        try:
            behind.begin(job)
            interrupted = False
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        behind.wait()
        assert seen in ([], ["begun", "done"]), place
        behind.wait()
        assert seen in ([], ["begun", "done"]), place
    assert seen == ["begun", "done"]
    assert place > 1
