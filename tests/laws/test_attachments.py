"""What a silo sends is declared and screened: with any of it dropped, reshaped, retyped or poisoned, that silo is left
out, named and counted, and the run goes on."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import records
import tiny
from fairsilo.core.attachments import Sends, bytes_of, expected
from fairsilo.core.messages import MODEL, Exchange, Message, Number
from fairsilo.laws.engines import FLAWS, Case, Spoiling
from fairsilo.methods.text import method


def check(how: str, cases: list[Case], every: int = 1) -> None:
    """One run with a case in every round: each is counted as that silo's failure, and the run goes on."""
    training = dataclasses.replace(tiny.TRAINING, rounds=len(cases), lr=0.02)
    numbered = dict(enumerate(cases, start=1))
    loop = records.made(how, training, wrap=lambda engine: Spoiling(engine, numbered), every=every)
    history = loop.run()
    assert torch.isfinite(history.vector).all()
    for found, (exchange, silo, one, fault) in zip(history.rounds, cases, strict=True):
        failures = [(item["silo"], item["exchange"], item["kind"]) for item in found["failures"]]
        if one.optional and fault == "drop":
            assert not failures, (one.name, fault, found["failures"])
            continue
        unsound = "diverged" if one.name in ("model", "loss") else "not finite"
        wrong = unsound if fault == "poison" and one.dtype != "int" else "malformed"
        assert failures == [(silo, exchange, wrong)], (one.name, fault, found["failures"])
        assert one.name in found["failures"][0]["detail"]
        left = [name for name in ("a", "b", "c") if exchange != "train" or name != silo]
        assert found["counted"] == left


def attached(how: str, exchange: str = "train") -> list[Sends]:
    return [one for one in method(how).declared if one.exchange == exchange and one.name != MODEL]


@pytest.mark.parametrize("how", [how for how in records.NAMES if attached(how)])
def test_any_flaw_in_what_a_part_attaches_is_that_silos_failure(how: str) -> None:
    unique = {one.name: one for one in attached(how)}.values()
    check(how, [("train", "b", one, fault) for one in unique for fault in FLAWS], every=99)


# what the steps of secure sums make of bad answers is in tests/test_secure_sums.py
SHARING = [how for how in records.NAMES if attached(how, "share") and not method(how).doing("masks-updates")]


@pytest.mark.parametrize("fault", FLAWS)
@pytest.mark.parametrize("how", SHARING)
def test_any_flaw_in_what_a_part_shares_is_that_silos_failure(how: str, fault: str) -> None:
    for one in attached(how, "share"):
        training = dataclasses.replace(tiny.TRAINING, rounds=1, lr=0.02)
        when = 0 if method(how).owners("prepare") else 1
        cases: dict[int, Case] = {when: ("share", "b", one, fault)}
        history = records.made(how, training, wrap=lambda engine, cases=cases: Spoiling(engine, cases)).run()
        failures = [(item["silo"], item["kind"]) for item in history.rounds[0]["failures"]]
        dropped = fault == "drop" and one.optional
        assert failures == ([] if dropped else [("b", "not finite" if fault == "poison" else "malformed")])
        assert torch.isfinite(history.vector).all()


BASE = (
    ("fedavg", "train", "b"),
    pytest.param("fedavg", "evaluate", "b", marks=pytest.mark.slow),
    ("fedavg", "evaluate", "u"),
    pytest.param("fine-tune", "personalise", "b", marks=pytest.mark.slow),
    ("tent", "adapt", "u"),
    ("faa(warmup=0)", "probe", "b"),
)


def by_name(one: Sends) -> bool:
    return ".metrics." in one.name or ".errors." in one.name


@pytest.mark.parametrize(("how", "exchange", "silo"), BASE)
def test_any_flaw_in_what_every_method_sends_is_that_silos_failure(how: str, exchange: str, silo: str) -> None:
    asked = Message({}, {"evaluate": True})
    sent = [one for group in expected(exchange, asked, (), tiny.plan("fedavg").task) for one in group]
    # of a task's many metrics and their errors the first stands for the others: they are declared by one line each
    first_of = {one.name.rpartition(".")[0]: one for one in reversed(sent) if by_name(one)}
    sent = [one for one in sent if not by_name(one) or one in first_of.values()]
    if silo == "u":  # an unseen silo has test samples alone in some federations; here it has both splits
        sent = [one for one in sent if ".test." in one.name]
    # of a measurement that is optional as a whole, dropping one number leaves the others: malformed too
    alone = [by_name(one) or one.dtype == "float64" for one in sent]
    whole = [one if by else dataclasses.replace(one, optional="") for one, by in zip(sent, alone, strict=True)]
    first = 2 if exchange == "probe" else 1  # FAA probes when there is something to move
    cases: list[Case] = [(exchange, silo, one, fault) for one in whole for fault in FLAWS]
    if first == 2:
        cases = [("nothing", silo, whole[0], "drop"), *cases]
        training = dataclasses.replace(tiny.TRAINING, rounds=len(cases), lr=0.02)
        history = records.made(
            how, training, wrap=lambda engine: Spoiling(engine, dict(enumerate(cases, start=1)))
        ).run()
        probed = [found for found in history.rounds[1:] if any(e["kind"] == "probe" for e in found["exchanges"])]
        assert len(probed) == len(cases) - 1
        assert all({item["exchange"] for item in found["failures"]} == {"probe"} for found in probed)
        return
    check(how, cases)


@pytest.mark.parametrize("place", ["tensors", "numbers"])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_what_is_not_declared_is_refused(kind: str, place: str) -> None:
    class Adding(Spoiling):
        def ask(self, exchange: Exchange) -> Any:
            for reply in self.engine.ask(exchange):
                if exchange.kind == kind and reply.silo == "b":
                    getattr(reply.answer, place)["stranger"] = torch.zeros(3) if place == "tensors" else 1.0
                yield reply

    training = dataclasses.replace(tiny.TRAINING, rounds=1)
    history = records.made("fedavg", training, wrap=lambda engine: Adding(engine, {})).run()
    (failure,) = history.rounds[0]["failures"]
    assert (failure["silo"], failure["exchange"], failure["kind"]) == ("b", kind, "malformed")
    assert "stranger" in failure["detail"]


@pytest.mark.parametrize("how", records.NAMES)
def test_bytes_follow_from_the_declaration(how: str) -> None:
    """What a round's training sends is as large as its declaration says, to the byte."""
    training = dataclasses.replace(tiny.TRAINING, rounds=1, lr=0.02)
    loop = records.made(how, training)
    (found,) = loop.run().rounds
    (exchange,) = (one for one in found["exchanges"] if one["kind"] == "train")
    server = loop.server
    asks: dict[str, Number] = {"evaluate": not server.method.personalises}
    sent = sum(
        bytes_of(
            expected("train", Message({}, asks), server.method.parts, server.task),
            server.silo_layout,
            server.sizes_for(name),
        )
        for name in server.names
    )
    assert exchange["bytes_up"] == sent
