"""What must hold for every method of the catalogue on tasks that are no classification of images."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from fairsilo.analysis.metrics import mean, results
from fairsilo.core.messages import Exchange
from fairsilo.core.round import open_evaluation
from fairsilo.data.federation import Federation
from fairsilo.engine.base import Engine
from fairsilo.engine.events import Event
from fairsilo.engine.host import Blueprint
from fairsilo.engine.processes import Pool, Processes
from fairsilo.errors import FairsiloError
from fairsilo.laws.check import Crash
from fairsilo.methods.text import method
from other_tasks import GROUNDS

pytestmark = pytest.mark.usefixtures("plain_kernels")

# what has no meaning for a task, by the part that says so
REFUSED = {
    "segment": {"prototypes", "clustering"},
    "next-character": {"mean-mixing", "amplitude-norm", "frequency-episodes", "routed-kernels", "clustering"},
    "regress": {
        "prototypes",
        "amplitude-norm",
        "frequency-episodes",
        "routed-kernels",
        "two-heads",
        "entropy-steps",
        "clustering",
    },
}
CASES = [(task, how) for how in tiny.PLAIN for task in GROUNDS]


def refusing(task: str, how: str) -> set[str]:
    return {part.name for part in method(how).parts} & REFUSED[task]


RUNNING = [(task, how) for task, how in CASES if not refusing(task, how)]


@pytest.mark.parametrize(("task", "how"), [case for case in CASES if case not in RUNNING])
def test_what_has_no_meaning_for_a_task_is_refused(task: str, how: str) -> None:
    with pytest.raises(FairsiloError, match=r"is for the tasks .*, not for |are codes, which have none") as refusal:
        GROUNDS[task].loop(how)
    assert any(name in str(refusal.value) for name in refusing(task, how))


@pytest.mark.parametrize(("task", "how"), RUNNING)
def test_every_method_learns_every_task(task: str, how: str) -> None:
    """The metric of the model that results are about is better after training than before, and no silo fails."""
    loop = GROUNDS[task].loop(tiny.QUIET.get(how, how), rounds=6, epochs=2)
    history = loop.run()
    assert not any(record["failures"] for record in history.rounds)
    found = results(history.rows, [6], loop.blueprint.method.results, "test")
    layout, untrained = loop.blueprint.start()
    loop.engine.memory, loop.server.vector = {}, layout.to_wire(untrained)  # type: ignore[attr-defined]
    asked = Exchange("evaluate", 0, open_evaluation(loop.server, loop.server.names, ()))
    first = mean(float(reply.answer.numbers["global.test.metric"]) for reply in loop.engine.ask(asked))
    rank = loop.blueprint.task.reported.rank
    # q-FFL's own form hardly moves where local training is long
    assert rank(mean(found[name] for name in "abc")) > rank(first) or (how, task) == ("q-ffl", "regress")


@pytest.mark.parametrize(("task", "how"), RUNNING)
def test_engines_agree_on_every_task(task: str, how: str, pool: Pool) -> None:
    def processes(blueprint: Blueprint, silos: Federation) -> Engine:
        return Processes(blueprint, silos, pool)

    one, other = (GROUNDS[task].run(how, rounds=2, engine=engine) for engine in (None, processes))
    assert tiny.numbers(one) == tiny.numbers(other)


@pytest.mark.parametrize(("task", "how"), RUNNING)
def test_a_crash_and_resume_on_every_task(task: str, how: str, tmp_path: Path) -> None:
    ground = GROUNDS[task]
    whole = ground.run(how, rounds=2, folder=tmp_path / "whole")

    def crash(event: Event) -> None:
        if event.kind == "opened" and event.round == 2:
            raise Crash

    with pytest.raises(Crash):
        ground.run(how, rounds=2, folder=tmp_path / "cut", listener=crash)
    assert tiny.numbers(ground.run(how, rounds=2, folder=tmp_path / "cut")) == tiny.numbers(whole)
