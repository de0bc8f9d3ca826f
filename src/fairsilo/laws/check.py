"""The laws of methods as functions that raise one sentence, and `check`, which tries a method by all of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from fairsilo.core.messages import MODEL
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.data.federation import Federation
from fairsilo.engine.base import Engine
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.events import Event
from fairsilo.engine.processes import CannotTravelError, Processes
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.laws import tiny
from fairsilo.laws.engines import FAULTS, FLAWS, Backwards, Case, Spoiling, Tampered, Watching
from fairsilo.laws.settings import settings_count
from fairsilo.laws.trial import SHORT, LawError, NotApplicableError, Trial, plain_kernels, workers
from fairsilo.methods.catalogue import model_for
from fairsilo.methods.text import method as method_of
from fairsilo.runs.engines import fixed_threads
from fairsilo.runs.setup import as_method

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not applicable"


@dataclass(frozen=True)
class Finding:
    """What came of one law.

    Attributes:
        law: Its name.
        says: What it demands.
        status: `passed`, `failed` or `not applicable`.
        detail: Why it failed or does not apply.
    """

    law: str
    says: str
    status: str
    detail: str = ""

    def as_dict(self) -> dict[str, str]:
        return dataclasses.asdict(self)


class Law(NamedTuple):
    name: str
    says: str
    hold: Callable[[Trial], None]


# ---------------------------------------------------------------------------------------------------------- a plain run
def what_is_sent_is_declared(trial: Trial) -> None:
    if trial.plain.malformed:
        raise LawError(trial.plain.malformed[0])
    trial.needs_a_plain_run()
    engine = trial.plain.loop.engine
    assert isinstance(engine, Watching)
    for one in trial.method.declared:
        if one.exchange in ("train", "share") and not one.optional and (one.exchange, one.name) not in engine.sent:
            raise LawError(f"no silo sent {one.name!r}, which is declared for the exchange {one.exchange!r}")


def a_plain_run_ends(trial: Trial) -> None:
    plain = trial.plain
    if plain.malformed:
        raise NotApplicableError("replies are malformed already")
    if plain.failures:
        raise LawError(plain.failures[0])
    if plain.problem is not None:
        raise LawError(_told(plain.problem))
    history = plain.loop.history
    for row in history.rows:
        if not math.isfinite(row["loss"]) or not math.isfinite(row["metric"]):
            raise LawError(f"silo {row['silo']} measured a loss of {row['loss']} in round {row['round']}")
    for record in history.rounds:
        if not all(map(math.isfinite, (*record["train_loss"].values(), *record["weights"].values()))):
            raise LawError(f"a loss or a weight of round {record['round']} is not finite")


def memory_is_replaced(trial: Trial) -> None:
    trial.needs_a_plain_run()
    engine = trial.plain.loop.engine
    assert isinstance(engine, Watching)
    for exchange, part in engine.changed:
        raise LawError(
            f"{part} changed an entry of silo.memory in place during {exchange!r}: a step that fails would leave "
            "traces; put a new value in its place"
        )


def each_part_counts(trial: Trial) -> None:
    trial.needs_a_plain_run()
    if not trial.method.parts:
        raise NotApplicableError("it has no parts: it is the plain round")
    for part in trial.method.parts:
        try:
            less = trial.method.without(type(part))
            same = trial.numbers(tiny.TRAINING, less) == tiny.numbers(trial.plain.loop.history)
        except FairsiloError:  # the others cannot do without it
            continue
        if same:
            raise LawError(f"without {part.name!r} every number of a run of {tiny.TRAINING.rounds} rounds is the same")


SIZES = {
    "one batch a round": (dataclasses.replace(SHORT, lr=0.05), 8),
    "batches of one sample": (dataclasses.replace(SHORT, batch_size=1, lr=0.05), 4),
}


def the_model_moves(trial: Trial) -> None:
    trial.needs_a_plain_run()
    if not trial.trains:
        raise NotApplicableError("it has nothing to train")
    if not _moved(trial.plain.loop.history.rounds, trial.plain.before, trial.plain.loop.server.vector, trial):
        raise LawError("no trainable tensor changes")
    for size, (training, count) in SIZES.items():
        people = tiny.federation(dict.fromkeys("abc", count))
        try:
            loop = trial.loop(training, people=people)
            before = loop.server.vector.clone()
            history = loop.run()
        except StoppedError as problem:
            raise LawError(f"with {size} it stops: {problem}") from problem
        except FairsiloError:
            continue  # refused, with a sentence
        if not _moved(history.rounds, before, history.vector, trial):
            raise LawError(f"with {size} no trainable tensor changes, and the method does not refuse it")


def _moved(rounds: list[dict[str, dict[str, float]]], before: torch.Tensor, after: torch.Tensor, trial: Trial) -> bool:
    """Whether trained tensors changed; where nothing is shared, whether the silos' losses did."""
    trained = trial.plain.loop.server.layout.parameters
    if trained:
        return not torch.equal(after[:trained], before[:trained])
    first, second = (record["train_loss"] for record in rounds[:2])
    return all(first[name] != second[name] for name in first)


# ----------------------------------------------------------------------------------------------------- the same numbers
def the_seed_decides(trial: Trial) -> None:
    trial.needs_a_plain_run()
    if trial.numbers() != trial.sound:
        raise LawError("two runs with the same seed differ; draw from silo.stream(...) and server.stream(...) alone")
    if trial.trains and trial.numbers(seed=1)["rows"] == trial.sound["rows"]:
        raise LawError("runs with different seeds give the same results")


def engines_agree(trial: Trial) -> None:
    trial.needs_a_plain_run()
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment] # as in the workers: other kernels round otherwise
    with workers() as pool:

        def processes(plan: Blueprint, silos: Federation) -> Engine:
            return Processes(plan, silos, pool)

        try:
            apart = trial.numbers(engine=processes)
        except CannotTravelError as problem:
            raise NotApplicableError(f"it cannot be sent to another process: {problem}") from problem
        except StoppedError as problem:
            raise LawError(f"in worker processes it stops: {problem}") from problem
    if apart != trial.numbers():
        raise LawError("silos in worker processes find other numbers; state belongs into silo.memory, not on the part")


STAGES = ("start", "opened", "reply", "trained", "closed", "evaluated", "saved", "round")


class Crash(BaseException):
    """Not an Exception: nothing may catch it."""


def resuming_changes_nothing(trial: Trial) -> None:
    trial.needs_a_plain_run()
    with tempfile.TemporaryDirectory(prefix="fairsilo-laws-") as place:
        whole = trial.numbers(folder=Path(place) / "whole")
        for stage in STAGES:
            _crash(trial, Path(place) / stage, stage)
            if trial.numbers(folder=Path(place) / stage) != whole:
                raise LawError(
                    f"a run that was cut at the stage {stage!r} of round 2 and resumed finds other numbers; state "
                    "belongs into silo.memory and server.memory"
                )


def _crash(trial: Trial, folder: Path, stage: str) -> None:
    def crash(event: Event) -> None:
        if event.kind == stage and event.round >= (0 if stage == "start" else 2):
            raise Crash

    try:
        trial.loop(folder=folder, listener=crash).run()
    except Crash:
        return
    raise LawError(f"no run reached the stage {stage!r}")


def order_is_irrelevant(trial: Trial) -> None:
    trial.needs_a_plain_run()
    trial.needs_several_silos()
    if trial.numbers(wrap=Backwards) != trial.sound:
        raise LawError("numbers depend on the order in which silos are served: one leaves something behind for another")


# ----------------------------------------------------------------------------------------------------------- silos fail
def some_silos_sit_out(trial: Trial) -> None:
    trial.needs_a_plain_run()
    trial.needs_several_silos()
    for sampling in ("uniform", "size"):
        training = dataclasses.replace(tiny.TRAINING, rounds=5, participation="2", sampling=sampling)
        for record in trial.loop(training).run().rounds:
            if len(record["counted"]) != 2 or record["failures"]:
                raise LawError(f"with 2 of 3 silos a round, round {record['round']} has {_failure(record)}")


def a_silo_may_join_later(trial: Trial) -> None:
    trial.needs_a_plain_run()
    trial.needs_several_silos()
    everybody = tiny.federation()
    fewer = Federation(everybody.name, everybody.classes, everybody.silos[:2], everybody.unseen)

    def crash(event: Event) -> None:
        if (event.kind, event.round) == ("round", 1):
            raise Crash

    with tempfile.TemporaryDirectory(prefix="fairsilo-laws-") as place:
        first = trial.loop(tiny.TRAINING, people=fewer, folder=Path(place), listener=crash)
        with contextlib.suppress(Crash):
            first.run()
        then = trial.loop(tiny.TRAINING, people=everybody, folder=Path(place))
        if then.server.layout.size != first.server.layout.size:
            raise NotApplicableError("its server's model has a piece for each silo")
        try:
            rounds = then.run().rounds
        except StoppedError as problem:
            raise LawError(f"with a silo that joins in round 2 it stops: {problem}") from problem
    for record in rounds[1:]:
        if record["counted"] != [*everybody.names] or record["failures"]:
            raise LawError(f"with a silo that joins in round 2, round {record['round']} has {_failure(record)}")


def a_bad_update_is_that_silos_failure(trial: Trial) -> None:
    trial.needs_a_plain_run()
    trial.needs_updates()
    faults = ("nan", "short", "raises")

    def wrap(engine: Engine) -> Engine:
        for number, fault in enumerate(faults, start=1):
            engine = Tampered(engine, fault, round_=number)
        return engine

    history = trial.loop(dataclasses.replace(tiny.TRAINING, rounds=4), wrap=wrap).run()
    for record, fault in zip(history.rounds, faults, strict=False):
        _only_b(record, "train", FAULTS[fault], f"an update of silo b with the fault {fault!r}")
    if history.rounds[3]["counted"] != ["a", "b", "c"]:
        raise LawError("a silo that failed is not back in the next round")


def a_bad_attachment_is_that_silos_failure(trial: Trial) -> None:
    trial.needs_a_plain_run()
    trial.needs_several_silos()
    attached = {one.name: one for one in trial.method.declared if one.exchange == "train" and one.name != MODEL}
    if not attached:
        raise NotApplicableError("silos attach nothing")
    cases: list[Case] = [
        ("train", "b", one, flaw) for one in attached.values() for flaw in FLAWS if not one.optional or flaw != "drop"
    ]
    training = dataclasses.replace(tiny.TRAINING, rounds=len(cases), lr=0.02)
    history = trial.loop(training, wrap=lambda engine: Spoiling(engine, dict(enumerate(cases, start=1)))).run()
    for record, (_, _, one, flaw) in zip(history.rounds, cases, strict=True):
        wrong = "not finite" if flaw == "poison" and one.dtype != "int" else "malformed"
        _only_b(record, "train", wrong, f"{one.name!r} of silo b with the flaw {flaw!r}")


def _only_b(record: dict[str, object], exchange: str, kind: str, what: str) -> None:
    failures = record["failures"]
    assert isinstance(failures, list)
    found = [(one["silo"], one["kind"]) for one in failures if one["exchange"] == exchange]
    if found != [("b", kind)] or record["counted"] != ["a", "c"]:
        raise LawError(f"{what} is not counted as that silo's failure alone, but as {found or 'none'}")


def _failure(record: dict[str, list[dict[str, str]]]) -> str:
    if record["failures"]:
        first = record["failures"][0]
        return f"a failure: {first['silo']}, {first['kind']}: {first['detail']}"
    return f"{len(record['counted'])} updates"


LAWS = (
    Law("declared", "what silos send is declared, and what is declared is sent", what_is_sent_is_declared),
    Law("runs", "a plain run ends, no silo fails, every number is finite", a_plain_run_ends),
    Law("moves", "the model moves, also with one batch a round, or the method refuses", the_model_moves),
    Law("counts", "each part changes something", each_part_counts),
    Law("settings", "each setting changes something, or is refused", settings_count),
    Law("seed", "the same seed gives the same numbers, another seed others", the_seed_decides),
    Law("memory", "entries of a silo's memory are replaced, never changed in place", memory_is_replaced),
    Law("resume", "a crash at any stage of a round, and resumption, give the same numbers", resuming_changes_nothing),
    Law("order", "silos served in another order give the same numbers", order_is_irrelevant),
    Law("engines", "worker processes give the same numbers, bit for bit", engines_agree),
    Law("participation", "some silos may sit out a round", some_silos_sit_out),
    Law("joining", "a silo may join a run under way", a_silo_may_join_later),
    Law("bad update", "a bad update is that silo's counted failure", a_bad_update_is_that_silos_failure),
    Law("bad attachment", "a bad attachment is that silo's counted failure", a_bad_attachment_is_that_silos_failure),
)


def check(how: str | Method | Part) -> Iterator[Finding]:
    """Try a method by all laws, on a tiny federation.

    Args:
        how: A method of the catalogue, a composition, `package:name`, or a method or part itself.

    Yields:
        What came of each law, as soon as it is known.

    Raises:
        FairsiloError: There is no such method, or it cannot be tried on images of three classes.
    """
    made = method_of(how) if isinstance(how, str) else as_method(how)
    around = model_for(how) if isinstance(how, str) else ""
    ground = tiny.Ground(around if around.startswith("tiny-") else "")
    trial = Trial(made, ground)
    try:
        trial.loop()
    except FairsiloError as problem:
        raise FairsiloError(f"{made.name} cannot be tried on the federation of the laws: {problem}") from problem
    for law in LAWS:
        with fixed_threads(1), plain_kernels():
            finding = _tried(law, trial)
        yield finding


def _tried(law: Law, trial: Trial) -> Finding:
    try:
        law.hold(trial)
    except NotApplicableError as reason:
        return Finding(law.name, law.says, NOT_APPLICABLE, str(reason))
    except LawError as problem:
        return Finding(law.name, law.says, FAILED, str(problem))
    except Exception as problem:  # noqa: BLE001 - somebody else's code may raise anything
        return Finding(law.name, law.says, FAILED, _told(problem))
    return Finding(law.name, law.says, PASSED)


def _told(problem: Exception) -> str:
    """An exception as one line; with its name where it is no sentence of fairsilo's."""
    said = " ".join(str(problem).split())
    return said if isinstance(problem, FairsiloError) else f"{type(problem).__name__}: {said}"
