"""How the gap of a silo answers to its aggregation weight (FFT-GP, Fig. 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from torch import Tensor

from fairsilo.analysis.diagnostics.aggregation import CarriedWeights, LocalModels, Probes, probe, replayed
from fairsilo.analysis.diagnostics.replay import Numbers, Replay, Row, kept_round, mean_of, measured


@dataclass(frozen=True)
class Change:
    """What a change of a silo's weight did to its gap, the local models being the same."""

    round: int
    silo: str
    weight_change: float
    gap_change: float


@dataclass(frozen=True)
class Trend:
    """The least-squares line and Pearson's coefficient; None where the data are constant."""

    slope: float | None
    intercept: float | None
    pearson: float | None


@dataclass(frozen=True)
class WeightGap:
    changes: tuple[Change, ...]
    by_silo: dict[str, Trend]
    overall: Trend

    def rows(self) -> list[Row]:
        return [
            asdict(item)
            | {"slope_of_silo": self.by_silo[item.silo].slope, "pearson_of_silo": self.by_silo[item.silo].pearson}
            | {"slope_of_all": self.overall.slope, "pearson_of_all": self.overall.pearson}
            for item in self.changes
        ]

    def numbers(self) -> Numbers:
        """Slope and Pearson's coefficient, each a mean over the silos."""
        trends = self.by_silo.values()
        return measured(
            {"slope": mean_of(one.slope for one in trends), "pearson": mean_of(one.pearson for one in trends)}
        )


def trend(across: Sequence[float], up: Sequence[float]) -> Trend:
    """The line `up` = slope `across` + intercept of least squares, and how well the points keep to it."""
    x, y = np.asarray(across, dtype=float), np.asarray(up, dtype=float)
    if _constant(x):
        return Trend(None, None, None)
    x_off, y_off = x - x.mean(), y - y.mean()
    slope = float(x_off @ y_off / (x_off @ x_off))
    pearson = None if _constant(y) else float(x_off @ y_off / math.sqrt((x_off @ x_off) * (y_off @ y_off)))
    return Trend(slope, float(y.mean() - slope * x.mean()), pearson)


def _constant(values: np.ndarray) -> bool:
    """Whether values differ by no more than rounding."""
    return len(values) < 2 or float(np.ptp(values)) <= 1e-12 * float(np.abs(values).max())


def weight_gap(
    replay: Replay, step_size: float = 0.2, sweep: int = 0, rounds: Sequence[int] | None = None
) -> WeightGap:
    """How the gap of a silo answers to its weight: the line FAA relies on (FFT-GP's Fig. 2).

    Per round and silo a'_i - a_i and G'_i - G_i, from the two probes FAA makes: at its carried weights a and at GA's
    perturbation a' of them. There all weights move at once, so a gap also answers to the others'. With `sweep` one
    weight moves at a time, as the paper describes it: in that many steps up to d_r / M and as many down, the other
    weights scaled to make room; 2 M `sweep` losses a round. `rounds` says which rounds give points, by default all;
    slopes of early and late rounds differ. The slope is that of the gap against the weight, so K of equation 11 is
    -1 / slope.
    """
    for number in rounds or ():
        kept_round(replay, number)
    carried = CarriedWeights(replay.silos)
    changes: list[Change] = []
    for found in replayed(replay):
        step = found.step(step_size)
        probes = probe(found, carried.of(found.silos), step)
        carried.carry(found.silos, probes.solved)
        if rounds is None or found.number in rounds:
            changes += _one_by_one(found, probes, step, sweep) if sweep else _together(found, probes)
    by_silo = {silo: _trend_of([item for item in changes if item.silo == silo]) for silo in replay.silos}
    return WeightGap(tuple(changes), by_silo, _trend_of(changes))


def _trend_of(changes: Sequence[Change]) -> Trend:
    return trend([item.weight_change for item in changes], [item.gap_change for item in changes])


def _together(found: LocalModels, probes: Probes) -> list[Change]:
    weights, gaps = probes.perturbed - probes.weights, probes.perturbed_gaps - probes.gaps
    pairs = zip(found.silos, weights.tolist(), gaps.tolist(), strict=True)
    return [Change(found.number, silo, weight, change) for silo, weight, change in pairs]


def _one_by_one(found: LocalModels, probes: Probes, step: float, sweep: int) -> list[Change]:
    changes = []
    largest = step / len(found.silos)
    for place, silo in enumerate(found.silos):
        before = float(probes.weights[place])
        for part in (part for part in range(-sweep, sweep + 1) if part):
            value = min(max(before + largest * part / sweep, 0.0), 1.0)
            if value == before or before == 1:  # nowhere to go, or nobody to give to
                continue
            change = found.gap_of(place, _with_weight(probes.weights, place, value)) - float(probes.gaps[place])
            changes.append(Change(found.number, silo, value - before, change))
    return changes


def _with_weight(weights: Tensor, place: int, value: float) -> Tensor:
    """One weight set, the others scaled so that all sum to 1."""
    moved = weights * (1 - value) / (1 - weights[place])
    moved[place] = value
    return moved
