"""What becomes of what the server keeps of all silos when one joins a run under way."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

import tiny
from fairsilo.analysis.attendance import gone_since
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Event
from fairsilo.engine.loop import Loop
from fairsilo.laws.check import Crash
from fairsilo.methods.newcomers import with_newcomers


def joined(how: str, people: Federation, folder: Path, rounds: int = 3) -> Loop:
    """A run that silo c joins in round 2."""
    fewer = Federation(people.name, people.classes, people.silos[:2], people.unseen)
    training = dataclasses.replace(tiny.TRAINING, rounds=rounds)

    def crash(event: Event) -> None:
        if (event.kind, event.round) == ("round", 1):
            raise Crash

    with pytest.raises(Crash):
        tiny.run(how, fewer, training, folder=folder, listener=crash)
    return tiny.run(how, people, training, folder=folder)[1]


@pytest.mark.parametrize(
    ("how", "part", "key"),
    [("scaffold", "control-variates", "control"), ("feddyn", "dynamic-regularizer", "correction")],
)
def test_what_the_server_keeps_stays_the_mean_of_what_the_silos_keep(
    how: str, part: str, key: str, people: Federation, tmp_path: Path
) -> None:
    loop = joined(how, people, tmp_path)
    kept = torch.stack([loop.engine.memory[name][part][key] for name in "abc"]).mean(0)
    found = loop.server.memory[part][key]
    assert found.abs().max() > 1e-3
    assert torch.allclose(found, kept[: len(found)], atol=1e-6)


def test_a_newcomer_has_an_equal_share_and_the_others_make_room() -> None:
    assert with_newcomers({"a": 0.75, "b": 0.25}, ("a", "b", "c", "d")) == {
        "a": 0.375,
        "b": 0.125,
        "c": 0.25,
        "d": 0.25,
    }
    assert with_newcomers({"a": 0.7, "b": 0.3}, ("a", "b")) == {"a": 0.7, "b": 0.3}


@pytest.mark.parametrize("how", ["afl", "ga(warmup=0)"])
def test_a_newcomer_begins_with_an_equal_share(how: str, people: Federation, tmp_path: Path) -> None:
    rounds = joined(how, people, tmp_path).history.rounds
    assert rounds[1]["weights"]["c"] == pytest.approx(1 / 3)
    assert sum(rounds[1]["weights"].values()) == pytest.approx(1)


def failed(silo: str) -> dict[str, str]:
    return {"silo": silo, "exchange": "train", "kind": "lost", "detail": f"{silo} is away"}


def test_who_failed_until_the_end_is_gone_since_the_first_round_of_it() -> None:
    rounds = [
        {"round": 1, "counted": ["a", "b"], "failures": [failed("c")]},
        {"round": 2, "counted": ["a", "c"], "failures": [failed("b")]},
        {"round": 3, "counted": ["a", "c"], "failures": [failed("b"), failed("u")]},
        {"round": 4, "counted": ["a"], "failures": [failed("b"), failed("c")]},
    ]
    rows = [{"round": 1, "silo": "u"}, {"round": 4, "silo": "c"}]  # what it evaluated counts too
    assert gone_since(rounds, rows) == {"b": (2, "b is away"), "u": (3, "u is away")}
