"""Silos of one domain test on the same samples: the same model is measured there once, and what is told is the same."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

import tiny
from fairsilo.core import measuring
from fairsilo.core.silo import Silo
from fairsilo.data.federation import Federation, federate
from fairsilo.data.glyphs import glyphs
from fairsilo.engine import host
from fairsilo.tasks.classify import Classify


def crowd(**changes: Any) -> Federation:
    """Two domains with three silos each, and one that is held out."""
    found = glyphs(0, 16, 100)
    kept = {name: found.domains[name] for name in ("print", "scan", "street")}
    chosen = dataclasses.replace(found, domains=kept)
    return federate(chosen, held_out="street", silos_per_domain=3, **changes)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    calls: list[tuple[str, str]] = []
    plain = measuring.tallied

    def noting(silo: Silo, split: str, groups: Any = None) -> Any:
        calls.append((silo.name, split))
        return plain(silo, split, groups)

    monkeypatch.setattr(measuring, "tallied", noting)
    return calls


def test_splits_that_several_silos_have() -> None:
    shared = host.shared_splits(crowd())
    assert {split for _, split in shared} == {"test"}
    assert len(shared) == 6


def rows(how: str, people: Federation) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    plan = tiny.plan(how, task=Classify(len(people.classes)), model="small-cnn", silos=people.names)
    history = tiny.looped(plan, people).run()
    return history.rows, history.rounds


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["fedavg", "ditto", "fedbn", "faa(warmup=0)", "fedavg | tent"])
def test_numbers_are_those_of_measuring_everywhere(
    how: str, counted: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    people = crowd()
    once, _ = rows(how, people)
    shared = Counter(split for _, split in counted)
    counted.clear()
    monkeypatch.setattr(host, "shared_splits", lambda _: frozenset())
    often, _ = rows(how, people)
    everywhere = Counter(split for _, split in counted)
    assert once == often
    assert shared["validation"] == everywhere["validation"]  # nobody shares those
    if how != "fedbn":  # where each silo has a model of its own, there is nothing to share
        assert shared["test"] < everywhere["test"]


def test_a_domains_samples_are_measured_once_by_the_global_model(counted: list[tuple[str, str]]) -> None:
    """Two domains with three silos each: every silo's own model, and the global one per domain; street has one."""
    rows("fedavg", crowd())
    rounds = tiny.TRAINING.rounds
    assert Counter(split for _, split in counted)["test"] == rounds * (6 + 2 + 1)
