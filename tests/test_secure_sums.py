"""Secure aggregation: the sum is exact, nothing else is seen, and silos refuse what would show more."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tiny
from fairsilo.config import EvaluateSettings
from fairsilo.core.messages import MODEL, Exchange, Failure, Message, Reply, Request
from fairsilo.core.silo import Memory
from fairsilo.core.vault import Simulated
from fairsilo.engine.base import Engine
from fairsilo.engine.host import Host
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.methods import masks, secure_sums
from fairsilo.methods.text import method

HOW, PART = "fedavg | secure-aggregation", "secure-aggregation"
ONE = dataclasses.replace(tiny.TRAINING, rounds=1)


# ------------------------------------------------------------------------------------------------------- arithmetic
def test_masks_cancel_to_the_last_bit_and_hide_everything() -> None:
    values = masks.to_fixed(torch.tensor([0.0, 1.5, -2.25, 1e-9, -1048576.0]), 32)
    assert values.tolist() == [0, 3 * 2**31, -9 * 2**30, 4, -(2**52)]
    hidden = values.clone()
    masks.add_mask(hidden, b"k" * 32, 1)
    assert not (hidden == values).any()
    masks.add_mask(hidden, b"k" * 32, -1)
    assert torch.equal(hidden, values)
    assert masks.from_fixed(values, 32).tolist()[:3] == [0.0, 1.5, -2.25]


def test_a_mask_is_uniform_also_over_several_blocks() -> None:
    mask = torch.zeros(1_200_000, dtype=torch.int64)
    masks.add_mask(mask, b"k" * 32, 1)
    assert len(mask.unique()) == len(mask)
    bits = [float(((mask >> place) & 1).double().mean()) for place in range(64)]
    assert max(abs(share - 0.5) for share in bits) < 0.005


@pytest.mark.parametrize("wrong", [1.1e6, float("nan"), float("inf")])
def test_what_would_overflow_is_refused(wrong: float) -> None:
    with pytest.raises(FairsiloError, match="too large to be masked"):
        masks.to_fixed(torch.tensor([1.0, -wrong]), 32)


def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not() -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(masks.split(secret, 5, 3, b"random")))
    for places in itertools.combinations(range(5), 3):
        assert masks.joined({place: shares[place] for place in places}) == secret
    assert masks.joined(shares) == secret
    for places in itertools.combinations(range(5), 2):
        assert masks.joined({place: shares[place] for place in places}) != secret
    assert masks.joined({**shares, 4: shares[3]}) != secret
    assert masks.split(secret, 5, 3, b"other") != list(shares.values())


def test_two_find_the_same_key_and_letters_are_for_one() -> None:
    one, two, third = (bytes([number]) * 32 for number in (1, 2, 3))
    key = masks.common_key(one, masks.public_key(two), "x")
    assert key == masks.common_key(two, masks.public_key(one), "x")
    assert key != masks.common_key(two, masks.public_key(one), "y")
    letter = masks.sealed(key, b"n" * 12, b"text")
    assert masks.unsealed(key, letter) == b"text"
    for wrong, changed in ((masks.common_key(third, masks.public_key(one), "x"), letter), (key, letter[:-1] + b"?")):
        with pytest.raises(FairsiloError, match="changed on its way"):
            masks.unsealed(wrong, changed)


# ------------------------------------------------------------------------------------------------------- whole rounds
class Losing:
    """An engine that loses the answers of silos at some steps, after they were made."""

    def __init__(self, engine: Engine, lost: set[tuple[str, str]]) -> None:
        self.engine, self.lost = engine, lost
        self.sent: list[tuple[str, Reply]] = []

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        for reply in self.engine.ask(exchange):
            step = str(exchange.messages[reply.silo].numbers.get("topic", exchange.kind))
            self.sent.append((step, reply))
            gone = (step, reply.silo) in self.lost
            yield dataclasses.replace(reply, answer=Failure("lost", "")) if gone else reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize(
    ("how", "lost"),
    [
        ("fedavg", set()),
        ("fedavg", {("train", "b")}),
        ("fedavg", {("keys", "a")}),
        ("fedavg", {("shares", "c")}),
        ("fedavg", {("agree", "a")}),
        ("fedavg", {("open", "b")}),
        ("fedavg", {("train", "c"), ("open", "a")}),
        ("scaffold", set()),
        ("scaffold", {("train", "a")}),
    ],
)
def test_the_masked_sum_is_the_plain_sum_exactly(
    how: str, lost: set[tuple[str, str]], weighting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fixed point, tensor by tensor; also where silos are gone in the middle of a round."""
    fixed: dict[str, list[torch.Tensor]] = {}
    seen: dict[str, torch.Tensor] = {}
    to_fixed, mask, from_fixed = masks.to_fixed, secure_sums.mask, masks.from_fixed
    now: list[str] = []

    def note_silo(rule: Any, silo: Any, update: Any) -> None:
        now[:] = [silo.name]
        mask(rule, silo, update)

    def note_fixed(values: torch.Tensor, bits: int) -> torch.Tensor:
        found = to_fixed(values, bits)
        fixed.setdefault(now[0], []).append(found.clone())
        return found

    def note_sum(values: torch.Tensor, bits: int) -> torch.Tensor:
        seen[str(len(seen))] = values.clone()
        return from_fixed(values, bits)

    monkeypatch.setattr(secure_sums, "mask", note_silo)
    monkeypatch.setattr(masks, "to_fixed", note_fixed)
    monkeypatch.setattr(masks, "from_fixed", note_sum)
    people = tiny.federation({"a": 24, "b": 18, "c": 30, "d": 12, "e": 9})
    training = dataclasses.replace(ONE, weighting=weighting, quorum=0.5)
    losing: list[Losing] = []

    def wrap(engine: Engine) -> Any:
        losing.append(Losing(engine, lost))
        return losing[0]

    history, _ = tiny.run(f"{how} | secure-aggregation", people, training, wrap=wrap)
    gone = {name for step, name in lost if step in ("keys", "shares", "train")}
    counted = [name for name in people.names if name not in gone]
    assert history.rounds[0]["counted"] == counted
    for number in range(len(seen)):
        plain = sum(fixed[name][number] for name in counted)
        assert any(torch.equal(plain, total) for total in seen.values())
    # and the model is that of the mean without masks
    others = dataclasses.replace(people, silos=tuple(people[name] for name in counted))
    if how == "fedavg":
        wanted, _ = tiny.run(how, others, training)
        torch.testing.assert_close(history.vector, wanted.vector, rtol=1e-5, atol=1e-6)
        assert history.rounds[0]["weights"] == pytest.approx(wanted.rounds[0]["weights"])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["scaffold", "feddyn", "fedprox", "fedavgm", "fedbn", "ditto"])
def test_methods_over_several_rounds(how: str) -> None:
    people = tiny.federation()
    plain, masked = (tiny.run(one, people)[0] for one in (how, f"{how} | secure-aggregation"))
    torch.testing.assert_close(masked.vector, plain.vector, rtol=1e-3, atol=1e-4)
    assert masked.rounds[-1]["weights"] == pytest.approx(plain.rounds[-1]["weights"])


def test_what_the_server_gets_says_nothing_of_an_update() -> None:
    """The same update looks like other numbers every time, and like none that it is made of."""
    kept: list[Losing] = []

    def wrap(engine: Engine) -> Any:
        kept.append(Losing(engine, set()))
        return kept[-1]

    for _ in range(2):
        tiny.run(HOW, tiny.federation(), ONE, wrap=wrap)
    one, two = ({r.silo: r.answer for step, r in run.sent if step == "train"} for run in kept)
    for name in "abc":
        first, second = (found[name].tensors[MODEL] for found in (one, two))
        assert first.dtype == torch.int64
        floats = len(first) - 1  # the counter of batches is in the clear
        assert not (first[:floats] == second[:floats]).any()
        assert float((first[:floats].abs() > 2**55).double().mean()) > 0.9


@pytest.mark.parametrize(
    ("lost", "did"),
    [
        ({("keys", "a"), ("keys", "b")}, "1 silos made keys"),
        ({("shares", "a"), ("shares", "b")}, "1 silos shared out their keys"),
        ({("agree", "a"), ("agree", "b")}, "0 silos showed their shares"),
        ({("open", "a"), ("open", "b")}, "1 silos showed their shares"),
    ],
)
def test_too_few_silos_stop_the_round_in_a_sentence(lost: set[tuple[str, str]], did: str) -> None:
    with pytest.raises(StoppedError, match=f"round 1 stopped: {did}, and secure sums need 2"):
        tiny.run(HOW, tiny.federation(), ONE, wrap=lambda engine: Losing(engine, lost))  # type: ignore[arg-type]


@pytest.mark.parametrize("step", ["keys", "shares", "open"])
def test_answers_of_another_size_are_left_out(step: str) -> None:
    class Cutting(Losing):
        def ask(self, exchange: Exchange) -> Iterator[Reply]:
            for reply in self.engine.ask(exchange):
                topic = exchange.messages[reply.silo].numbers.get("topic")
                if topic == step and reply.silo == "b":
                    (name, tensor), *_ = reply.answer.tensors.items()
                    reply.answer.tensors[name] = tensor[:50] if step == "keys" else tensor[:1]
                yield reply

    history, _ = tiny.run(HOW, tiny.federation(), ONE, wrap=lambda engine: Cutting(engine, set()))
    assert history.rounds[0]["counted"] == (["a", "b", "c"] if step == "open" else ["a", "c"])


def test_a_wrong_share_is_found() -> None:
    class Lying(Losing):
        def ask(self, exchange: Exchange) -> Iterator[Reply]:
            for reply in self.engine.ask(exchange):
                if exchange.messages[reply.silo].numbers.get("topic") == "open" and reply.silo == "b":
                    reply.answer.tensors[f"{PART}.opened"][0, -1] ^= 1
                yield reply

    with pytest.raises(StoppedError, match="a silo showed a wrong one, and no sum is used"):
        tiny.run(HOW, tiny.federation(), ONE, wrap=lambda engine: Lying(engine, set()))


@pytest.mark.parametrize("fault", ["short", "float"])
def test_an_update_of_another_form_is_left_out(fault: str) -> None:
    class Spoiling(Losing):
        def ask(self, exchange: Exchange) -> Iterator[Reply]:
            for reply in self.engine.ask(exchange):
                if exchange.kind == "train" and reply.silo == "b":
                    tensor = reply.answer.tensors[MODEL]
                    reply.answer.tensors[MODEL] = tensor[:-1] if fault == "short" else tensor.float()
                yield reply

    history, _ = tiny.run(HOW, tiny.federation(), ONE, wrap=lambda engine: Spoiling(engine, set()))
    assert history.rounds[0]["counted"] == ["a", "c"]
    assert [(one["silo"], one["kind"]) for one in history.rounds[0]["failures"]] == [("b", "malformed")]
    assert torch.isfinite(history.vector).all()


# ------------------------------------------------------------------------------------------------------- a lying server
class Firm(Simulated):
    """A simulated vault that keeps what was settled, as a site's does."""

    kept: dict[str, dict[str, str]] = {}  # noqa: RUF012

    def settle(self, what: str, value: str) -> bool:
        return self.kept.setdefault(self.silo, {}).setdefault(what, value) == value


class Steps:
    """A server that asks what it likes, of three honest silos."""

    def __init__(self) -> None:
        people, Firm.kept = tiny.federation(), {}
        plan = tiny.plan(HOW)
        self.people = {silo.name: silo for silo in people.silos}
        self.host = Host(plan, self.people, vaults={name: Firm(0, name) for name in people.names})
        self.memory = {name: Memory() for name in people.names}
        self.model = plan.start()[1]

    def ask(self, silo: str, kind: str, message: Message) -> Message | Failure:
        answer = self.host.answer(silo, Request(kind, 1, message), self.memory[silo])
        if answer.memory is not None:
            self.memory[silo] = answer.memory
        return answer.message

    def step(self, silo: str, topic: str, **numbers: str) -> Message | Failure:
        return self.ask(silo, "share", Message({}, {"part": PART, "topic": topic, **numbers}))

    def keys(self, session: str = "s") -> dict[str, str]:
        found = {name: self.step(name, "keys", session=session) for name in "abc"}
        return {name: bytes(one.tensors[f"{PART}.keys"].tolist()).hex() for name, one in found.items()}

    def train(self, peers: dict[str, str]) -> dict[str, Message | Failure]:
        told = {name: self.step(name, "shares", peers=json.dumps(peers)) for name in "abc"}
        letters = {name: one.tensors[f"{PART}.shares"] for name, one in told.items()}
        session = secure_sums.Session({name: bytes.fromhex(text) for name, text in peers.items()}, letters)
        found = {}
        for name in "abc":
            message = Message({MODEL: self.model})
            session.add_to(message, PART, name)
            found[name] = self.ask(name, "train", message)
        return found


def refused(answer: Message | Failure, sentence: str) -> bool:
    assert isinstance(answer, Failure), "it answered"
    assert sentence in answer.detail, answer.detail
    return True


def test_keys_that_a_silo_did_not_sign_are_refused() -> None:
    server = Steps()
    peers = server.keys()
    own = (masks.public_key(b"\1" * 32) + masks.public_key(b"\2" * 32)).hex()
    forged = own + peers["b"][128:]
    assert refused(server.step("a", "shares", peers=json.dumps(peers | {"b": forged})), "'b' are not signed")
    server = Steps()
    old = server.keys("yesterday")
    new = server.keys("today")
    assert refused(server.step("a", "shares", peers=json.dumps(new | {"b": old["b"]})), "'b' are not signed")


def test_shares_are_given_out_once() -> None:
    server = Steps()
    peers = server.keys()
    assert isinstance(server.step("a", "shares", peers=json.dumps(peers)), Message)
    fewer = {name: peers[name] for name in "ab"}
    assert refused(server.step("a", "shares", peers=json.dumps(fewer)), "which would show too much")


def test_one_list_of_updates_is_signed_and_no_other() -> None:
    server = Steps()
    server.train(server.keys())
    before = {name: memory.copy() for name, memory in server.memory.items()}
    assert isinstance(server.step("a", "agree", there=json.dumps(["a", "b", "c"])), Message)
    server.memory = before  # a server that makes silos forget gains nothing
    assert refused(server.step("a", "agree", there=json.dumps(["a", "b"])), "which would show too much")
    assert refused(server.step("b", "agree", there=json.dumps(["b"])), "too few silos sent an update")
    assert refused(server.step("b", "agree", there=json.dumps(["a", "c"])), "none of this round's")
    assert refused(server.step("b", "agree", there=json.dumps(["a", "b", "x"])), "none of this round's")


def test_nothing_is_shown_without_enough_signatures() -> None:
    server = Steps()
    server.train(server.keys())
    there = json.dumps(["a", "b", "c"])
    proof = server.step("a", "agree", there=there).tensors[f"{PART}.agreed"]  # type: ignore[union-attr]
    signed = bytes(proof.tolist()).hex()
    forged = json.dumps({"a": signed, "b": signed, "c": signed})
    assert refused(server.step("a", "open", there=there, proofs=forged), "too few silos signed")
    # a signature under one list opens no other, where silos would show what they must not
    fewer = json.dumps({"a": signed, "b": signed})
    assert refused(server.step("a", "open", there=json.dumps(["a", "b"]), proofs=fewer), "which would show too much")
    assert refused(server.step("b", "open", there=json.dumps(["a", "b"]), proofs=fewer), "too few silos signed")


def test_the_same_keys_mask_one_update_alone() -> None:
    """Whatever differs: the model, or only how the silo trains."""
    server = Steps()
    assert all(isinstance(one, Message) for one in server.train(server.keys()).values())
    kept = server.memory["a"][PART]
    told = Message({MODEL: server.model + 1, f"{PART}.letters": kept["letters"]}, {f"{PART}.silos": kept["silos"]})
    assert refused(server.ask("a", "train", told), "which would show too much")
    server.host = Host(dataclasses.replace(tiny.plan(HOW), seed=1), server.people, vaults=server.host.vaults)
    told.tensors[MODEL] = server.model
    assert refused(server.ask("a", "train", told), "which would show too much")


def test_a_silo_is_in_no_group_of_its_own() -> None:
    server = Steps()
    peers = server.keys()
    assert refused(server.step("a", "shares", peers=json.dumps({"a": peers["a"]})), "too few silos have keys")


@pytest.mark.parametrize("names", [["a", "a", "a"], ["b", "a"], "abc", {"a": 1, "b": 2}, ["a", 2], 7])
def test_a_list_of_silos_has_each_once(names: Any) -> None:
    """A name that counted twice would stand in for a silo whose mask is then missing."""
    server = Steps()
    server.train(server.keys())
    kept = server.memory["b"][PART]
    told = Message({MODEL: server.model, f"{PART}.letters": kept["letters"]}, {f"{PART}.silos": json.dumps(names)})
    assert refused(server.ask("b", "train", told), "a list of silos is none")
    assert refused(server.step("a", "agree", there=json.dumps(names)), "a list of silos is none")


def test_silos_that_were_told_different_things_give_no_sum() -> None:
    """A server that sends one silo another model, to find out its update, finds noise."""

    class Partial(Losing):
        def ask(self, exchange: Exchange) -> Iterator[Reply]:
            if exchange.kind == "train":
                other = {name: message.copy() for name, message in exchange.messages.items()}
                other["b"].tensors[MODEL] = other["b"].tensors[MODEL] + 1e-3
                exchange = dataclasses.replace(exchange, messages=other)
            return self.engine.ask(exchange)

    history, _ = tiny.run(HOW, tiny.federation(), ONE, wrap=lambda engine: Partial(engine, set()))
    plain, _ = tiny.run(HOW, tiny.federation(), ONE)
    assert float((history.vector - plain.vector).abs().median()) > 1e6


def test_sizes_are_signed_and_weigh_the_mean() -> None:
    server = Steps()
    told = {name: bytes.fromhex(text) for name, text in server.keys().items()}
    assert [secure_sums.Public.read(told[name]).samples for name in "abc"] == [24, 18, 30]
    assert secure_sums.weights(told, "ab", "samples") == {"a": 24 / 42, "b": 18 / 42}
    assert secure_sums.weights(told, "ab", "uniform") == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("over", "count", "enough"), [(0.5, 3, 2), (0.5, 4, 3), (0.67, 4, 3), (0.67, 9, 7), (0.5, 1, 2)]
)
def test_how_many_silos_open_a_sum(over: float, count: int, enough: int) -> None:
    assert secure_sums.Rule(PART, 32, 2, over).enough(count) == enough


# ------------------------------------------------------------------------------------------------------- compositions
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("fedheal", "needs of single silos: each silo's update"),
        ("q-ffl", "needs of single silos"),
        ("faa", "needs of single silos"),
        ("harmofl", "needs of single silos"),
        ("norm-bound", "needs of single silos"),
    ],
)
def test_methods_that_need_more_than_sums_are_refused(how: str, sentence: str) -> None:
    with pytest.raises(FairsiloError, match=sentence):
        method(f"{how} | secure-aggregation")


def test_sums_in_which_silos_count_alike_need_equal_weights() -> None:
    people = tiny.federation()
    with pytest.raises(FairsiloError, match=r"train\.weighting=auto"):
        tiny.run("feddyn | secure-aggregation", people, dataclasses.replace(ONE, weighting="samples"))


@pytest.mark.parametrize("order", [lambda one, other: f"{one} | {other}", lambda one, other: f"{other} | {one}"])
def test_noise_comes_before_masks(order: Callable[[str, str], str]) -> None:
    people = tiny.federation()
    noised, _ = tiny.run("dp-updates(clip=0.5, noise=0.1)", people, ONE)
    both, _ = tiny.run(order("dp-updates(clip=0.5, noise=0.1)", "secure-aggregation"), people, ONE)
    assert both.rounds[0]["shown"]["dp-updates.epsilon"] == noised.rounds[0]["shown"]["dp-updates.epsilon"]
    moved = [float((one.vector - tiny.plan("dp-updates").start()[1]).norm()) for one in (noised, both)]
    assert moved[1] == pytest.approx(moved[0], rel=0.25)  # other noise of the same size: the request is another


def test_masked_updates_cannot_be_kept() -> None:
    people, plan = tiny.federation(), tiny.plan(HOW)
    with pytest.raises(FairsiloError, match="which travel under masks"):
        Loop(plan, people.roster, Sequential(plan, people), evaluate=EvaluateSettings(keep_local=True))
    assert method(HOW).server_sees == "sees the sum of the silos' updates alone"
