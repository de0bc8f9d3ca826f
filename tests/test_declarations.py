"""What follows from what parts declare: sentences, streaming, means and sums at the server, the last step at a silo."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from fairsilo.core.attachments import EACH_UPDATE, PARAMETERS, SHARED, WIRE, Sends, bytes_of, expected
from fairsilo.core.messages import MODEL, Exchange, Message, Reply
from fairsilo.core.method import Method
from fairsilo.core.part import About, Part
from fairsilo.core.round import close_round
from fairsilo.core.screening import flaw_of
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import BUFFER, PARAMETER, Layout, Slot
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError, QuorumError, StoppedError
from fairsilo.fields import setting
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.text import method

LAYOUT = Layout([Slot("w", (3,), PARAMETER), Slot("mean", (2,), BUFFER)], torch.float64)


def server(how: Method) -> Server:
    return Server(
        method=how,
        vector=torch.zeros(5, dtype=torch.float64),
        layout=LAYOUT,
        silo_layout=LAYOUT,
        names=("a", "b"),
        training=tiny.TRAINING,
        rounds=3,
        seed=0,
        exchange=lambda *_: iter(()),
        round=1,
    )


def replies(**more: dict[str, Any]) -> Any:
    """Silo a moved by 1 with 1 sample, silo b by 4 with 3 samples."""
    for name, moved, samples in (("a", 1.0, 1), ("b", 4.0, 3)):
        tensors = {MODEL: torch.full((5,), moved, dtype=torch.float64)}
        tensors |= {key: value[name] for key, value in more.items() if isinstance(value[name], Tensor)}
        numbers = {key: value[name] for key, value in more.items() if not isinstance(value[name], Tensor)}
        yield Reply(name, Message(tensors, {"samples": samples, "loss": 1.0, **numbers}))


# -------------------------------------------------------------------------------------- means and sums at the server
@dataclass(frozen=True)
class Asking(Part):
    """Sees means and sums in its step, and writes down what it saw."""

    name = "asking"
    about = About(
        sends=(
            Sends("summed", shape=(2,), per="sum"),
            Sends("averaged", per="mean"),
            Sends(MODEL, shape=WIRE, per="sum"),
        )
    )

    def step(self, server: Server, direction: Tensor) -> Tensor:
        server.facts.update(server.received)
        return direction * 2


@dataclass(frozen=True)
class Looking(Part):
    name = "looking"
    about = About(sends=(EACH_UPDATE,))

    def collect(self, server: Server, updates: Updates) -> Updates:
        return updates


@pytest.mark.parametrize("streams", [True, False])
def test_a_step_gets_the_means_and_sums_it_declared_and_no_update(streams: bool) -> None:
    how = Method((Asking(),) if streams else (Asking(), Looking()), "m")
    assert how.individual_updates is not streams
    found = server(how)
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    close_round(found, replies(summed={"a": one, "b": two}, averaged={"a": 1.0, "b": 5.0}), quorum=2)
    assert found.facts["summed"].tolist() == [11.0, 22.0]
    assert float(found.facts["averaged"]) == (1 * 1.0 + 3 * 5.0) / 4  # by samples, as the model
    assert found.facts[MODEL].tolist() == [5.0] * 5
    assert found.vector.tolist() == [2 * (1 * 1.0 + 3 * 4.0) / 4] * 5
    assert found.received == {}


@dataclass(frozen=True)
class Exploding(Part):
    name = "exploding"

    def step(self, server: Server, direction: Tensor) -> Tensor:
        return direction * float("inf")


@pytest.mark.parametrize("more", [(), (Looking(),)])
def test_a_global_model_that_is_not_finite_stops_the_run_on_both_paths(more: tuple[Part, ...]) -> None:
    found = server(Method((Exploding(), *more), "m"))
    before = found.vector.clone()
    with pytest.raises(StoppedError, match="round 1 stopped: m made the global model not finite"):
        close_round(found, replies(), quorum=1)
    assert torch.equal(found.vector, before)


def test_a_running_sum_that_overflows_stops_the_run() -> None:
    """Every update is finite; their sum weighted by samples is not."""
    found = server(Method())
    huge = (Reply(n, Message({MODEL: torch.full((5,), 1e308, dtype=torch.float64)}, {"samples": 9})) for n in "ab")
    with pytest.raises(StoppedError, match="made the global model not finite"):
        close_round(found, huge, quorum=1)


def test_a_hook_that_gets_single_updates_must_be_declared() -> None:
    @dataclass(frozen=True)
    class Silent(Part):
        name = "silent"

        def collect(self, server: Server, updates: Updates) -> Updates:
            return updates

    with pytest.raises(FairsiloError, match="'silent' defines `collect`, which gets every silo's update, and does not"):
        Method((Silent(),), "m")


# -------------------------------------------------------------------------------------- sentences
@pytest.mark.parametrize(
    ("name", "sees", "masked"),
    [
        ("fedavg", "needs only the sum of the silos' updates", True),
        ("fedadam", "needs only the sum of the silos' updates", True),
        ("scaffold", "needs only the sum of the silos' updates", True),
        ("harmofl", "needs only the sum of the silos' updates", True),
        ("afl", "sees each silo's update", False),
        ("fedag", "sees each silo's update", False),
        (
            "iop-fl",
            "needs only the sum of the silos' updates, but sees of each silo: each silo's personal model, to the "
            "server and on to unseen silos",
            False,
        ),
    ],
)
def test_what_the_server_sees_follows_from_the_declaration(name: str, sees: str, masked: bool) -> None:
    assert CATALOGUE[name].describe()["server_sees"] == sees
    assert method(name).secure_aggregation is masked


def test_a_run_names_what_its_settings_send_and_the_page_all_that_may_be_sent() -> None:
    assert method("fedmtl").sends == ()
    assert method("fedmtl(regularizer=true)").sends == ("with regularizer: to each silo the sum of the others' models",)
    assert "with regularizer: to each silo the sum of the others' models" in CATALOGUE["fedmtl"].describe()["sends"]
    assert len(method("ga").sends) == 1  # four numbers, said once


def test_what_other_silos_get_is_declared() -> None:
    """Whoever adds to what the server sends says so; FedAG sends every silo its own model back."""
    parts = {part for entry in CATALOGUE.values() for part in entry.parts}
    adds = {
        part.name
        for part in parts
        if any(getattr(part, hook) is not getattr(Part, hook) for hook in ("broadcast", "accompany", "equip"))
    }
    says = {part.name for part in parts if any(one.to != "server" for one in part.about.sends)}
    assert adds - {"domain-adapters"} == says


def test_unknown_words_in_a_declaration_are_an_error() -> None:
    for wrong in ({"shape": "model"}, {"dtype": "float32"}, {"per": "everybody"}, {"to": "all"}):
        with pytest.raises(TypeError, match="attachment 'x'"):
            Sends("x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="names 'feathers'"):

        class Wrong(Part):
            needs = frozenset({"feathers"})


# -------------------------------------------------------------------------------------- screening
def flaw(one: Sends, value: Any, **sizes: int | tuple[int, ...]) -> str | None:
    answer = Message({"x": value}, {}) if isinstance(value, Tensor) else Message({}, {"x": value})
    found = flaw_of(answer, [(one,)], LAYOUT, sizes)
    return found and f"{found.kind}: {found.detail}"


def test_shapes_in_words_are_those_of_the_model_and_the_data() -> None:
    double = torch.float64
    for shape, length in ((SHARED, 3), (PARAMETERS, 3), (WIRE, 5)):
        assert flaw(Sends("x", shape=shape), torch.zeros(length, dtype=double)) is None
        assert flaw(Sends("x", shape=shape), torch.zeros(length + 1, dtype=double)) == (
            f"malformed: x has the shape {length + 1} where {length} was expected"
        )
    table = Sends("x", shape=("classes", "features"))
    assert flaw(table, torch.zeros(2, 7, dtype=double), classes=2) is None
    assert flaw(table, torch.zeros(3, 7, dtype=double), classes=2) == (
        "malformed: x has the shape 3x7 where 2xfeatures was expected"
    )
    assert flaw(table, torch.zeros(2, 0, dtype=double), classes=2) is not None
    assert flaw(table, torch.zeros(2, 7), classes=2) == "malformed: x is of type torch.float32"
    assert flaw(dataclasses.replace(table, dtype="float"), torch.zeros(2, 7), classes=2) is None
    assert flaw(table, torch.zeros(2, 7, 1, dtype=double), classes=2) == (
        "malformed: x has the shape 2x7x1 where 2xfeatures was expected"
    )
    whole = Sends("x", shape=(2,), dtype="int")
    assert flaw(whole, torch.zeros(2, dtype=torch.long)) is None
    for wrong in (torch.float32, torch.complex64, torch.bool):
        assert flaw(whole, torch.zeros(2, dtype=wrong)) == f"malformed: x is of type {wrong}"


def test_a_name_may_stand_for_a_whole_shape() -> None:
    means = Sends("x", shape=("groups", "input"), dtype="float")
    assert flaw(means, torch.zeros(4, 3, 8, 8), input=(3, 8, 8)) is None
    assert flaw(means, torch.zeros(4, 5), input=(5,)) is None
    for wrong in ((4, 3, 8, 7), (4, 3, 8), (0, 3, 8, 8)):
        assert str(flaw(means, torch.zeros(wrong), input=(3, 8, 8))).endswith("where groupsx3x8x8 was expected")


def test_a_free_size_is_the_same_within_a_reply() -> None:
    groups = [(Sends("x", shape=("groups", 2)),), (Sends("y", shape=("groups",)),)]
    x = torch.zeros(4, 2, dtype=torch.float64)
    assert flaw_of(Message({"x": x, "y": x[:, 0]}), groups, LAYOUT, {}) is None
    found = flaw_of(Message({"x": x, "y": x[:3, 0]}), groups, LAYOUT, {})
    assert found is not None
    assert found.detail == "y has the shape 3 where 4 was expected"


@dataclass(frozen=True)
class Odd(Part):
    """Attaches something that is not finite, from a model that is."""

    name = "odd"
    about = About("none", "none", sends=(Sends("odd.ratio"), Sends("odd.map", shape=(2,))))
    tensor: bool = setting(False, "whether it is a tensor")

    def finish(self, silo: Silo, update: Message) -> None:
        update.numbers["odd.ratio"] = 1.0 if self.tensor else float("nan")
        update.tensors["odd.map"] = torch.tensor([0.0, float("inf") if self.tensor else 1.0])


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (False, r"First failure: a, not finite: odd\.ratio is nan\."),
        (True, r"First failure: a, error: ValueError: odd\.map has a NaN or an infinity, which is not sent \("),
    ],
)
def test_what_a_part_attaches_is_no_divergence_of_training(people: Federation, tensor: bool, reason: str) -> None:
    """A smaller learning rate would not help there."""
    with pytest.raises(QuorumError, match=f"and the quorum is 2. {reason}") as stopped:
        tiny.run(Method((Odd(tensor=tensor),)), people)
    assert "diverged" not in str(stopped.value)


def test_numbers_are_numbers() -> None:
    for value in (True, "3", None, [3]):
        assert str(flaw(Sends("x"), value)).startswith("malformed")
    assert flaw(Sends("x"), 3) is None
    assert flaw(Sends("x"), float("inf")) == "not finite: x is inf"
    assert flaw(Sends("x", dtype="int", least=1), 0) == "malformed: x is 0; the least is 1"
    assert flaw(Sends("x", dtype="int"), 2.0) == "malformed: x is 2.0, not a whole number"
    assert flaw(Sends("x"), torch.zeros(2)) == "malformed: did not send the number x"


def test_bytes_of_a_declaration() -> None:
    groups = [(Sends("x", shape=("classes", 4)),), (Sends("y"),), (Sends(MODEL, shape=WIRE),)]
    assert bytes_of(groups, LAYOUT, {"classes": 3}) == 8 * (3 * 4 + 1 + 5)


def test_personal_results_are_expected_where_they_were_asked_for() -> None:
    names = {one.name for group in expected("train", Message(), (), None) for one in group}
    assert names == {MODEL, "samples", "loss"}
    asked = {one.name for group in expected("train", Message({}, {"evaluate": True}), (), None) for one in group}
    assert asked - names == {f"personal.{s}.{m}" for s in ("validation", "test") for m in ("loss", "metric", "samples")}


# -------------------------------------------------------------------------------------- outgoing
@dataclass(frozen=True)
class Clipped(Part):
    """Bounds the length of everything in an update that is a vector of the model's size."""

    name = "clipped"

    bound: float = setting(0.01, "the longest that may leave a silo", low=0)

    def outgoing(self, silo: Silo, update: Message) -> None:
        silo.scratch["seen"] = sorted(update.tensors)
        for key, tensor in update.tensors.items():
            update.tensors[key] = tensor * min(1.0, self.bound / float(tensor.norm()))


@dataclass(frozen=True)
class Halved(Part):
    name = "halved"

    def outgoing(self, silo: Silo, update: Message) -> None:
        update.tensors[MODEL] = update.tensors[MODEL] / 2


def sent_by(how: Method, people: Federation) -> Message:
    found: list[Message] = []

    class Watched:
        def __init__(self, engine: Any) -> None:
            self.engine = engine

        def __getattr__(self, name: str) -> Any:
            return getattr(self.engine, name)

        def ask(self, exchange: Exchange) -> Any:
            for reply in self.engine.ask(exchange):
                if exchange.kind == "train" and reply.silo == "b":
                    assert isinstance(reply.answer, Message), reply.answer
                    found.append(reply.answer.copy())
                    found[-1].tensors = {key: tensor.clone() for key, tensor in reply.answer.tensors.items()}
                yield reply

    history, _ = tiny.run(how, people, dataclasses.replace(tiny.TRAINING, rounds=1), wrap=Watched)
    assert history.rounds[0]["counted"] == ["a", "b", "c"]
    return found[0]


def test_the_last_step_sees_change_and_attachments_and_what_it_makes_is_sent(people: Federation) -> None:
    plain, clipped = sent_by(method("scaffold"), people), sent_by(method("scaffold") | Clipped(), people)
    assert clipped.tensors.keys() == plain.tensors.keys() > {MODEL, "control-variates.change"}
    for key, tensor in plain.tensors.items():
        torch.testing.assert_close(clipped.tensors[key], tensor * 0.01 / tensor.norm())
    assert clipped.numbers == plain.numbers  # measured before, on the model as it was trained


def test_last_steps_compose_in_their_order(people: Federation) -> None:
    first = sent_by(Method((Clipped(), Halved()), "m"), people).tensors[MODEL]
    second = sent_by(Method((Halved(), Clipped()), "m"), people).tensors[MODEL]
    assert float(first.norm()) == pytest.approx(0.005)
    assert float(second.norm()) == pytest.approx(0.01)


def test_what_a_silo_keeps_is_not_changed_by_the_last_step(people: Federation) -> None:
    one_round = dataclasses.replace(tiny.TRAINING, rounds=1)
    (_, plain), (_, clipped) = (
        tiny.run(how, people, one_round) for how in (method("scaffold"), method("scaffold") | Clipped())
    )
    for name in people.names:
        kept, other = (loop.engine.memory[name]["control-variates"]["control"] for loop in (plain, clipped))
        assert torch.equal(kept, other)


def test_a_last_step_that_is_not_finite_fails_that_silo(people: Federation) -> None:
    @dataclass(frozen=True)
    class Broken(Part):
        name = "broken"

        def outgoing(self, silo: Silo, update: Message) -> None:
            if silo.name == "b":
                update.tensors[MODEL] = update.tensors[MODEL] * float("nan")

    history, _ = tiny.run(Method((Broken(),), "m"), people)
    assert all(record["counted"] == ["a", "c"] for record in history.rounds)
    assert {failure["silo"] for record in history.rounds for failure in record["failures"]} == {"b"}
