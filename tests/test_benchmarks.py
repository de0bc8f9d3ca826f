"""The benchmarks run: whatever they call is still there. Their numbers are for people, and are not asserted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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
    ended = signal.getsignal(signal.SIGTERM)
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
        signal.signal(signal.SIGTERM, ended)
    assert one.returncode == -signal.SIGINT


def test_a_run_that_lost_a_silo_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pytest.importorskip("rows")
    lines = {"whole": [0], "unlucky": [1, 0], "broken": [None, None], "short of memory": [2, 2]}
    asked: list[str] = []

    def made(cell: Any, *_: Any) -> str:
        asked.append(cell.row)
        failures = lines[cell.row].pop(0)
        return "" if failures is None else json.dumps({"method": cell.row, "seconds": 1.0, "failures": failures})

    monkeypatch.setattr(rows, "made", made)
    cells = [rows.Cell("some/table", row, "a", 0) for row in lines]
    rows.fill(cells, [], 1, 1.0, tmp_path / "out", "abc")
    assert asked == ["whole", "unlucky", "broken", "short of memory", "unlucky", "broken", "short of memory"]
    kept = [json.loads(line) for line in (tmp_path / "out").read_text(encoding="utf-8").splitlines()]
    assert [(one["method"], one["table"], one["commit"]) for one in kept] == [
        ("whole", "some/table", "abc"),
        ("unlucky", "some/table", "abc"),
    ]


def test_another_try_does_not_read_the_first_one_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pytest.importorskip("rows")
    cell = rows.Cell("some/table", "fedavg", "a", 0)
    script = "import sys, pathlib; o = pathlib.Path(sys.argv[sys.argv.index('--out') + 1]); known = o.exists()\n"
    script += "o.mkdir(exist_ok=True); pathlib.Path(f'{o}.l').write_text(str(known))"
    folder = tmp_path / "fairsilo"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "cli.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert [rows.made(cell, [], tmp_path, time.monotonic() + 60) for _ in range(2)] == ["False", "False"]


def test_what_is_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pytest.importorskip("rows")
    cell = rows.Cell("some/table", "fedavg", "a", 0)
    script = "import sys, time, pathlib; o = pathlib.Path(sys.argv[sys.argv.index('--out') + 1]); known = o.exists()\n"
    script += "o.mkdir(exist_ok=True); time.sleep(0 if known else 60); pathlib.Path(f'{o}.l').write_text(str(known))"
    folder = tmp_path / "fairsilo"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "cli.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not rows.made(cell, [], tmp_path, time.monotonic() + 3)
    assert rows.made(cell, [], tmp_path, time.monotonic() + 60) == "True"
    assert not (tmp_path / cell.folder).exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_script_that_is_ended_interrupts_its_runs_and_begins_no_other(tmp_path: Path, how: signal.Signals) -> None:
    folder = tmp_path / "fairsilo"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    run = "import sys, time, pathlib\no = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\no.mkdir()\n"
    run += (
        "try:\n    (o / 'told').touch()\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    (o / 'stopped').touch()\n"
    )
    (folder / "cli.py").write_text(run)
    script = "import os, sys, pathlib, rows\nasked = rows.listen()\nwhere = pathlib.Path(sys.argv[1])\n"
    script += "os.environ['PYTHONPATH'] = str(where)\n"
    script += "cells = [rows.Cell('some/table', row, 'a', 0) for row in ('one', 'two')]\n"
    script += "rows.fill(cells, [], 1, 5.0, where / 'out', '', where / 'kept', asked)\nsys.exit(128 + asked[0])\n"
    benchmarks = Path(__file__).parents[1] / "benchmarks"
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=benchmarks) as one:
        ends = time.monotonic() + 60
        while not list(tmp_path.glob("kept/*/told")) and time.monotonic() < ends:
            time.sleep(0.1)
        one.send_signal(how)
        time.sleep(0.05)
        one.send_signal(how)  # twice, as from somebody who cannot wait
        assert one.wait(60) == 128 + how
    assert len(list(tmp_path.glob("kept/*/stopped"))) == len(list(tmp_path.glob("kept/*.log"))) == 1


def test_a_trace_says_how_long_a_gpu_was_busy_and_with_what() -> None:
    kernels = pytest.importorskip("kernels")
    calls = [("conv", 0, 10, 1), ("norm", 5, 10, 2), ("conv", 30, 4, 1)]  # two streams, which overlap from 5 to 10
    events = [
        {"cat": "kernel", "name": name, "ts": begin, "dur": lasts, "args": {"grid": [2, 3, 1], "stream": stream}}
        for name, begin, lasts, stream in calls
    ]
    found = kernels.read({"traceEvents": [{"cat": "cpu_op", "name": "aten::conv2d", "ts": 0, "dur": 99}, *events]})
    assert [(one.name, one.microseconds, one.calls) for one in found.kernels] == [("conv", 14, 2), ("norm", 10, 1)]
    assert found.kernels[0].blocks == [6, 6]
    assert (found.streams, found.lasted, found.busy, found.summed) == (2, 34, 19, 24)


@pytest.mark.slow
def test_a_round_is_watched_with_a_tables_settings() -> None:
    kernels = pytest.importorskip("kernels")
    settings = ["train.epochs=1", "evaluate.every=100", "data.share=8", "engine.workers=1"]
    run = kernels.asked("ga", settings, "fft-gp/glyphs", "street")
    assert (run.method, run.data.held_out, run.train.lr, run.train.epochs) == ("ga", "street", 0.02, 1)
    assert kernels.watched(run, 2).kernels == []  # a processor has none
