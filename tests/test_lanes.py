"""Silos in threads, each lane with a network of its own. On a CPU a tape stands for a GPU's graphs (tests/tape.py).

What only a GPU can show is in benchmarks/gpu_law.py.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tiny
from fairsilo.core import streams, vectors
from fairsilo.core.messages import MODEL, Exchange, Message
from fairsilo.core.output import Output
from fairsilo.core.part import Part
from fairsilo.core.recording import Recorded
from fairsilo.core.round import open_round
from fairsilo.core.samples import Split
from fairsilo.core.silo import Batch, Memory, Silo
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.host import Host
from fairsilo.engine.lanes import Graphs, Lanes, why_made
from fairsilo.engine.loop import Loop
from fairsilo.engine.resident import Resident
from fairsilo.errors import FairsiloError
from fairsilo.methods.text import method
from fairsilo.models.encoder_prompts import appended
from other_tasks import GROUNDS
from tape import OnTape

TRAINING = dataclasses.replace(tiny.TRAINING, rounds=2)


class Making:
    """Makes lanes, and keeps the last ones and what they said."""

    def __init__(self, recordings: Callable[[], Any] = OnTape, **options: Any) -> None:
        self.recordings, self.options = recordings, options
        self.said: list[str] = []
        self.engine: Lanes | None = None

    def __call__(self, plan: Blueprint, people: Federation) -> Lanes:
        self.engine = Lanes(plan, people, 2, recordings=self.recordings, say=self.said.append, **self.options)
        data = Resident(people, torch.device("cpu"), room=1 << 30)
        for lane in self.engine.lanes:
            lane.host.data = data
        return self.engine


@pytest.fixture(autouse=True)
def recording_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "RECORDING", {"cpu", "cuda"})


def rows_of(how: Any, people: Federation, making: Making | None = None) -> list[dict[str, Any]]:
    history, loop = tiny.run(how, people, TRAINING, engine=making)
    loop.engine.close()
    return history.rows


def with_part(part: Part) -> Any:
    return method("fedavg") | part


# ------------------------------------------------------------------------------------------------------ random numbers
@dataclass(frozen=True)
class Noise(Part):
    """Draws from torch's own generator in every step, at the silos that it is for."""

    name = "noise"
    silos: str = "abc"

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        return loss * (1 + torch.rand(())) if silo.name in self.silos else loss


def test_silos_that_draw_from_torchs_own_generator_go_one_by_one(people: Federation) -> None:
    making = Making()
    assert rows_of(with_part(Noise()), people, making) == rows_of(with_part(Noise()), people)
    assert [text for text in making.said if "train one after the other" in text]


def test_a_silo_that_draws_where_the_first_did_not_is_refused(people: Federation) -> None:
    with pytest.raises(FairsiloError, match=r"drew from torch's own random numbers .* set engine\.lanes=1"):
        rows_of(with_part(Noise("c")), people, Making())


def test_one_thread_at_a_time_has_torchs_generator() -> None:
    """Networks that silos build while others train begin with the same weights as alone."""
    found: dict[int, Tensor] = {}
    barrier = threading.Barrier(2)

    def build(number: int) -> None:
        barrier.wait()
        for _ in range(50):
            with streams.ambient(number, "weights"):
                found[number] = torch.cat([torch.rand(1) for _ in range(20)])

    threads = [threading.Thread(target=build, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (1, 2):
        with streams.ambient(number, "weights"):
            assert torch.equal(found[number], torch.cat([torch.rand(1) for _ in range(20)]))


@dataclass(frozen=True)
class SlowlySeeded(Part):
    """At every silo but the first, weights of its own that take their time to be drawn."""

    name = "slowly-seeded"

    def begin(self, silo: Silo) -> None:
        if silo.name != "a":
            with streams.ambient(0, silo.name):
                torch.rand(3)
                time.sleep(0.1 if silo.name == "c" else 0.0)


def test_numbers_that_a_silo_seeds_itself_are_not_taken_for_draws(people: Federation) -> None:
    """The answer of `b` is looked at while `c` has torch's generator."""
    rows_of(with_part(SlowlySeeded()), people, Making())


def test_memory_is_let_go_when_steps_were_recorded_and_not_later(
    people: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go: list[int] = []
    making = Making()

    def note() -> None:
        assert making.engine is not None
        let_go.append(sum(recorder.captured for recorder in making.engine.recorders))

    monkeypatch.setattr(torch.cuda, "empty_cache", note)
    training = dataclasses.replace(TRAINING, rounds=6)
    tiny.run("fedavg", people, training, engine=making)[1].engine.close()
    assert let_go
    assert let_go == sorted(set(let_go))  # each time for something new


# ---------------------------------------------------------------------------------------------- what cannot be recorded
@dataclass(frozen=True)
class Elsewhere(Part):
    """Of another package, as far as the engine can see: it counts steps in Python, which no recording would."""

    name = "elsewhere"

    def begin(self, silo: Silo) -> None:
        silo.scratch["counted"] = 0

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        silo.scratch["counted"] += 1
        return loss * silo.scratch["counted"]


@dataclass(frozen=True)
class Recordable(Elsewhere):
    recordable = True


def test_steps_of_another_packages_part_are_made_unless_it_says_that_they_can_be_recorded(people: Federation) -> None:
    making = Making()
    assert rows_of(with_part(Elsewhere()), people, making) == rows_of(with_part(Elsewhere()), people)
    assert making.said == [
        "steps are made one by one, not recorded: elsewhere does not say that they can be (`recordable`)"
    ]
    assert rows_of(with_part(Recordable()), people, making) != rows_of(with_part(Recordable()), people)


def test_which_methods_steps_are_made() -> None:
    assert why_made(method("grace | fedbn")) == ""
    assert "dp-sgd" in why_made(method("dp-sgd"))


class Refusing(OnTape):
    """A device that cannot record the second step that it is given, and can all others."""

    tried = 0

    def record(self, step: Callable[[], Tensor]) -> Recorded | None:
        Refusing.tried += 1
        if Refusing.tried == 2:
            self.failed(RuntimeError("operation not permitted"))
            return None
        return super().record(step)


def test_a_step_that_cannot_be_recorded_is_made_and_others_are_recorded_anew(people: Federation) -> None:
    making = Making(Refusing)
    assert rows_of("fedavg", people, making) == rows_of("fedavg", people)
    assert len(making.said) == 1
    assert "some steps are made one by one" in making.said[0]
    assert "operation not permitted" in making.said[0]
    assert Refusing.tried > 2


@pytest.mark.parametrize("task", GROUNDS)
def test_steps_of_every_task_are_recorded_in_training_and_measuring(task: str) -> None:
    making = Making()
    alone = GROUNDS[task].run("fedavg", rounds=2)
    loop = GROUNDS[task].loop("fedavg", rounds=2, engine=making)
    assert loop.run().rows == alone.rows
    loop.engine.close()
    assert not making.said
    assert making.engine is not None
    assert sum(one.captured for one in making.engine.recorders) > 1


def test_graphs_that_are_let_go_take_their_memory_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch refuses to record to a pool whose graphs are all gone."""
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", itertools.count().__next__)
    graphs = Graphs()
    pools = [graphs.pool]
    for let_go in (graphs.forget, graphs.clear):
        let_go()
        pools.append(graphs.pool)
    assert pools == [0, 1, 2]


# ------------------------------------------------------------------------------------------------------------- failures
@dataclass(frozen=True)
class Fails(Part):
    name = "fails"

    def begin(self, silo: Silo) -> None:
        if silo.name == "b":
            raise ValueError("no data today")


def test_a_silo_that_fails_is_named_and_the_others_go_on(people: Federation) -> None:
    history, loop = tiny.run(with_part(Fails()), people, TRAINING, engine=Making())
    loop.engine.close()
    assert [failed["silo"] for record in history.rounds for failed in record["failures"]] == ["b", "b"]
    with pytest.raises(ValueError, match="no data today"):
        rows_of(with_part(Fails()), people, Making(strict=True))


def test_a_caller_that_gives_up_leaves_nothing_under_way(people: Federation) -> None:
    plan = tiny.plan("fedavg", TRAINING)
    engine = Making()(plan, people)
    loop = Loop(plan, people.roster, engine)
    loop.server.round = 1
    messages = open_round(loop.server, people.names, {})
    for _ in range(2):  # the first time silos go one by one
        replies = engine.ask(Exchange("train", 1, messages))
        assert next(iter(replies)).silo == "a"
        replies.close()  # type: ignore[attr-defined]
    answers = list(engine.ask(Exchange("train", 1, messages)))
    assert [reply.silo for reply in answers] == ["a", "b", "c"]
    alone = Host(plan, people).answer("b", Exchange("train", 1, messages).request("b"), Memory())
    assert isinstance(alone.message, Message)
    answer = answers[1].answer
    assert isinstance(answer, Message)
    assert torch.equal(alone.message.tensors[MODEL], answer.tensors[MODEL])
    engine.close()


# -------------------------------------------------------------------------------------------------------------- prompts
def test_prompts_inside_a_shared_encoder_belong_to_their_thread() -> None:
    shared, barrier = nn.Identity(), threading.Barrier(2)
    found: dict[int, list[float]] = {}

    def run(number: int) -> None:
        prompt = torch.full((1, 1), float(number))
        for _ in range(100):
            barrier.wait()
            with appended(shared, prompt):
                barrier.wait()
                found.setdefault(number, []).append(float(shared(torch.zeros(1, 1, 1))[0, -1]))

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found[1]) == {1.0}
    assert set(found[2]) == {2.0}
    assert shared(torch.zeros(1, 1, 1)).shape == (1, 1, 1)


# ------------------------------------------------------------------------------------- what a short run does not show
def long(**changes: Any) -> Any:
    return dataclasses.replace(tiny.TRAINING, **({"rounds": 3} | changes))


@pytest.mark.parametrize(
    ("how", "training"),
    [
        ("fedrep(turns=batches)", long(batch_size=2)),  # of eleven steps the last is another one
        ("faa(warmup=0)", long()),  # the server asks in the middle of its own draws
        ("moon", long(participation="2")),
        ("pfedme", long(lr_schedule="step")),
    ],
)
def test_longer_runs_and_fewer_silos(how: str, training: Any, people: Federation) -> None:
    plain, _ = tiny.run(how, people, training)
    found, loop = tiny.run(how, people, training, engine=Making())
    loop.engine.close()
    assert found.rows == plain.rows
    assert torch.equal(found.vector, plain.vector)


@pytest.mark.parametrize("groups", [(), ("sex",)])
def test_models_are_measured_by_replays(
    groups: tuple[str, ...], people: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    forward = tiny.TinyNet.forward

    def counting(self: Any, inputs: Tensor) -> Any:
        if not self.training:
            measured.append(len(inputs))
        return forward(self, inputs)

    monkeypatch.setattr(tiny.TinyNet, "forward", counting)
    sexes = {"sex": "fm" * (len(people.silos[0].test) // 2)}
    silos = tuple(
        dataclasses.replace(silo, test=Split(silo.test.inputs, silo.test.targets, attributes=sexes))
        for silo in people.silos
    )
    people, training = dataclasses.replace(people, silos=silos), long(rounds=6)
    plain, _ = tiny.run("fedavg", people, training, groups=groups)
    made = len(measured)
    measured.clear()
    found, loop = tiny.run("fedavg", people, training, groups=groups, engine=Making())
    loop.engine.close()
    assert found.rows == plain.rows
    assert found.groups == plain.groups
    assert bool(found.groups) == bool(groups)
    assert len(measured) < made / 2


def test_backward_passes_stay_in_their_lane(people: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[bool] = []
    answer = Host.answer

    def watched(self: Host, *given: Any) -> Any:
        allowed.append(torch.autograd.is_multithreading_enabled())
        return answer(self, *given)

    monkeypatch.setattr(Host, "answer", watched)
    rows_of("fedavg", people, Making())
    assert set(allowed) == {False}
    assert torch.autograd.is_multithreading_enabled()


class HalfDone(OnTape):
    """A device on which the first capture of each lane fails when Python has run through the step, as a GPU's does."""

    def record(self, step: Callable[[], Tensor]) -> Recorded | None:
        if self.recorded or getattr(self, "tried", False):
            return super().record(step)
        self.tried = True
        silo = self.silo
        before = silo.model.read(), silo.model.gradients.clone(), {k: v.clone() for k, v in silo.model._held.items()}
        sums = {name: value.clone() for name, value in silo.model._sums.items()}
        drawn = torch.get_rng_state()
        step()
        torch.set_rng_state(drawn)
        silo.model.load(before[0])
        silo.model.gradients.copy_(before[1])
        for key, value in before[2].items():
            silo.model._held[key].copy_(value)
        for name, value in silo.model._sums.items():
            value.copy_(sums.get(name, torch.zeros_like(value)))
        self.failed(RuntimeError("stream capture"))
        return None


@pytest.mark.parametrize("how", ["fedproto", "only-da", "fedgr(loss_source=epoch)"])
def test_a_step_that_failed_to_be_recorded_counts_once(
    how: str, people: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_silo = Blueprint.silo

    def noting(self: Blueprint, model: Any, *args: Any, **more: Any) -> Silo:
        silo = plain_silo(self, model, *args, **more)
        for tape in tapes:
            if tape.model is model:
                tape.silo = silo
        return silo

    tapes: list[Any] = []
    plain, _ = tiny.run(how, people, TRAINING)
    making = Making(HalfDone)

    def engine(plan: Blueprint, silos: Federation) -> Lanes:
        made = making(plan, silos)
        for lane in made.lanes:
            tape: Any = lane.host.recorder
            tape.model = lane.host.model
            tapes.append(tape)
        return made

    monkeypatch.setattr(Blueprint, "silo", noting)
    found, loop = tiny.run(how, people, TRAINING, engine=engine)
    loop.engine.close()
    assert any("stream capture" in text for text in making.said)
    assert found.rows == plain.rows
    assert [record["shown"] for record in found.rounds] == [record["shown"] for record in plain.rounds]


def test_what_a_listener_draws_is_no_silos_doing(people: Federation) -> None:
    def listener(event: Any) -> None:
        torch.rand(())

    history, loop = tiny.run("fedavg", people, TRAINING, engine=Making(), listener=listener)
    loop.engine.close()
    assert history.rows == rows_of("fedavg", people)
