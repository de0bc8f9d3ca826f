"""What arrives is believed only where it has its form; anything else is counted, and nothing of it is averaged."""

from __future__ import annotations

import copy
import json
import random
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairsilo.core.messages import Exchange, Failure, Message, Request
from fairsilo.deploy import wire
from fairsilo.deploy.remote import Asked, Remote
from tiny_sites import TRAIN, Local, begun, served, sites_in

REQUEST = Request("train", 3, Message({"model": torch.arange(4.0)}, {"epochs": 2}), 1, "run")


def test_requests_and_answers_survive_the_wire() -> None:
    silo, found = wire.asked(wire.question("a", REQUEST))
    assert (silo, found.identity, found.kind) == ("a", REQUEST.identity, "train")
    assert torch.equal(found.message.tensors["model"], torch.arange(4.0))
    answer = Message({"model": torch.ones(4, dtype=torch.bfloat16)}, {"loss": 0.5, "label": "x", "done": True})
    back = wire.answer_to(wire.answered("a", REQUEST, answer), "a", REQUEST)
    assert back.numbers == answer.numbers
    assert torch.equal(back.tensors["model"], answer.tensors["model"])
    assert wire.note_in(wire.noted({"a": [1, None]})) == {"a": [1, None]}


def test_a_tensor_that_is_a_view_is_sent_in_one_piece() -> None:
    sent = wire.packed(Message({"w": torch.arange(6.0).reshape(2, 3).T}))
    assert sent["tensors"]["w"].is_contiguous()
    assert wire.unpacked(sent).tensors["w"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def good() -> wire.Payload:
    return wire.answered("a", REQUEST, Message({"model": torch.zeros(4)}, {"loss": 1.0}))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"round": 2}, "an answer is to another request"),
        ({"number": 0}, "an answer is to another request"),
        ({"run": "other"}, "an answer is to another request"),
        ({"silo": "b"}, "an answer is to another request"),
        ({"round": True}, "round is no count"),
        ({"round": -1}, "round is no count"),
        ({"silo": 3}, "silo is no short text"),
        ({"tensors": None}, "no tensors or no numbers"),
        ({"tensors": {"model": [0.0]}}, "a tensor is none"),
        ({"tensors": {"model": torch.zeros(2, dtype=torch.complex64)}}, "of a kind that is not sent"),
        ({"tensors": {"model": torch.zeros(2, 2).to_sparse()}}, "of a kind that is not sent"),
        ({"tensors": {"model": torch.nn.Parameter(torch.zeros(2))}}, "a tensor is none"),
        ({"tensors": {"": torch.zeros(2)}}, "a name is no short text"),
        ({"tensors": {"model": torch.zeros(3, 2).T}}, "in one piece"),
        ({"numbers": {"loss": None}}, "a number is none"),
        ({"numbers": {"loss": [1]}}, "a number is none"),
        ({"numbers": {"loss": 2**63}}, "more than 64 bits"),
        ({"numbers": {"loss": "x" * 1_000_001}}, "a text is longer"),
        ({"numbers": dict.fromkeys(map(str, range(100_001)), 0)}, "more than 100000 entries"),
    ],
)
def test_what_has_another_form_is_named(change: dict[str, Any], why: str) -> None:
    with pytest.raises(wire.WireError, match=why):
        wire.answer_to(good() | change, "a", REQUEST)


@pytest.mark.parametrize(
    "content", [None, 3, [], "x", {}, {"note": 3}, {"note": "{"}, {"note": "[1]"}, {"note": "[" * 10**5}]
)
def test_a_note_that_is_none(content: object) -> None:
    with pytest.raises(wire.WireError):
        wire.note_in(content)


# ------------------------------------------------------------------------------------------------- ten thousand replies
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(PLAIN)
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_replies_raise_nothing_else(content: object) -> None:
    for read in (lambda: wire.answer_to(content, "a", REQUEST), lambda: wire.note_in(content)):
        try:
            read()
        except wire.WireError:
            continue


def mutated(content: wire.Payload, draw: random.Random) -> object:
    """A reply with something in it replaced, removed, added or cut off."""
    found: Any = copy.deepcopy(content)
    places = [found, found["tensors"], found["numbers"]]
    place = draw.choice(places)
    odd = [
        None,
        True,
        -1,
        2**70,
        float("nan"),
        "",
        "x" * 400,
        [],
        {},
        b"\0",
        torch.zeros(0),
        torch.full((4,), float("inf")),
    ]
    odd += [torch.zeros(3), torch.zeros(4, dtype=torch.int64), torch.zeros(4).to_sparse(), object()]
    key = draw.choice([*place, "new", 3])
    kind = draw.randrange(3)
    if kind == 0:
        place.pop(key, None)
    elif kind == 1:
        place[key] = draw.choice(odd)
    else:
        return draw.choice([*odd, list(found.items())])
    return found


class Replying:
    """A channel whose one site sends what it is told to."""

    def __init__(self, contents: list[object]) -> None:
        self.contents = contents

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        for content in self.contents:
            yield "a", content


def test_nine_thousand_mutated_replies_are_messages_or_failures() -> None:
    draw = random.Random(0)
    exchange = Exchange("train", 3, {"a": REQUEST.message}, 1, "run")
    kinds: dict[str, int] = {}
    for _ in range(9000):
        (reply,) = Remote(Replying([mutated(good(), draw)]), {"a": "site"}).ask(exchange)
        kind = reply.answer.kind if isinstance(reply.answer, Failure) else "message"
        kinds[kind] = kinds.get(kind, 0) + 1
    assert sum(kinds.values()) == 9000
    assert kinds.keys() == {"message", "malformed"}
    assert min(kinds.values()) > 500


def test_a_second_reply_of_one_silo_changes_nothing() -> None:
    exchange = Exchange("train", 3, {"a": REQUEST.message, "b": REQUEST.message}, 1, "run")
    first, second = good(), good() | {"numbers": {"loss": 9.0}}
    other = good() | {"silo": "b"}

    class Twice(Replying):
        def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
            yield from (("a", first), ("a", second), ("c", first), ("b", other))

    found = list(Remote(Twice([]), {"a": "site", "b": "site"}).ask(exchange))
    assert [reply.silo for reply in found] == ["a", "b"]
    assert isinstance(found[0].answer, Message)
    assert found[0].answer.numbers == {"loss": 1.0}


def test_an_answer_is_let_go_before_the_next_one_is_taken_up() -> None:
    """It may be as large as a model, whatever the order in which answers arrive."""

    class Backwards(Replying):
        def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
            for key in reversed(asked):
                yield key, good() | {"silo": key}

    exchange = Exchange("train", 3, dict.fromkeys("abc", REQUEST.message), 1, "run")
    used: list[weakref.ref[Any]] = []
    for reply in Remote(Backwards([]), dict.fromkeys("abc", "site")).ask(exchange):
        assert all(one() is None for one in used)
        used.append(weakref.ref(reply.answer))
        del reply
    assert len(used) == 3


def test_a_channel_that_ends_early_leaves_silos_lost() -> None:
    exchange = Exchange("train", 3, {"a": REQUEST.message}, 1, "run")
    (reply,) = Remote(Replying([]), {"a": "site"}).ask(exchange)
    assert isinstance(reply.answer, Failure)
    assert reply.answer.kind == "lost"


# ------------------------------------------------------------------------------------------------- whole runs
class Hostile(Local):
    """One site's answers to `train` are spoiled in a way that the round decides."""

    SPOILED: tuple[tuple[str, str], ...] = (
        ("longer", "malformed"),
        ("integers", "malformed"),
        ("nan", "diverged"),
        ("infinite", "diverged"),
        ("old", "malformed"),
        ("nothing", "malformed"),
    )

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        for key, content in super().call(step, asked, seconds):
            question = asked[key][1]
            if step == "ask" and key == "scan" and question["kind"] == "train":
                assert isinstance(content, dict)
                yield key, spoiled(content, self.SPOILED[question["round"] - 1][0])
            else:
                yield key, content


def spoiled(content: dict[str, Any], how: str) -> object:
    change = content["tensors"]["model"]
    new = {
        "longer": torch.cat([change, change]),
        "integers": change.long(),
        "nan": change.clone().index_fill_(0, torch.tensor([7]), float("nan")),
        "infinite": change.clone().index_fill_(0, torch.tensor([7]), float("inf")),
    }
    if how == "old":
        return content | {"round": content["round"] - 1}
    if how == "nothing":
        return {"note": json.dumps({"note": 1})[:-3]}
    return content | {"tensors": {**content["tensors"], "model": new[how]}}


def test_spoiled_updates_are_counted_by_reason_and_never_averaged(tmp_path: Path) -> None:
    """The run is that of the other two silos."""
    some = {"train": {**TRAIN, "rounds": 6, "quorum": 0.5}}
    run = begun(tmp_path / "there", "fedavg", **some)
    served(run, Hostile(sites_in(tmp_path / "sites")))
    rows = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [row["counted"] for row in rows] == [["print", "sketch"]] * 6
    kinds = [[one["kind"] for one in row["failures"] if one["exchange"] == "train"] for row in rows]
    assert kinds == [[kind] for _, kind in Hostile.SPOILED]


class Billion(Local):
    """One site's update is a billion times as long as it should be."""

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        for key, content in super().call(step, asked, seconds):
            if step == "ask" and key == "scan" and asked[key][1]["kind"] == "train":
                assert isinstance(content, dict)
                content["tensors"]["model"] *= 1e9
            yield key, content


def test_an_update_a_billion_times_too_long_moves_the_model_no_further_than_others(tmp_path: Path) -> None:
    """With `norm-bound` or `median-screen` the run is worth something; without, its first model is not."""
    losses, records = {}, {}
    for how in ("fedavg", "fedavg | norm-bound", "fedavg | median-screen"):
        once = {"train": {**TRAIN, "rounds": 1}}
        run = begun(tmp_path / how.replace(" | ", "-"), how, **once)
        served(run, Billion(sites_in(tmp_path / "sites")))
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses[how] = max((row["loss"] for row in rows if row["model"] == "global"), default=float("inf"))
        (records[how],) = (json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines())
    assert losses["fedavg | norm-bound"] < 10 < losses["fedavg"]
    assert losses["fedavg | median-screen"] < 10
    notes = records["fedavg | norm-bound"]["notes"]
    assert any("the update of scan was cut from length" in note for note in notes)
    assert records["fedavg | median-screen"]["counted"] == ["print", "sketch"]
    (failure,) = records["fedavg | median-screen"]["failures"]
    assert (failure["silo"], failure["kind"]) == ("scan", "screened")
