"""The benchmarks run: whatever they call is still there. Their numbers are for people, and are not asserted."""

from __future__ import annotations

import signal
import subprocess
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


def test_a_run_is_interrupted_also_where_a_shell_started_all_in_the_background() -> None:
    rows = pytest.importorskip("rows")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what is started with &
    try:
        rows.listen()
        command = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as one:
            assert one.stdout is not None
            assert one.stdout.readline() == b"here\n"
            rows.stop(one)
    finally:
        signal.signal(signal.SIGINT, before)
    assert one.returncode == -signal.SIGINT
