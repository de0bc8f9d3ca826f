"""FedFV (Wang et al., IJCAI 2021). Differs from FedAvg by projecting conflicting updates off one another.

Everything happens in the span of the updates: with their inner products known, each projected gradient is a row of
coefficients, and the model moves by one weighted mean. `tau` > 1 also looks at silos that last took part earlier.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About
from fairsilo.core.server import Server, Updates
from fairsilo.core.vectors import gram, weighted_mean
from fairsilo.fields import between, setting
from fairsilo.methods.geometry import fair_coefficients
from fairsilo.methods.received_loss import RECEIVED_LOSS, ReportsReceivedLoss, received_losses


@dataclass(frozen=True)
class ConflictProjection(ReportsReceivedLoss):
    """In order of loss, each update loses what points against another; the mean keeps the plain mean's length."""

    name = "conflict-projection"
    about = About(
        paper="Wang et al., Federated Learning with Fair Averaging, IJCAI 2021",
        formula="g_i <- g_i - g_j <g_j, g_i>/||g_j||^2 where <g_j, g_i> < 0;  W <- W - mean_i g_i, rescaled",
        sends=(RECEIVED_LOSS, EACH_UPDATE),
        keeps=("the last updates of the silos of the last tau rounds at the server",),
    )
    needs = frozenset({"shared-tensors"})
    does = frozenset({"ignores-weights"})

    alpha: float = setting(0.1, "share of silos, highest losses, not changed", low=0, high=1, search=between(0, 1))
    tau: int = setting(1, "rounds that are searched for conflicts, this one included", low=0)

    def collect(self, server: Server, updates: Updates) -> Updates:
        if self.tau > 1:
            kept = {
                name: {"round": server.round, "change": change.clone()}
                for name, change in zip(updates.silos, updates.parameters, strict=True)
            }
            old = server.memory.of(self).get("last", {})
            recent = {name: item for name, item in old.items() if item["round"] > server.round - self.tau}
            server.memory.of(self)["last"] = {**recent, **kept}
        return updates

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        direction = updates.mean(torch.full_like(weights, 1 / len(updates)))
        earlier = {n: old for n, old in server.memory.of(self).get("last", {}).items() if n not in updates.silos}
        rows = updates.parameters
        if earlier:
            rows = torch.cat([rows, torch.stack([old["change"] for old in earlier.values()])])
        sampled = [server.round] * len(updates) + [int(old["round"]) for old in earlier.values()]
        losses = received_losses(updates)
        coefficients = fair_coefficients(gram(rows).cpu(), losses, sampled, server.round, self.alpha, self.tau)
        direction[: updates.layout.shared] = weighted_mean(rows, coefficients)
        return direction
