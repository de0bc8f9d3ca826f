"""A law of methods: a training step that was recorded for one silo trains all others, in all rounds, bit by bit."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest

import tiny
from fairsilo.core import vectors
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import QuorumError
from tape import OnTape

TRAINING = dataclasses.replace(tiny.TRAINING, rounds=3)
HALF_WAY = "measures how strong its term is half-way, as a number"
NO_CONTRAST = "has no group to contrast with in round 1"
NOT_YET = {  # method -> what its step does that no recording can: such a method's steps are simply made
    "fedproc": "counts steps in Python, and has prototypes from round 2 on",
    "fedproto": "counts steps in Python, and has prototypes from round 2 on",
    "fedproto(share_model=false)": "counts steps in Python, and has prototypes from round 2 on",
    "only-da": HALF_WAY,
    "bgp": HALF_WAY,
    "fft-gp": HALF_WAY,
    "grace-client": HALF_WAY,
    "grace": HALF_WAY,
    "grace(align=adversarial) | tent": HALF_WAY,
    "fedclip | fft-gp": HALF_WAY,
    "promptfl | grace": HALF_WAY,
    "fedgc": NO_CONTRAST,
    "fedgcr": NO_CONTRAST,
    "fedgcr(variant=released)": NO_CONTRAST,
    "clip-zero-shot": "trains nothing",
    "elcfs": "reads further samples of the silo in a step",
    "dp-sgd": "has batches of random sizes",
    "pfedme": "has a loop of its own",
}


class Recording(Sequential):
    """One after the other, from the second step of a kind on by tape."""

    def __init__(self, plan: Blueprint, people: Federation) -> None:
        super().__init__(plan, people)
        self.host.recorder = self.tape = OnTape()


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
