"""`fairsilo demo`: what it runs, and the sentence it ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairsilo import config
from fairsilo.cli import demonstrating
from fairsilo.report.tables import paired_sentence
from fairsilo.runs.setup import federation_of
from test_cli import call


def cell(method: str, seed: int, mean: float, own: float, spread: float) -> dict[str, Any]:
    at_home = {"mean": 0.8, "std_silos": spread, "at_chance": False, "chance": 0.1}
    summary = {
        "metric": "accuracy",
        "about": "global",
        "selection": "last",
        "generalisation": {"mean": mean, "at_chance": False},
        "personalisation": {"mean": own, "at_chance": False},
        "fairness": {"global": at_home, "personal": at_home, "gap_variance": 0.0},
    }
    return {"method": method, "held_out": "street", "seed": seed, "summary": summary}


def test_the_last_line_has_paired_differences_and_their_margins() -> None:
    cells = [cell("fedavg", 0, 0.40, 0.90, 0.08), cell("fedavg", 1, 0.50, 0.80, 0.06)]
    cells += [cell("x", 0, 0.60, 0.88, 0.06), cell("x", 1, 0.66, 0.80, 0.05)]
    content = {"methods": ["fedavg", "x"], "held_out": ["street"], "seeds": [0, 1], "cells": cells}
    assert paired_sentence(content) == (
        "x against fedavg, points ± 95 % over 2 seeds: generalises by +18.0 ± 25.4, "
        "personalises by -1.0 ± 12.7, mean over silos by +0.0, spread over silos by -1.5 ± 6.4"
    )


def test_its_silos_are_uneven_and_its_seeds_several() -> None:
    sizes = sorted(len(silo.train) for silo in federation_of(config.experiment(config.DEMO)).silos)
    assert sizes[-1] > 6 * sizes[0]
    assert len(set(config.DEMO_SEEDS)) == 3


def test_it_trains_both_and_ends_with_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {**config.DEMO, "train": {"rounds": 1, "epochs": 1}, "engine": {"name": "sequential"}}
    monkeypatch.setattr(demonstrating, "DEMO", small)
    monkeypatch.setattr(demonstrating, "DEMO_SEEDS", (0,))
    code, out, _ = call(capsys, "demo", "-o", str(tmp_path / "demo"))
    assert code == 0
    assert out.strip().splitlines()[-1].startswith("elcfs | fedheal against fedavg, points")
    assert (tmp_path / "demo" / "comparison.html").exists()
