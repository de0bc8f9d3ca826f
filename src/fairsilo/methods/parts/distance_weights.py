"""FAEL, the weight half of FedHEAL (Chen et al., CVPR 2024). Differs from FedAvg by weights that follow distances.

A silo whose (masked) update is long is far from the global model and gets more weight, with momentum. `released` sums
the norms of the tensors and keeps weights un-normalised between rounds, so that late rounds change them little;
`paper` takes the squared norm of the whole update and normalises every round. Both stand in for the paper's own
objective, that the new model be equally far from all local ones (its eq. 10), which it calls expensive; `solver=exact`
solves that: one pass over the updates, then a quadratic programme with a variable per silo.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates, named, ordered
from fairsilo.core.vectors import gram
from fairsilo.fields import between, setting
from fairsilo.methods.geometry import distances, followed
from fairsilo.methods.simplex import equal_distances


@dataclass(frozen=True)
class DistanceWeights(Part):
    """dp_i <- (1 - beta) dp_i + beta d_i / sum_j d_j; p_i <- p_i + dp_i; normalised. Exact: p of least variance."""

    name = "distance-weights"
    about = About(
        paper="Chen et al., Fair Federated Learning under Domain Skew, CVPR 2024",
        formula="dp_i <- (1 - beta) dp_i + beta d_i / sum_j d_j;  p_i <- p_i + dp_i, normalised",
        sends=(EACH_UPDATE,),
        keeps=("aggregation weight and its momentum per silo (server)",),
    )
    needs = frozenset({"shared-tensors"})
    does = frozenset({"decides-weights"})

    beta: float = setting(0.4, "how fast weights follow the distances; 0: not", low=0, high=1, search=between(0, 1))
    variant: str = setting("released", "as the authors' code or as printed", choices=("released", "paper"))
    solver: str = setting(
        "momentum",
        "weights that follow distances, or those that make distances equal (exact)",
        choices=("momentum", "exact"),
    )
    ridge: float = setting(0.1, "of the exact solver: how strongly weights are drawn to the silos' shares", low=0)
    momentum: float = setting(0.0, "of the exact solver: share of the round before in the weights", low=0, high=0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        idle = ("ridge", "momentum") if self.solver == "momentum" else ("beta",)
        self.refuse_idle(f"solver={self.solver}", *idle)

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        rule = self._exact if self.solver == "exact" else self._follow
        return rule(server, updates, weights)

    def _exact(self, server: Server, updates: Updates, shares: Tensor) -> Tensor:
        """The solution of this round, mixed with the weights of the round before; a newcomer had its share."""
        memory, mask = server.memory.of(self), server.facts.get("mask")
        found = equal_distances(gram(updates.parameters, mask).cpu(), shares, self.ridge)
        kept: dict[str, float] = dict(memory.get("weights", {}))
        if self.momentum and kept:
            before = ordered(updates.silos, named(updates.silos, shares) | kept)
            if before.sum() > 0:
                found = self.momentum * before / before.sum() + (1 - self.momentum) * found
        memory["weights"] = {**kept, **named(updates.silos, found)}
        return found

    def _follow(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        """The momentum rule."""
        memory, released = server.memory.of(self), self.variant == "released"
        kept: dict[str, float] = dict(memory.get("weights", {}))
        momenta: dict[str, float] = dict(memory.get("momenta", {}))
        start = torch.full_like(weights, 1 / len(updates)) if released else weights
        newcomer = sum(kept.values()) / len(kept) if kept else None
        starts = start.tolist() if newcomer is None else [newcomer] * len(updates)
        before = ordered(updates.silos, dict(zip(updates.silos, starts, strict=True)) | kept)
        momentum = ordered(updates.silos, dict.fromkeys(updates.silos, 0.0) | momenta)
        server.facts["distances"] = distance = distances(updates, server.facts.get("mask"), self.variant)
        if released and distance.sum() == 0:
            return before / before.sum()
        after, momentum = followed(before, momentum, distance, self.beta, self.variant)
        memory["weights"] = {**kept, **named(updates.silos, after)}
        memory["momenta"] = {**momenta, **named(updates.silos, momentum)}
        return after / after.sum()
