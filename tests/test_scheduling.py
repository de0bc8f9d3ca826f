"""Unequal silos fill the workers."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

import tiny
from fairsilo.core.messages import Exchange, Message
from fairsilo.engine.processes import Pool, Processes
from fairsilo.engine.scheduling import Expected, makespan, order


def test_when_the_last_job_ends() -> None:
    assert makespan([3, 1, 1, 1], 2) == 3
    assert makespan([1, 1, 1, 3], 2) == 4
    assert makespan([2, 2], 1) == 4
    assert makespan([], 2) == 0


def test_the_longest_goes_first_where_that_ends_earlier() -> None:
    times = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 3.0}
    assert order("abcd", times, 2) == ["d", "a", "b", "c"]
    assert order("abcd", times, 1) == ["a", "b", "c", "d"]  # nothing to gain, and answers would wait


def test_equal_silos_keep_their_order() -> None:
    times = {"a": 1.0, "b": 1.01, "c": 1.0, "d": 0.99}
    assert order("abcd", times, 2) == ["a", "b", "c", "d"]


def test_times_are_those_of_the_last_exchange_and_samples_before() -> None:
    expected = Expected({"a": 10, "b": 30})
    assert expected.of("train", ["a", "b"]) == {"a": 10, "b": 30}
    expected.note("train", "a", 0.5)
    assert expected.of("train", ["a", "b"]) == {"a": 10, "b": 30}  # seconds and samples do not compare
    expected.note("train", "b", 0.1)
    assert expected.of("train", ["a", "b"]) == {"a": 0.5, "b": 0.1}
    assert expected.of("evaluate", ["b"]) == {"b": 30}


def test_a_large_silo_is_handed_out_first_and_answers_come_by_name(pool: Pool) -> None:
    people = tiny.federation({"a": 12, "b": 12, "c": 60})
    engine = Processes(tiny.plan("fedavg"), people, pool)
    handed: list[str] = []
    plain = engine.stores

    class Noting(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            handed.append(name)
            return plain[name]

    engine.stores = Noting(plain)  # type: ignore[assignment]
    layout, start = engine.blueprint.start()
    messages = {name: Message({"model": layout.to_wire(start)}) for name in "abc"}
    replies = [reply.silo for reply in engine.ask(Exchange("train", 1, messages))]
    assert replies == ["a", "b", "c"]
    assert handed[0] == "c"


FREED = """
import sys, numpy
from fairsilo.engine.allocator import keep_freed_blocks
if sys.argv[1] == "kept":
    assert keep_freed_blocks()
def resident():
    return int(open("/proc/self/statm").read().split()[1])
numpy.ones(10)
before = resident()
numpy.ones(25_000_000)
print((resident() - before) * 4096 // 10**6)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is about glibc's allocator")
def test_workers_keep_the_memory_of_a_step_for_the_next() -> None:
    """An array of 200 MB is made and let go of: what the process still holds of it, in MB."""
    plain, kept = (
        int(subprocess.run([sys.executable, "-c", FREED, how], check=True, capture_output=True).stdout)
        for how in ("plain", "kept")
    )
    assert plain < 50
    assert kept > 150
