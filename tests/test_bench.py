"""`fairsilo bench`: what it measures and how it says it. No time is asserted: machines differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairsilo.engine.processes import Pool
from fairsilo.report.bench import markdown
from fairsilo.runs import bench
from fairsilo.runs.bench import Job
from test_cli import call


def test_a_round_trains_every_silo_and_moves_the_model() -> None:
    job = Job(silos=2, samples=8, size=16, batch=4)
    with bench._sequential("cpu")(job, job.people, 1) as loop:
        before = loop.server.vector.clone()
        bench.one_round(loop)
        assert loop.server.round == 1
        assert not loop.server.vector.equal(before)


def test_engines_take_turns_and_the_first_round_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(bench, "one_round", lambda _: None)
    monkeypatch.setattr(bench, "mean_of_models", dict)
    said: list[str] = []
    found = bench.bench(Job(silos=2, samples=8, size=16, rounds=2), 1, said.append)
    assert said == ["sequential: a first round", "sequential: round 1 of 2", "sequential: round 2 of 2"]
    (row,) = found["engines"]
    assert (row["first"], row["seconds"], row["samples_per_second"]) == (1.0, 1.0, 16.0)
    assert row["memory"] > 0


def test_the_mean_of_models_is_compared_with_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that ticks once for each: the mean moves 21 rows where the copy moves 40."""
    clock = iter(range(1000))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(bench, "COLUMNS", 1000)
    found = bench.mean_of_models(3)
    assert found["share_of_copy"] == pytest.approx(21 / 40)
    assert found["gigabytes_per_second"] == pytest.approx(21 * 4000 / 1e9)


FOUND: dict[str, Any] = {
    "machine": {"fairsilo": "1", "torch": "2", "processor": "x", "cores": 4, "gpu": None},
    "job": vars(Job()),
    "engines": [
        {
            "engine": "sequential",
            "first": 3.0,
            "seconds": 2.5,
            "low": 2.0,
            "high": 3.25,
            "samples_per_second": 4000.0,
            "memory": 3 * 2**20,
        }
    ],
    "mean": {"gigabytes_per_second": 12.34, "share_of_copy": 0.812},
}


def test_the_table_to_paste() -> None:
    text = markdown(FOUND)
    assert "| sequential | 2.50 (2.00 to 3.25) | 3.00 | 4,000 | 3 MiB |" in text
    assert "12.3 GB/s, 81% of what a copy does" in text
    assert "small-cnn, 20 silos x 500 images of 32 pixels" in text


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pool: Pool) -> None:
    monkeypatch.setattr(bench, "Pool", lambda _: pool)
    monkeypatch.setattr(Pool, "close", lambda _: None)
    options = ["--silos", "2", "--samples", "6", "--size", "16", "--batch", "3", "--rounds", "1", "--workers", "2"]
    code, said, _ = call(capsys, "bench", *options, "--json")
    assert code == 0
    assert [row["engine"] for row in json.loads(said)["engines"]] == ["sequential", "processes, 2 workers"]
