"""How unequal the generalisation gaps are (FFT-GP, Fig. 6)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.analysis.diagnostics.aggregation import CarriedWeights, LocalModels, probe, replayed
from fairsilo.analysis.diagnostics.replay import Numbers, Replay, Row, mean_of, measured
from fairsilo.analysis.metrics import variance
from fairsilo.core.server import base_weights, named, ordered
from fairsilo.methods.gap_rules import adjust

RULES = ("FedAvg", "GA", "FAA")


@dataclass(frozen=True)
class RoundGaps:
    """Weights and gaps of one aggregation of a round's local models; `note` says how FAA's equations ended."""

    round: int
    rule: str
    weights: dict[str, float]
    gaps: dict[str, float]
    note: str = ""

    @property
    def variance(self) -> float:
        """The population variance; equation 6 of FFT-GP is 2 M^2 times it."""
        return variance(self.gaps.values())


@dataclass(frozen=True)
class GapVariance:
    found: tuple[RoundGaps, ...]

    def curve(self, rule: str) -> list[tuple[int, float]]:
        return [(item.round, item.variance) for item in self.found if item.rule == rule]

    def rows(self) -> list[Row]:
        return [
            {"round": item.round, "aggregation": item.rule, "silo": silo, "weight": item.weights[silo]}
            | {"generalisation_gap": value, "population_variance_of_gaps": item.variance, "note": item.note}
            for item in self.found
            for silo, value in item.gaps.items()
        ]

    def numbers(self) -> Numbers:
        """The variance of the gaps under each rule, mean over the rounds."""
        return measured({rule.lower(): mean_of(value for _, value in self.curve(rule)) for rule in RULES})


def gap_variance(replay: Replay, step_size: float = 0.2) -> GapVariance:
    """How unequal the gaps are under FedAvg, GA and FAA aggregation of the same local models (FFT-GP's Fig. 6).

    G_i = L_i(aggregate) - L_i(w_i) on validation data. FedAvg weighs by samples; GA and FAA carry weights of their own
    from 1/M on, as their parts do with warmup=0: GA's change acts in the next round, FAA's in the same. The variance
    is the population variance over the silos that answered; equation 6 of FFT-GP prints 2 M^2 times it.
    """
    adjusted, fair = CarriedWeights(replay.silos), CarriedWeights(replay.silos)
    results = []
    for found in replayed(replay):
        shares = base_weights(ordered(found.silos, dict(replay.samples)), "samples")
        results.append(_round_gaps(found, "FedAvg", shares, found.gaps(shares)))

        weights = adjusted.of(found.silos)
        gaps = found.gaps(weights)
        results.append(_round_gaps(found, "GA", weights, gaps))
        adjusted.carry(found.silos, adjust(weights, gaps, found.step(step_size)))

        probes = probe(found, fair.of(found.silos), found.step(step_size))
        results.append(_round_gaps(found, "FAA", probes.solved, found.gaps(probes.solved), probes.note))
        fair.carry(found.silos, probes.solved)
    return GapVariance(tuple(results))


def _round_gaps(found: LocalModels, rule: str, weights: Tensor, gaps: Tensor, note: str = "") -> RoundGaps:
    return RoundGaps(found.number, rule, named(found.silos, weights), named(found.silos, gaps), note)
