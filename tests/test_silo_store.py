"""A silo's own state: committed with the rounds, and an answer that is asked for again is given, not made, again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import tiny
from fairsilo.core.files import write_tree
from fairsilo.core.messages import MODEL, Exchange, Message, Reply, Request, digest
from fairsilo.core.silo import Memory
from fairsilo.data.federation import Federation
from fairsilo.engine.host import Answer, Host
from fairsilo.engine.sequential import Sequential
from fairsilo.engine.silo_store import SiloStore
from fairsilo.errors import FairsiloError

LAYOUT = tiny.plan("fedavg").layout


def request(number: int = 0, value: float = 0.0, round_: int = 1, run: str = "r") -> Request:
    return Request("train", round_, Message({MODEL: torch.full((2,), value)}), number, run)


def counted(store: SiloStore) -> int:
    """How often a step has left its mark in the memory."""
    return int(store.memory.get("part", {}).get("steps", 0))


def step(store: SiloStore, asked: Request) -> tuple[Message, bool]:
    """Answer as a site does; also whether the answer was computed."""
    known = store.given(asked)
    if known is not None:
        return known, False
    after = Memory({"part": {"steps": counted(store) + 1}})
    store.accept(asked, Answer(Message({MODEL: asked.message.tensors[MODEL] + counted(store)}), after))
    return Message({MODEL: asked.message.tensors[MODEL] + counted(store) - 1}), True


@pytest.fixture
def store(tmp_path: Path) -> SiloStore:
    return SiloStore(tmp_path / "silo")


def test_a_repeated_request_is_answered_once(store: SiloStore) -> None:
    first, computed = step(store, request())
    assert computed
    again, computed = step(store, request())
    assert not computed
    assert torch.equal(again.tensors[MODEL], first.tensors[MODEL])
    assert counted(store) == 1


@pytest.mark.parametrize("other", [request(value=1.0), request(number=1), request(round_=2), request(run="another")])
def test_another_request_is_not_a_repeated_one(store: SiloStore, other: Request) -> None:
    step(store, request())
    assert step(store, other)[1]


def test_another_message_under_the_same_number_starts_where_the_first_did(store: SiloStore) -> None:
    """After a restart of the server a probe may carry another candidate: its predecessors count once."""
    step(store, request(0))
    step(store, request(1, value=1.0))
    assert counted(store) == 2
    assert step(store, request(1, value=2.0))[1]
    assert counted(store) == 2
    assert not step(store, request(0))[1]
    assert counted(store) == 1
    assert not step(store, request(1, value=2.0))[1]


def test_a_first_request_with_another_message_starts_from_the_last_commit(store: SiloStore) -> None:
    step(store, request(0))
    store.commit(1, LAYOUT)
    for value in (1.0, 2.0, 3.0):
        assert step(store, request(0, value, round_=2))[1]
        assert counted(store) == 2


def test_rounds_that_are_not_committed_one_by_one_build_on_each_other(store: SiloStore) -> None:
    for number in (1, 2, 3):
        assert step(store, request(round_=number))[1]
        assert counted(store) == number
        assert not step(store, request(round_=number))[1]
    assert step(store, request(round_=3, value=1.0))[1]
    assert counted(store) == 3


def test_answers_survive_a_restart_of_the_silo(tmp_path: Path) -> None:
    first, _ = step(SiloStore(tmp_path), request())
    store = SiloStore(tmp_path)
    store.restore(0)
    again, computed = step(store, request())
    assert not computed
    assert torch.equal(again.tensors[MODEL], first.tensors[MODEL])
    assert counted(store) == 1


def test_what_a_silo_keeps_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """It may hold keys."""
    store = SiloStore(tmp_path)
    step(store, request())
    answers = list(tmp_path.glob("answer-*"))
    assert answers
    assert {path.stat().st_mode & 0o777 for path in answers} == {0o600}
    store.commit(1, LAYOUT)
    (kept,) = tmp_path.glob("round-*")
    assert kept.stat().st_mode & 0o777 == 0o600
    store.accept(request(round_=2), Answer(Message({}), Memory(), {"last": torch.zeros(LAYOUT.size)}))
    store.commit(2, LAYOUT)
    (own,) = (tmp_path / "models").rglob("*.safetensors")
    assert own.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("private", "left", "becomes"), [(True, 0o644, 0o600), (False, 0o600, 0o644)])
def test_the_permissions_of_what_a_kill_left_behind_do_not_count(
    tmp_path: Path, private: bool, left: int, becomes: int
) -> None:
    path = tmp_path / ".answer.part"
    path.touch()
    path.chmod(left)
    usual = os.umask(0o022)
    try:
        write_tree(path, {"memory": {}}, private=private)
    finally:
        os.umask(usual)
    assert path.stat().st_mode & 0o777 == becomes


def test_rounds_that_will_be_done_again_are_forgotten(tmp_path: Path) -> None:
    store = SiloStore(tmp_path)
    for number in (1, 2):
        store.memory = Memory({"part": {"steps": number}})
        store.commit(number, LAYOUT)
    store.restore(1)
    store.drop_after(1)
    assert store.memory == {"part": {"steps": 1}}
    assert [path.name for path in tmp_path.glob("round-*")] == ["round-000001.safetensors"]


def test_the_last_two_commits_stay_and_others_are_named(tmp_path: Path) -> None:
    store = SiloStore(tmp_path)
    for number in (1, 2, 3):
        store.memory = Memory({"part": {"steps": number}})
        store.commit(number, LAYOUT)
    for number in (2, 3):
        store.restore(number)
        assert counted(store) == number
    with pytest.raises(FairsiloError, match="no state of round 1; it has the rounds 2, 3"):
        store.restore(1)


def test_digests_tell_content_apart() -> None:
    one = Message({"a": torch.ones(2)}, {"x": 1})
    assert digest(one) == digest(Message({"a": torch.ones(2)}, {"x": 1}))
    others = [
        Message({"a": torch.ones(2)}, {"x": 2}),
        Message({"a": torch.ones(2)}, {"y": 1}),
        Message({"a": torch.ones(2, 1)}, {"x": 1}),
        Message({"a": torch.ones(2, dtype=torch.float64)}, {"x": 1}),
        Message({"a": torch.tensor([1.0, 1.0001])}, {"x": 1}),
        Message({"a": torch.ones(2), "b": torch.ones(0)}, {"x": 1}),
        Message({"a": torch.ones(2)}, {"x": True}),
        Message({"a": torch.ones(2)}, {"x": "1"}),
    ]
    assert len({digest(one), *map(digest, others)}) == 1 + len(others)
    assert digest({"a": torch.ones(2, dtype=torch.bfloat16)}) != digest({"a": torch.zeros(2, dtype=torch.bfloat16)})


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", tiny.KINDS)
def test_a_site_that_is_asked_everything_twice_finds_the_same(how: str, people: Federation, tmp_path: Path) -> None:
    """Every request is repeated, and every second one after a restart of the silo: the run must not notice."""

    class Sites(Sequential):
        def ask(self, exchange: Exchange):  # type: ignore[no-untyped-def]
            for name in exchange.silos:
                asked, store = exchange.request(name), self.stores[name]
                for _ in range(2):
                    known = store.given(asked)
                    if known is None:
                        answer = self.host.answer(name, asked, store.memory)
                        store.accept(asked, answer)
                        computed.append((name, asked.round, asked.number))
                        known = answer.message
                    if exchange.number % 2:
                        self.stores[name] = store = SiloStore(tmp_path / name)
                yield Reply(name, known, number=exchange.number)

    def sites(plan: tiny.Blueprint, silos: Federation) -> Sequential:
        made = Sites(plan, silos)
        made.stores = {name: SiloStore(tmp_path / name) for name in made.stores}
        return made

    computed: list[tuple[str, int, int]] = []
    found, _ = tiny.run(how, people, engine=sites)
    assert tiny.numbers(found) == tiny.numbers(tiny.run(how, people)[0])
    assert len(computed) == len(set(computed))


def test_a_plan_is_text_from_which_a_silo_is_built_elsewhere(people: Federation) -> None:
    plan = tiny.plan("fedprox(mu=0.1) | fedheal", model="tiny:TinyNet", classes=people.classes)
    again = type(plan).from_text(plan.as_text())
    assert again == plan
    message = Message({MODEL: plan.layout.to_wire(plan.start()[1])}, {})
    one, other = (Host(one, people).answer("a", Request("train", 1, message), Memory()) for one in (plan, again))
    assert isinstance(one.message, Message)
    assert isinstance(other.message, Message)
    assert torch.equal(one.message.tensors[MODEL], other.message.tensors[MODEL])
