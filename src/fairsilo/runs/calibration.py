"""Which engine suits a run, where `engine.name` is auto: from a few steps of its network on its own samples.

On a GPU: lanes. On a CPU: worker processes, if what they save is worth their start. Both give the same numbers, so the
choice may depend on the moment.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from fairsilo.core.silo import inputs_for
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.scheduling import makespan
from fairsilo.protocols import participation_rule

START = 6.0  # seconds until worker processes have imported torch and built their networks
STEPS = 3  # the first is not counted


class Choice(NamedTuple):
    """An engine, why it was chosen (for the run folder), and the same in few words (for a terminal)."""

    kind: str
    why: str
    said: str


def chosen(plan: Blueprint, federation: Federation, workers: int, running: bool) -> Choice:
    """Processes or sequential, for a run on a CPU.

    Args:
        plan: Of the run.
        federation: Its silos.
        workers: How many processes there would be.
        running: Whether they run already, for a run before.
    """
    several = f"engine: {workers} processes"
    try:
        step = seconds_a_step(plan, federation)
    except Exception as problem:  # noqa: BLE001 - what a network or a sample raises is a silo's failure, in its round
        why = f"no step could be timed ({problem})"
        return Choice("processes", f"engine processes with {workers} workers: {why}", f"{several}: {why}")
    each = [step * _steps(plan, len(silo.train)) for silo in federation.silos]
    rounds = plan.training.rounds * _share(plan, len(federation.silos))
    alone, together = rounds * sum(each), rounds * makespan(each, workers)
    saved = alone - together - (0 if running else START)
    took, whole = f"{1000 * step:.2g} ms", _time(alone)
    estimate = f"a step takes about {took}, the run's steps {whole}, side by side {_time(together)}"
    short = f"since a step takes {took} and all steps of a run {whole}"
    if saved > 0:
        return Choice("processes", f"engine processes with {workers} workers: {estimate}", f"{several}, {short}")
    start = f"to start {workers} processes takes {_time(START)}"
    return Choice("sequential", f"engine sequential: {estimate}, and {start}", f"engine: one process, {short}")


@torch.enable_grad()
def seconds_a_step(plan: Blueprint, federation: Federation) -> float:
    """A forward and a backward pass over one batch, at the run's threads; the terms of parts come on top."""
    model = plan.flat()
    model.train()
    split = max((silo.train for silo in federation.silos), key=len)
    inputs, targets = split.take(torch.arange(min(plan.training.batch_size, len(split))))
    times = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        output = model.forward(inputs_for(model, inputs))
        plan.task.loss(output.prediction, targets).backward()  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def _steps(plan: Blueprint, samples: int) -> int:
    return plan.training.epochs * -(-samples // plan.training.batch_size)


def _share(plan: Blueprint, silos: int) -> float:
    """Of the silos that train in a round."""
    rule, value = participation_rule(plan.training.participation)
    return {"all": 1.0, "count": min(1.0, value / silos)}.get(rule, value)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.2g} s"
