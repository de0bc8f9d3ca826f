"""The local models of a round, the gaps that any aggregation of them leaves, and the weights that FAA finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.analysis.diagnostics.replay import Replay, answered
from fairsilo.core.server import named, ordered
from fairsilo.core.vectors import Layout, weighted_mean
from fairsilo.methods.gap_rules import adjust, equalise, gap, step_at


def aggregate(layout: Layout, models: Sequence[Tensor], weights: Tensor) -> Tensor:
    """sum_i weights_i model_i; counters take the maximum."""
    rows = torch.stack(list(models))
    vector = rows[0].clone()
    vector[: layout.floats] = weighted_mean(rows[:, : layout.floats], weights)
    vector[layout.floats :] = rows[:, layout.floats :].amax(dim=0)
    return vector


class LocalModels:
    """The local models of one round, and the gaps that any aggregation of them leaves."""

    def __init__(self, replay: Replay, number: int) -> None:
        self.replay, self.number = replay, number
        local = answered(replay, number)
        self.silos, self.models = tuple(local), list(local.values())
        self.own = self._losses(self.models)

    def gaps(self, weights: Tensor) -> Tensor:
        """G_i = L_i(sum_j weights_j w_j) - L_i(w_i) on validation data."""
        return gap(self.own, self._losses([self.aggregate(weights)] * len(self.silos)))

    def gap_of(self, place: int, weights: Tensor) -> float:
        loss = self.replay.loss(self.aggregate(weights), self.silos[place], "validation")
        return loss - float(self.own[place])

    def aggregate(self, weights: Tensor) -> Tensor:
        return aggregate(self.replay.layout, self.models, weights)

    def step(self, size: float) -> float:
        return step_at(size, "released", self.number - 1, self.replay.total_rounds)

    def _losses(self, vectors: Sequence[Tensor]) -> Tensor:
        pairs = zip(vectors, self.silos, strict=True)
        return torch.tensor([self.replay.loss(v, silo, "validation") for v, silo in pairs], dtype=torch.float64)


def replayed(replay: Replay) -> Iterator[LocalModels]:
    return (found for found in (LocalModels(replay, number) for number in replay.rounds) if found.silos)


class CarriedWeights:
    """Weights carried from round to round, from 1/M on. Who is absent keeps its weight."""

    def __init__(self, silos: Sequence[str]) -> None:
        self.weights = {silo: 1 / len(silos) for silo in silos}

    def of(self, silos: Sequence[str]) -> Tensor:
        """The weights of some silos, scaled to sum 1 among them."""
        values = ordered(silos, self.weights)
        return values / values.sum() if values.sum() > 0 else torch.full_like(values, 1 / len(silos))

    def carry(self, silos: Sequence[str], shares: Tensor) -> None:
        """New shares among some silos; what they have together stays."""
        self.weights |= named(silos, shares / shares.sum() * ordered(silos, self.weights).sum())


@dataclass(frozen=True)
class Probes:
    """FAA's two probes of a round and the weights it finds from them."""

    weights: Tensor
    gaps: Tensor
    perturbed: Tensor
    perturbed_gaps: Tensor
    solved: Tensor
    note: str


def probe(found: LocalModels, weights: Tensor, step: float) -> Probes:
    gaps = found.gaps(weights)
    perturbed = adjust(weights, gaps, step)
    perturbed_gaps = found.gaps(perturbed)
    answer = equalise(weights, gaps, perturbed, perturbed_gaps)
    note = "clipped to the simplex" if answer.clipped else answer.status.replace("_", " ")
    return Probes(weights, gaps, perturbed, perturbed_gaps, answer.weights / answer.weights.sum(), note)
