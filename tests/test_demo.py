"""`fairsilo demo`: what it runs, and what it ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairsilo import config
from fairsilo.cli import demonstrating
from fairsilo.runs.setup import federation_of
from test_cli import call


def test_its_silos_are_uneven_and_its_seeds_several() -> None:
    sizes = sorted(len(silo.train) for silo in federation_of(config.experiment(config.DEMO)).silos)
    assert sizes[-1] > 6 * sizes[0]
    assert len(set(config.DEMO_SEEDS)) == 3


def test_it_trains_both_and_ends_with_a_run_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {**config.DEMO, "train": {"rounds": 1, "epochs": 1}, "engine": {"name": "sequential"}}
    monkeypatch.setattr(demonstrating, "DEMO", small)
    monkeypatch.setattr(demonstrating, "DEMO_SEEDS", (0,))
    code, out, _ = call(capsys, "demo", "-o", str(tmp_path / "demo"))
    assert code == 0
    assert "run 2 of 2: elcfs | fedheal (" in out
    words, _, page = out.strip().splitlines()[-1].partition(": ")
    assert words == "one run in detail"
    assert Path(page).is_file()
    assert (tmp_path / "demo" / "comparison.html").exists()
