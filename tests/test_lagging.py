"""A run says where batch normalisation's running statistics do not follow a silo's few steps."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from torch import nn

import fairsilo
import tiny
from fairsilo.runs.lagging import lagging


def said(
    how: str = "fedavg", momentum: float | None = 0.1, sizes: dict[str, int] | None = None, epochs: int = 1
) -> str:
    training = dataclasses.replace(tiny.TRAINING, batch_size=10, epochs=epochs)
    plan = tiny.plan(how, training)
    module = plan.flat().module
    for one in module.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.momentum = momentum  # type: ignore[assignment]
    return lagging(plan, module, tiny.federation(sizes or {"a": 60, "b": 61, "c": 200}).roster)


def test_statistics_that_are_mostly_from_before_are_said() -> None:
    sentence = said()  # 0.9 to the 6th is 0.531, to the 7th 0.478
    assert "after 6 steps a round 53% of its running statistics at silo 'a' are still the global model's;" in sentence


def test_the_worst_silo_is_named_and_others_counted() -> None:
    assert "after 1 step a round 90% of its running statistics at silo 'b'" in said(sizes={"a": 30, "b": 5, "c": 200})
    assert "over half at 1 more" in said(sizes={"a": 30, "b": 5, "c": 200})


@pytest.mark.parametrize(
    "enough",
    [
        {"epochs": 2},
        {"momentum": 0.2},
        {"momentum": None},  # the mean of all batches
        {"sizes": {"a": 61, "b": 62}},
        {"sizes": {"a": 5}},  # its own statistics are the global ones
        {"how": "fedbn"},  # statistics stay at the silo
    ],
    ids=str,
)
def test_nothing_is_said_where_statistics_follow(enough: dict[str, object]) -> None:
    assert said(**enough) == ""  # type: ignore[arg-type]


def test_a_run_keeps_the_sentence(tmp_path: Path) -> None:
    result = fairsilo.run(method="fedavg", rounds=1, epochs=1, out=tmp_path / "run", batch_size=512)
    notes = json.loads((result.folder / "run.json").read_text(encoding="utf-8"))["notes"]
    assert any("batch normalisation lags" in note for note in notes)
