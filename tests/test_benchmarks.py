"""The benchmarks run: whatever they call is still there. Their numbers are for people, and are not asserted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))


def test_the_ratio_of_a_round_to_a_plain_loop_is_taken() -> None:
    run = pytest.importorskip("run")
    found = run.engine_overhead("small-cnn", 8, 8, 2)
    assert found["repetitions"] == 2
    assert 0 < found["low"] <= found["median"] <= found["high"]


@pytest.mark.slow
def test_the_share_of_the_bandwidth_is_taken() -> None:
    run = pytest.importorskip("run")
    assert run.mean_bandwidth(repetitions=1)["median"] > 0
