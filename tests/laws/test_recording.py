"""A law of methods: a training step that was recorded for one silo trains all others, in all rounds, bit by bit."""

from __future__ import annotations

import contextlib
import dataclasses
from functools import partial
from typing import Any

import pytest
import torch

import tiny
from fairsilo.core import vectors
from fairsilo.core.silo import Batch, Planned, Silo
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.lanes import Lanes
from fairsilo.engine.resident import Resident
from fairsilo.errors import QuorumError
from tape import OnTape

TRAINING = dataclasses.replace(tiny.TRAINING, rounds=3)
TEXTS = "has a text encoder that looks at values"
NOT_YET = {  # method -> what its step does that no recording can: such a method's steps are simply made
    "dp-sgd": "has batches of random sizes",
    "promptfl": TEXTS,
    "promptfl | ga": TEXTS,
    "promptfl | grace": TEXTS,
}


def recording(plan: Blueprint, people: Federation, lanes: int = 2) -> Lanes:
    """Two silos at a time, from the third step of a kind on by tape."""
    engine = Lanes(plan, people, lanes, recordings=OnTape)
    data = Resident(people, torch.device("cpu"), room=1 << 30)
    for lane in engine.lanes:
        lane.host.data = data
    return engine


def same(how: str, people: Federation, lanes: int = 2) -> bool:
    """Whether the numbers are those of silos one after the other without recordings, and steps were replayed."""
    made, _ = tiny.run(how, people, TRAINING)
    replayed, loop = tiny.run(how, people, TRAINING, engine=partial(recording, lanes=lanes))
    engine = loop.engine
    assert isinstance(engine, Lanes)
    engine.close()
    tapes = [tape for tape in engine.recorders if isinstance(tape, OnTape)]
    return replayed.rows == made.rows and sum(tape.replayed for tape in tapes) > sum(tape.recorded for tape in tapes)


@pytest.mark.parametrize("how", tiny.ALL)
def test_a_recorded_step_trains_every_silo(how: str, people: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "RECORDING", {"cpu", "cuda"})
    if how not in NOT_YET:
        assert same(how, people)
        return
    with contextlib.suppress(QuorumError):  # what cannot be recorded raises, or gives other numbers
        assert not same(how, people), f"{how} can be recorded now: take it off the list"


@pytest.mark.parametrize("how", ["fedavg", "fft-gp", "per-fedavg", "ditto", "fedbabu", "fedrep"])
def test_batches_are_made_and_changed_inside_the_recorded_step(
    how: str, people: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pairs too, and for models of a silo's own: what is done outside a recording, Python does in every step."""
    monkeypatch.setattr(vectors, "RECORDING", {"cpu", "cuda"})
    monkeypatch.setattr(tiny, "plan", partial(tiny.plan, augment="ga"))
    made: list[Planned] = []
    planned: list[Planned] = []
    made_by_silos, drawn_by_silos = Silo.made, Silo.drawn

    def counted(silo: Silo, step: Planned) -> Batch:
        made.extend([step] if silo.recorder else [])
        return made_by_silos(silo, step)

    def drawn(silo: Silo, *given: Any, **named: Any) -> list[Planned]:
        found = drawn_by_silos(silo, *given, **named)
        planned.extend(found if silo.recorder else [])
        return found

    monkeypatch.setattr(Silo, "made", counted)
    monkeypatch.setattr(Silo, "drawn", drawn)
    assert same(how, people, lanes=1)
    assert 0 < len(made) < len(planned) / 2
