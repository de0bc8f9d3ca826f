"""Silos that sit out rounds: however seldom a run is evaluated, their own models are measured as they stand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import tiny
from fairsilo.analysis.attendance import gone_since
from fairsilo.analysis.metrics import results, select_rounds, summarise
from fairsilo.engine.loop import History

ROUNDS = 7
TRAINING = dataclasses.replace(tiny.TRAINING, rounds=ROUNDS, participation="1")


def run(every: int, how: str = "ditto", **options: Any) -> History:
    return tiny.run(how, tiny.federation(), TRAINING, every=every, **options)[0]


def own(history: History, number: int) -> dict[str, float]:
    return results(history.rows, [number], "personal", "validation", "loss")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["ditto", "fedavg", "fedbn", "fedavg-ft"])
@pytest.mark.parametrize("every", [3, 10])
def test_own_models_have_the_results_of_a_run_that_is_evaluated_in_every_round(how: str, every: int) -> None:
    often, seldom = run(1, how), run(every, how)
    evaluated = [number for number in range(1, ROUNDS + 1) if number % every == 0 or number == ROUNDS]
    assert sorted({row["round"] for row in seldom.rows}) == evaluated
    for number in evaluated:
        assert own(seldom, number) == own(often, number)
    first, second = (summarise(one.rows, "personal") for one in (often, seldom))
    assert first["personalisation"] == second["personalisation"]
    assert first["silos"] == second["silos"]


def test_all_silos_have_a_result_and_say_when_their_model_was_made() -> None:
    history = run(10)
    took_part = {name: max(one["round"] for one in history.rounds if name in one["participants"]) for name in "abc"}
    assert min(took_part.values()) < ROUNDS  # else there is nothing to see
    rows = {row["silo"]: row for row in history.rows if row["model"] == "personal" and row["split"] == "test"}
    assert {name: row.get("made", row["round"]) for name, row in rows.items()} == took_part
    assert select_rounds(history.rows, "last5") == [ROUNDS]


def test_what_waits_for_an_evaluation_survives_a_cut(tmp_path: Path) -> None:
    whole = run(10, folder=tmp_path / "whole")

    def stop(event: Any) -> None:
        if event.kind == "opened" and event.round == ROUNDS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(10, folder=tmp_path / "cut", listener=stop)
    assert run(10, folder=tmp_path / "cut").rows == whole.rows


def test_a_silo_that_only_stands_by_is_not_heard() -> None:
    row = {"round": 4, "silo": "a", "made": 3}
    failed = [{"round": 4, "failures": [{"silo": "a", "detail": "gone"}], "counted": []}]
    assert gone_since(failed, [row]) == {"a": (4, "gone")}
    assert gone_since(failed, [{"round": 4, "silo": "a"}]) == {}
