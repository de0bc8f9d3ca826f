"""What a run tells its listeners: every event once, with what it carries, and no listener can stop or change a run."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import fairsilo
import tiny
from fairsilo import Event, Federation, Listener
from fairsilo.core.messages import Message
from fairsilo.engine.events import guarded
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import RunFolder

SMALL = {"rounds": 2, "epochs": 1, "batch_size": 2, "engine": {"name": "sequential"}, "model": tiny.TinyNet}
KINDS = {name.removeprefix("on_") for name in vars(Listener) if name.startswith("on_")}


@pytest.fixture
def people() -> Federation:
    return tiny.federation()


class Diary(Listener):
    """Has a method for some events only."""

    def __init__(self) -> None:
        self.rounds: list[Event] = []
        self.evaluated: list[Event] = []
        self.failed: list[Event] = []

    def on_round(self, event: Event) -> None:
        self.rounds.append(event)

    def on_evaluated(self, event: Event) -> None:
        self.evaluated.append(event)

    def on_failed(self, event: Event) -> None:
        self.failed.append(event)


def test_a_run_tells_every_kind_of_event_that_a_listener_has_a_method_for(people: Federation, tmp_path: Path) -> None:
    told: list[str] = []
    lacking = dataclasses.replace(people.silos[0], train=people.silos[0].train.subset([0, 3]))  # a class is missing
    noted = dataclasses.replace(people, silos=(lacking, *people.silos[1:]))
    fairsilo.run(
        federation=noted, method="fedavg", out=tmp_path, listener=lambda event: told.append(event.kind), **SMALL
    )
    assert set(told) == KINDS - {"failed"}
    assert told[0] == "method"
    assert told[-1] == "over"
    order = [kind for kind in told if kind not in ("reply", "note", "method", "asked")]
    one = ["opened", "trained", "closed", "evaluated"]
    # a checkpoint is written behind the next round, and told of when it is on the disk
    assert order == ["start", "saved", *one, "round", *one, "saved", "round", "saved", "end", "over"]


def test_rounds_carry_what_their_records_say(people: Federation, tmp_path: Path) -> None:
    diary = Diary()
    result = fairsilo.run(federation=people, method="fedavg | tent", out=tmp_path, listener=diary, **SMALL)
    rows, records = RunFolder(tmp_path).rows("metrics"), RunFolder(tmp_path).rows("rounds")
    assert [event.round for event in diary.rounds] == [1, 2]
    for event, before, record in zip(diary.rounds, diary.evaluated, records, strict=True):
        assert event.results == before.results
        found = event.results
        assert found is not None
        assert found.losses == record["train_loss"]
        assert found.weights == record["weights"]
        assert json.loads(json.dumps(found.rows)) == [row for row in rows if row["round"] == event.round]
    last = diary.rounds[-1].results
    assert last is not None
    tested = [row for row in rows if row["round"] == 2 and row["split"] == "test"]
    at_home = [row["metric"] for row in tested if row["model"] == "global" and row["silo"] in "abc"]
    assert last.means["global"] == pytest.approx(fmean(at_home))
    assert last.means["global"] == pytest.approx(result.summary["fairness"]["global"]["mean"])
    assert last.means["personal"] == pytest.approx(result.summary["personalisation"]["mean"])
    assert last.means["adapted"] == pytest.approx(result.summary["generalisation"]["mean"])
    assert last.means["unseen"] == pytest.approx(result.summary["generalisation"]["unadapted"])
    assert set(last.means) == {"global", "unseen", "personal", "adapted"}


def test_a_round_without_evaluation_has_losses_and_no_metrics(people: Federation, tmp_path: Path) -> None:
    diary = Diary()
    fairsilo.run(federation=people, method="fedavg", out=tmp_path, listener=diary, evaluate={"every": 2}, **SMALL)
    assert [event.round for event in diary.evaluated] == [2]
    first = diary.rounds[0].results
    assert first is not None
    assert set(first.losses) == set("abc")
    assert (first.rows, first.means) == ((), {})


def test_a_failure_carries_silo_and_reason(people: Federation) -> None:
    class Breaking:
        """An engine whose silo b always answers with a NaN."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def ask(self, exchange: Any) -> Any:
            for reply in self.inner.ask(exchange):
                if reply.silo == "b" and exchange.kind == "train":
                    assert isinstance(reply.answer, Message)
                    reply.answer.numbers["loss"] = float("nan")
                yield reply

    diary = Diary()
    history, _ = tiny.run("fedavg", people, listener=diary, wrap=Breaking)
    assert {(event.silo, event.text) for event in diary.failed} == {("b", "diverged: loss is nan")}
    assert len(diary.failed) == len(history.rounds)


def test_a_listener_that_raises_is_dropped_and_noted_once(
    people: Federation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def broken(event: Event) -> None:
        told.append(event.kind)
        if event.kind == "trained":
            raise ValueError("my own mistake")

    plain = fairsilo.run(federation=people, method="fedavg", out=tmp_path / "plain", **SMALL)
    with caplog.at_level(logging.WARNING, "fairsilo"):
        result = fairsilo.run(
            federation=people, method="fedavg", baseline="fedprox", out=tmp_path / "run", listener=broken, **SMALL
        )
    assert result.summary == plain.summary
    assert told.count("trained") == 1
    assert told[-1] == "trained"
    (note,) = json.loads((tmp_path / "run" / "run.json").read_text())["notes"]
    assert note.startswith("the listener raised at the event 'trained' and is not called any more: ValueError: my own")
    assert [record.message for record in caplog.records] == [note]
    assert json.loads((tmp_path / "run" / "baseline" / "run.json").read_text())["notes"] == []
    assert "is not called any more" in (tmp_path / "run" / "report.html").read_text()


def test_a_listener_cannot_change_the_records(people: Federation, tmp_path: Path) -> None:
    class Meddling(Listener):
        def on_evaluated(self, event: Event) -> None:
            assert event.results is not None
            event.results.losses.clear()
            event.results.weights.clear()
            for row in event.results.rows:
                row["metrics"].clear()

    plain = fairsilo.run(federation=people, method="fedavg", out=tmp_path / "a", **SMALL)
    other = fairsilo.run(federation=people, method="fedavg", out=tmp_path / "b", listener=Meddling(), **SMALL)
    assert other.summary == plain.summary
    for name in ("metrics", "rounds"):
        for mine, theirs in zip(RunFolder(plain.folder).rows(name), RunFolder(other.folder).rows(name), strict=True):
            assert mine.get("metrics") == theirs.get("metrics")
            assert (mine.get("train_loss"), mine.get("weights")) == (theirs.get("train_loss"), theirs.get("weights"))


def test_an_interrupt_passes(people: Federation) -> None:
    def stop(event: Event) -> None:
        if event.kind == "opened":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.run("fedavg", people, listener=stop)


def test_a_comparison_says_which_of_its_runs_begins(people: Federation, tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []

    class Runs(Listener):
        def on_method(self, event: Event) -> None:
            heard.append((event.text, event.where))

    fairsilo.compare(["fedavg", "local"], seeds=[0, 1], federation=people, out=tmp_path / "c", listener=Runs(), **SMALL)
    assert heard == [(name, f"u held out, seed {seed}") for name in ("fedavg", "local") for seed in (0, 1)]
    told: list[Event] = []
    fairsilo.run(federation=people, method="fedavg", out=tmp_path / "one", listener=told.append, **SMALL)
    assert [event.where for event in told if event.kind == "method"] == ["u held out, seed 0"]


def test_a_method_for_no_event_is_refused_with_the_name_that_is_meant() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.on_evaluate is for no event of a run; did you mean 'on_evaluated'\?$"):
        type("Wrong", (Listener,), {"on_evaluate": print})
    with pytest.raises(TypeError, match=r"Wrong\.on_zzz is for no event of a run; known: on_asked, on_closed, .*on_tr"):
        type("Wrong", (Listener,), {"on_zzz": print})


def test_a_failure_is_told_by_its_other_name_too() -> None:
    heard: list[str] = []

    class Watching(Listener):
        def on_silo_failed(self, event: Event) -> None:
            heard.append(event.silo)

    class Louder(Watching):
        def on_silo_failed(self, event: Event) -> None:
            super().on_silo_failed(event)
            heard.append(event.text)

    Watching()(Event("failed", 1, 2, silo="a"))
    Louder()(Event("failed", 1, 2, silo="b", text="timeout"))
    assert heard == ["a", "b", "timeout"]
    with pytest.raises(TypeError, match="Twice has on_silo_failed and on_failed, which are the same; define one"):
        type("Twice", (Listener,), {"on_silo_failed": print, "on_failed": print})


@pytest.mark.parametrize("listener", [object(), [print, 3]])
def test_what_is_no_listener_is_refused_before_there_is_a_folder(
    people: Federation, tmp_path: Path, listener: Any
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(FairsiloError, match=r"derived from fairsilo\.Listener; (object|int) is neither"):
        fairsilo.run(federation=people, model=tiny.TinyNet, rounds=1, epochs=1, out=folder, listener=listener)
    assert not folder.exists()


def test_a_guarded_listener_is_guarded_once() -> None:
    first = guarded(Diary())
    assert guarded(first) is first
    assert first.take_notes() == []


def test_listeners_may_be_given_one_by_one() -> None:
    heard: list[Event] = []
    guarded(iter([heard.append]))(Event("over", 1, 1))  # type: ignore[arg-type]
    assert [event.kind for event in heard] == ["over"]
