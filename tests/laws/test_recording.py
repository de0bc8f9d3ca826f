"""A law of methods: a training step that was recorded for one silo trains all others, in all rounds, bit by bit."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch

import tiny
from fairsilo.core import vectors
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.resident import Resident
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import QuorumError
from tape import OnTape

TRAINING = dataclasses.replace(tiny.TRAINING, rounds=3)
NOT_YET = {  # method -> what its step does that no recording can: such a method's steps are simply made
    "clip-zero-shot": "trains nothing",
    "dp-sgd": "has batches of random sizes",
    "pfedme": "has a loop of its own",
}


class Recording(Sequential):
    """One after the other, from the second step of a kind on by tape."""

    def __init__(self, plan: Blueprint, people: Federation) -> None:
        super().__init__(plan, people)
        self.host.recorder = self.tape = OnTape()
        self.host.data = Resident(people, torch.device("cpu"), room=1 << 30)


def same(how: str, people: Federation) -> bool:
    """Whether the numbers are those of a run without recordings, and steps were replayed."""
    made, _ = tiny.run(how, people, TRAINING)
    replayed, loop = tiny.run(how, people, TRAINING, engine=Recording)
    tape: OnTape = loop.engine.tape  # type: ignore[attr-defined]
    return replayed.rows == made.rows and tape.replayed > tape.recorded > 0


@pytest.mark.parametrize("how", tiny.ALL)
def test_a_recorded_step_trains_every_silo(how: str, people: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "RECORDING", {"cpu", "cuda"})
    if how not in NOT_YET:
        assert same(how, people)
        return
    with contextlib.suppress(QuorumError):  # what cannot be recorded raises, or gives other numbers
        assert not same(how, people), f"{how} can be recorded now: take it off the list"
