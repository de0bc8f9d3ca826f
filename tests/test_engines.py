"""The engines' own duties: losing a worker, giving up on a silo, keeping memory small, and holding a server model."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import tiny
from fairsilo.analysis.metrics import results
from fairsilo.config import TrainSettings
from fairsilo.core.messages import Exchange, Failure, Message
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.core.silo import Silo
from fairsilo.data.federation import Federation
from fairsilo.engine.base import Engine
from fairsilo.engine.events import Event
from fairsilo.engine.host import Blueprint
from fairsilo.engine.processes import Pool, Processes
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError
from fairsilo.runs.saved import SavedRun


@dataclass(frozen=True)
class Trouble(Part):
    """A silo that does something awful in round 2."""

    name = "trouble"
    what: str = "die"

    def begin(self, silo: Silo) -> None:
        if silo.name == "b" and silo.round == 2:
            if self.what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.what == "hang":
                time.sleep(60)
            raise ValueError("the scanner is broken")


def _processes(pool: Pool, **options: float) -> object:
    def make(blueprint: Blueprint, silos: Federation) -> Engine:
        return Processes(blueprint, silos, pool, **options)  # type: ignore[arg-type]

    return make


def test_a_worker_that_dies_costs_one_answer_of_one_silo(people: Federation, pool: Pool) -> None:
    history, _ = tiny.run(Method((Trouble("die"),), "trouble"), people, engine=_processes(pool))  # type: ignore[arg-type]
    (failure,) = history.rounds[1]["failures"]
    assert failure["silo"] == "b"
    assert failure["kind"] == "lost"
    assert "exit code -9" in failure["detail"]
    assert history.rounds[2]["counted"] == ["a", "b", "c"]


@pytest.mark.slow
def test_a_silo_that_hangs_is_given_up_after_the_timeout(people: Federation, pool: Pool) -> None:
    tiny.run("fedavg", people, engine=_processes(pool))  # type: ignore[arg-type]  # workers are up before the clock runs
    history, _ = tiny.run(Method((Trouble("hang"),), "trouble"), people, engine=_processes(pool, timeout=10.0))  # type: ignore[arg-type]
    (failure,) = history.rounds[1]["failures"]
    assert (failure["silo"], failure["kind"]) == ("b", "timeout")
    assert history.rounds[2]["counted"] == ["a", "b", "c"]


@pytest.mark.parametrize("parallel", [False, True])
def test_a_silo_that_raises_says_why_and_where(parallel: bool, people: Federation, pool: Pool) -> None:
    engine = _processes(pool) if parallel else None
    history, _ = tiny.run(Method((Trouble("raise"),), "trouble"), people, engine=engine)  # type: ignore[arg-type]
    (failure,) = history.rounds[1]["failures"]
    assert failure["detail"].startswith("ValueError: the scanner is broken (begin, line")


@pytest.mark.slow
def test_strict_stops_at_the_first_failure(people: Federation, pool: Pool) -> None:
    how = Method((Trouble("raise"),), "trouble")
    with pytest.raises(ValueError, match="scanner"):
        tiny.run(how, people, engine=lambda plan, silos: Sequential(plan, silos, strict=True))
    with pytest.raises(RuntimeError, match="silo b: ValueError: the scanner"):
        tiny.run(how, people, engine=lambda plan, silos: Processes(plan, silos, pool, strict=True))
    history, _ = tiny.run("fedavg", people, engine=_processes(pool))  # type: ignore[arg-type]  # the pool still serves
    assert len(history.rounds) == 3


def test_abandoned_answers_never_reach_the_next_question(people: Federation, pool: Pool) -> None:
    plan = tiny.plan("fedavg")
    engine = Processes(plan, people, pool)
    vector = plan.flat().read()
    asked = {name: Message({"model": vector}) for name in people.names}
    first = next(iter(engine.ask(Exchange("evaluate", 1, asked))))
    assert first.silo == "a"
    assert [reply.silo for reply in engine.ask(Exchange("evaluate", 1, asked))] == ["a", "b", "c"]


def test_a_diverging_silo_is_caught_at_home(people: Federation) -> None:
    training = TrainSettings(rounds=1, epochs=3, batch_size=8, lr=1e30)
    engine = Sequential(tiny.plan("fedavg", training), people)
    (reply,) = engine.ask(Exchange("train", 1, {"a": Message({"model": engine.host.model.read()})}))
    assert isinstance(reply.answer, Failure)
    assert reply.answer.kind == "diverged"
    assert "diverged: its model has a NaN" in reply.answer.detail


@pytest.mark.slow
def test_another_model_on_the_server_than_at_the_silos(people: Federation, pool: Pool, tmp_path: Path) -> None:
    """The core can hold a method shaped like FedAG: own server model, per-silo messages, training on the server."""
    plain = TrainSettings(rounds=5, epochs=1, batch_size=8, lr=0.1)
    history, loop = tiny.run(tiny.two_models(), people, plain, server_data=tiny.synthetic(), folder=tmp_path / "whole")
    shared = results(history.rows, [5], "global", "test")
    assert min(shared[name] for name in people.names) > 0.6  # the server's network, trained on its own data
    own = results(history.rows, [5], "personal", "test")
    assert min(own.values()) > 0.6
    models = loop.server.memory["two-models"]["models"]
    assert len(models["a"]) == loop.server.silo_layout.size != loop.server.layout.size == len(history.vector)
    assert not torch.equal(models["a"], models["b"])

    other, _ = tiny.run(
        tiny.two_models(), people, plain, server_data=tiny.synthetic(), engine=lambda p, s: Processes(p, s, pool)
    )
    assert tiny.numbers(other) == tiny.numbers(history)

    class Crash(BaseException):
        pass

    def crash(event: Event) -> None:
        if event.kind == "closed" and event.round == 3:
            raise Crash

    with pytest.raises(Crash):
        tiny.run(
            tiny.two_models(), people, plain, server_data=tiny.synthetic(), folder=tmp_path / "cut", listener=crash
        )
    again, _ = tiny.run(tiny.two_models(), people, plain, server_data=tiny.synthetic(), folder=tmp_path / "cut")
    assert tiny.numbers(again) == tiny.numbers(history)


def test_bytes_and_exchanges_are_counted(people: Federation) -> None:
    size = 4 * tiny.plan("fedavg").flat().layout.size
    fedavg, faa, sparse = (
        tiny.run(how, people)[0].rounds for how in ("fedavg", "faa(warmup=0)", "faa(warmup=0, every=3)")
    )
    train = fedavg[0]["exchanges"][0]
    assert train["kind"] == "train"
    assert train["asked"] == train["answered"] == 3
    assert size * 3 <= train["bytes_down"] < size * 3 + 200
    kinds = [[e["kind"] for e in record["exchanges"]] for record in faa]
    assert kinds == [["train", "probe", "probe", "evaluate"]] * 3
    assert [sum(e["kind"] == "probe" for e in record["exchanges"]) for record in sparse] == [0, 0, 2]
    extra = sum(e["bytes_down"] + e["bytes_up"] for e in faa[1]["exchanges"] if e["kind"] == "probe")
    plain = train["bytes_down"] + train["bytes_up"]
    # two broadcasts more on top of one down and one up, which also has what the silo measured of its own model
    assert extra / plain == pytest.approx(1.0, abs=0.2)


def test_personal_models_are_saved_by_tensor_name(people: Federation, tmp_path: Path) -> None:
    _, loop = tiny.run("ditto", people, folder=tmp_path)
    saved = SavedRun(tmp_path).read_model(("personal", "last", "a"))
    kept = loop.engine.memory["a"]["personal-model"]["model"]
    assert torch.equal(saved["head.weight"], loop.blueprint.flat().layout.views(kept)["head.weight"])
    shared = SavedRun(tmp_path).read_model(("global",))
    assert torch.equal(shared["head.weight"], loop.server.layout.views(loop.server.vector)["head.weight"])


def test_fedbn_keeps_norms_at_home_and_averages_them_for_newcomers(people: Federation) -> None:
    history, loop = tiny.run("fedbn", people)
    layout = loop.blueprint.flat().layout
    norms = [slot for slot in layout.slots if slot.group == "batch-norm"]
    own = {name: memory["silo"]["own"] for name, memory in loop.engine.memory.items()}
    assert not torch.allclose(own["a"], own["b"])
    shares = history.rounds[-1]["weights"]
    floats = [slot for slot in norms if slot.role != "counter"]
    position = 0
    for slot in floats:
        mean = sum(shares[name] * own[name][position : position + slot.length] for name in own)
        torch.testing.assert_close(loop.server.vector[slot.place], mean, rtol=1e-4, atol=1e-5)
        position += slot.length


def test_a_combination_that_would_do_nothing_is_refused(people: Federation) -> None:
    plain = tiny.plan("fedbn", model=tiny.server_net)
    from fairsilo.engine.loop import Loop

    with pytest.raises(FairsiloError, match="no BatchNorm module"):
        Loop(plain, people.roster, Sequential(plain, people))


def test_gap_methods_need_validation_data(people: Federation) -> None:
    import dataclasses

    bare = dataclasses.replace(people["a"], validation=tiny.samples(0, 0.0, 1))
    silos = Federation("bare", people.classes, (bare, people["b"]), people.unseen)
    with pytest.raises(FairsiloError, match=r"'a' has none; set data\.validation above 0"):
        tiny.run("ga", silos)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads what Linux tells of a process")
def test_workers_begin_with_their_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    pool = Pool(1, threads=3)
    try:
        assert pool.workers[0].pipe.recv() == "ready"  # before that the kernel may not yet have set its environment
        told = Path(f"/proc/{pool.workers[0].process.pid}/environ").read_bytes().split(b"\0")
        assert b"OMP_NUM_THREADS=3" in told
        assert os.environ["OMP_NUM_THREADS"] == "7"
    finally:
        pool.close()
