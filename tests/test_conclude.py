"""What a part does after the last round: once, before the evaluation, and not again when a run is resumed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.core.server import Server
from fairsilo.data.federation import Federation
from fairsilo.errors import StoppedError
from fairsilo.fields import setting
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.parts.server_tuning import ServerTuning
from fairsilo.runs.saved import SavedRun


@dataclass(frozen=True)
class Scaled(Part):
    """Multiplies the head's bias by a factor and adds a draw, after the last round."""

    name = "scaled"

    factor: float = setting(100.0, "of the bias")

    def conclude(self, server: Server) -> None:
        vector = server.vector.clone()
        slot = next(slot for slot in server.layout.slots if slot.name == "head.bias")
        vector[slot.place] = self.factor * vector[slot.place] + torch.rand(3)
        server.vector = vector


def scaled(factor: float = 100.0) -> Method:
    return Method((Scaled(factor),), "scaled")


def global_rows(history: Any, number: int) -> list[dict[str, Any]]:
    return [row for row in history.rows if row["round"] == number and row["model"] == "global"]


def test_the_last_evaluation_and_the_saved_model_are_about_what_conclude_left(
    people: Federation, tmp_path: Path
) -> None:
    plain, _ = tiny.run("fedavg", people)
    history, loop = tiny.run(scaled(), people, folder=tmp_path / "run")
    last = tiny.TRAINING.rounds
    assert global_rows(history, last - 1) == global_rows(plain, last - 1)
    for one, other in zip(global_rows(history, last), global_rows(plain, last), strict=True):
        assert one["loss"] > other["loss"] + 0.5
    slot = next(slot for slot in loop.server.layout.slots if slot.name == "head.bias")
    change = history.vector - plain.vector
    assert change[slot.place].abs().max() > 0.5
    assert torch.equal(torch.cat([change[: slot.start], change[slot.stop :]]).unique(), torch.zeros(1))
    saved = SavedRun(tmp_path / "run").read_checkpoint()
    assert saved is not None
    assert torch.equal(saved[1]["vector"], history.vector)


def test_a_finished_run_is_not_concluded_again(people: Federation, tmp_path: Path) -> None:
    first, _ = tiny.run(scaled(), people, folder=tmp_path / "run")
    again, _ = tiny.run(scaled(), people, folder=tmp_path / "run")
    assert torch.equal(first.vector, again.vector)
    elsewhere, _ = tiny.run(scaled(), people)
    assert torch.equal(first.vector, elsewhere.vector)  # its draws depend on the seed alone


def test_a_conclusion_that_breaks_the_model_stops_the_run(people: Federation) -> None:
    with pytest.raises(StoppedError, match="made the global model not finite after the last round"):
        tiny.run(scaled(float("1e299")), people)


def test_tuning_once_is_fedavg_until_the_last_round_and_then_one_tuning(people: Federation, tmp_path: Path) -> None:
    how = "fedavg-ft(tuning=end, tuning_lr=0.01)"
    plain, _ = tiny.run("fedavg", people)
    once, loop = tiny.run(how, people, folder=tmp_path / "run")
    every, _ = tiny.run("fedavg-ft(tuning_lr=0.01)", people)
    last = tiny.TRAINING.rounds

    def before(history: Any) -> list[float]:
        return [row["loss"] for row in history.rows if row["round"] < last]

    assert before(once) == pytest.approx(before(plain), rel=1e-4)
    assert before(every) != pytest.approx(before(plain), rel=1e-2)
    changed = (once.vector - plain.vector)[: loop.server.layout.parameters]
    assert changed.norm() > 0.05
    losses = [sum(row["loss"] for row in global_rows(run, last)) for run in (once, plain)]
    assert losses[0] != pytest.approx(losses[1], rel=1e-2)  # the evaluation saw the tuned model
    again, _ = tiny.run(how, people, folder=tmp_path / "run")
    assert torch.equal(again.vector, once.vector)


def test_tuning_once_starts_from_the_last_mean(people: Federation) -> None:
    """In a run of one round, tuning after the round and after the last one is the same."""
    one_round = dataclasses.replace(tiny.TRAINING, rounds=1)
    vectors = [tiny.run(f"fedavg-ft(tuning={when})", people, one_round)[0].vector for when in ("round", "end")]
    torch.testing.assert_close(*vectors)


def test_when_each_method_tunes() -> None:
    found = {
        name: next(part.tuning for part in CATALOGUE[name].make().parts if isinstance(part, ServerTuning))
        for name in ("fedavg-ft", "fedprox-ft", "fedclip-ft", "fedot-ft")
    }
    assert found == {"fedavg-ft": "round", "fedprox-ft": "round", "fedclip-ft": "end", "fedot-ft": "end"}
