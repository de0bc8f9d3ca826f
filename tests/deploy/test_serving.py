"""Runs over sites inside this process: the numbers of a simulation, and what is agreed on before the first round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tiny_sites import Local, begun, served, simulated, sites_in


def results(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("how", ["fedavg", "scaffold", "fedheal", "fft-gp", "ditto", "fedbn"])
def test_numbers_are_those_of_a_simulation(how: str, tmp_path: Path) -> None:
    wanted = simulated(tmp_path / "here", how)
    channel = Local(sites_in(tmp_path / "sites"))
    found = served(begun(tmp_path / "there", how), channel)
    assert results(tmp_path / "there") == results(tmp_path / "here")
    assert found == wanted
    ours, theirs = (load_file(tmp_path / one / "models" / "global.safetensors") for one in ("here", "there"))
    assert ours.keys() == theirs.keys()
    assert all(bool((ours[key] == theirs[key]).all()) for key in ours)
    assert not (tmp_path / "there" / "models" / "personal").exists()
