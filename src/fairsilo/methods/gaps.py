"""What GA and FAA share: the reported losses, the carried weights and the warm-up that protects slow silos."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairsilo.core.attachments import Sends
from fairsilo.core.measuring import measure
from fairsilo.core.messages import Message
from fairsilo.core.part import Part
from fairsilo.core.server import Server, Updates, named, ordered
from fairsilo.core.silo import Silo
from fairsilo.errors import FairsiloError
from fairsilo.fields import around, setting
from fairsilo.methods.gap_rules import adjust, gap, step_at
from fairsilo.methods.newcomers import with_newcomers

STALLED = 0.98  # a loss above this share of the one two rounds ago has stopped falling
BELOW_A_GUESS = 0.9  # a loss up to this share of a guess's tells that something was learned

WARMUP = "rounds with the starting weights; auto: until every silo has learned, at most a quarter of the rounds"
WORDS = "loss and accuracy of the received and of its own model on its validation data (four numbers)"
GAPS = tuple(Sends(f"gap.{key}", WORDS) for key in ("received", "own", "received_metric", "own_metric"))


@dataclass(frozen=True)
class FollowsGaps(Part):
    """A part whose weights follow the gaps. Its silos send the losses that gaps are made of.

    The received model is measured when it arrives and reported with the upload, which costs no exchange of its own.
    """

    needs = frozenset({"validation"})
    does = frozenset({"decides-weights"})

    step_size: float = setting(
        0.2, "how far GA's step moves the weight of the largest gap (times 1/M)", low=0, search=around(10)
    )
    schedule: str = setting("released", "of the step size over rounds", choices=("released", "linear", "constant"))
    centred: bool = setting(False, "GA's step subtracts the mean gap first, as the GA paper prints it")
    warmup: str = setting("auto", WARMUP)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup != "auto" and not self.warmup.isdigit():
            raise FairsiloError(f"{self.name}.warmup is {self.warmup!r}; it must be 'auto' or a number of rounds")

    @property
    def measured_on(self) -> str:
        """The split whose losses make the gaps."""
        return "validation"

    def begin(self, silo: Silo) -> None:
        silo.scratch["received"] = measure(silo, self.measured_on)

    def finish(self, silo: Silo, update: Message) -> None:
        received, own = silo.scratch["received"], measure(silo, self.measured_on)
        update.numbers |= {"gap.received": received.loss, "gap.own": own.loss}
        update.numbers |= {"gap.received_metric": received.metric, "gap.own_metric": own.metric}


class GapState:
    """The carried weights of all silos during one round: who may move, and moving some with the rest untouched."""

    def __init__(self, server: Server, updates: Updates, memory: dict[str, Any], metric: str) -> None:
        self.server, self.updates, self.memory = server, updates, memory
        suffix = "_metric" if metric == "accuracy" else ""
        self.metric = metric
        self.received = named(updates.silos, updates.numbers(f"gap.received{suffix}"))
        self.own = named(updates.silos, updates.numbers(f"gap.own{suffix}"))
        self.carried = with_newcomers(memory.get("weights", {}), server.names)

    def previous_gaps(self) -> dict[str, float]:
        """Loss of the model received now minus that of the silo's own model when it last trained."""
        before: dict[str, float] = self.memory.get("own", {})
        known = [name for name in self.updates.silos if name in before]
        return named(known, gap(ordered(known, before), ordered(known, self.received), self.metric))

    def movable(self, warmup: str) -> list[str]:
        """Silos whose weight may change this round.

        With `auto` nothing moves until every silo has learned: before that a small gap only says that the silo has
        learned nothing yet, and taking its weight away would keep it so. A silo has learned when its own model's loss
        is below its mark: half of its loss under the initial model, or half of a guess's (a pretrained model has
        learned before round 1 and need not halve its loss again). Where the loss stops falling before that
        (`STALLED`), the mark is moved up to `BELOW_A_GUESS`. The warm-up ends at the latest after a quarter of the
        rounds; from then on a silo above its mark keeps its weight for that round.
        """
        if warmup != "auto":
            begun = self.server.round > int(warmup)
            return list(self.updates.silos) if begun else []
        own = named(self.updates.silos, self.updates.numbers("gap.own"))
        marks = self._marks(own)
        learned = [name for name in self.updates.silos if own[name] < marks[name]]
        ever: dict[str, bool] = {**self.memory.get("learned", {}), **dict.fromkeys(learned, True)}
        begun_in = self.memory.get("begun")
        if begun_in is None:
            begun_in = self._begin(", ".join(name for name in self.server.names if not ever.get(name)))
        self.memory.update(marks=marks, learned=ever, begun=begun_in)
        return learned if begun_in is not None else []

    def _marks(self, own: dict[str, float]) -> dict[str, float]:
        """The loss below which each silo counts as having learned; remembers the losses of its last two rounds."""
        received = named(self.updates.silos, self.updates.numbers("gap.received"))
        known: dict[str, float] = self.memory.get("marks", {})
        # a late silo never saw the initial model: the others' marks are a guide
        others = sum(known.values()) / len(known) if known else 0.0
        guess = self.server.task.guess if self.server.task else 0.0
        marks = {**{name: max(received[name] / 2, guess / 2, others) for name in own}, **known}
        past: dict[str, list[float]] = dict(self.memory.get("losses", {}))
        for name, loss in own.items():
            before = past.get(name, [])
            stalled = len(before) == 2 and loss > STALLED * before[0]
            if stalled and loss <= BELOW_A_GUESS * guess:
                marks[name] = max(marks[name], math.nextafter(BELOW_A_GUESS * guess, math.inf))
            past[name] = [*before, loss][-2:]
        self.memory["losses"] = past
        return marks

    def _begin(self, waiting: str) -> int | None:
        """This round, where the warm-up ends with it, which is said in the log; `waiting` names who has not learned."""
        number, latest = self.server.round, math.ceil(self.server.rounds / 4)
        if not waiting:
            self.server.note(f"warm-up over in round {number}: every silo has learned, weights begin to move")
            return number
        if number > latest:
            self.server.note(
                f"warm-up over in round {number}, after a quarter of the rounds: weights begin to move, but for silos "
                f"that have not learned yet ({waiting})"
            )
            return number
        if number == self.server.rounds:
            self.server.note("the warm-up took all rounds, so weights stayed as they began (see warmup)")
        return None

    def adjust(self, names: list[str], size: float, schedule: str, centred: bool = False) -> None:
        """GA's step for the silos among `names` whose gap of the round before is known."""
        gaps = self.previous_gaps()
        known = [name for name in names if name in gaps]
        step = step_at(size, schedule, self.server.round - 2, self.server.rounds)
        self.move(known, lambda weights: adjust(weights, ordered(known, gaps), step, centred=centred))

    def of(self, names: list[str]) -> Tensor:
        """The carried weights of some silos, scaled to sum 1 among them."""
        values = ordered(names, self.carried)
        total = values.sum()
        return values / total if total > 0 else torch.full_like(values, 1 / max(len(names), 1))

    def move(self, names: list[str], rule: Callable[[Tensor], Tensor]) -> None:
        """Apply a rule of the simplex to some silos; their total and everybody else's weight stay."""
        total = float(ordered(names, self.carried).sum())
        if total > 0:
            self.carried |= {name: value * total for name, value in named(names, rule(self.of(names))).items()}

    def close(self) -> Tensor:
        """Carry the weights on; returns the participants' share of them."""
        self.memory["weights"] = self.carried
        self.memory["own"] = {**self.memory.get("own", {}), **self.own}
        return self.of(list(self.updates.silos))
