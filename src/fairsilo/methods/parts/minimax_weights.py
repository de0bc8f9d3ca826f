"""AFL (Mohri et al., ICML 2019). Differs from FedAvg by weights that climb towards the silos with the highest loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About
from fairsilo.core.server import Server, Updates, named, ordered
from fairsilo.fields import around, setting
from fairsilo.methods.loss_weights import climb
from fairsilo.methods.newcomers import with_newcomers
from fairsilo.methods.received_loss import RECEIVED_LOSS, ReportsReceivedLoss, received_losses


@dataclass(frozen=True)
class MinimaxWeights(ReportsReceivedLoss):
    """W <- sum_i lambda_i w_i, then lambda <- Proj(lambda + step L(W)); without `carry` this round's climb is used."""

    name = "minimax-weights"
    about = About(
        paper="Mohri, Sivek and Suresh, Agnostic Federated Learning, ICML 2019",
        formula="W <- sum_i lambda_i w_i;  lambda <- Proj_simplex(lambda + step L_i(W))",
        sends=(RECEIVED_LOSS, EACH_UPDATE),
        keeps=("weights lambda at the server",),
    )
    does = frozenset({"decides-weights"})

    step_size: float = setting(0.01, "step of the climb", low=0, search=around(100))
    carry: bool = setting(True, "lambda is carried from round to round; without, it starts anew and is used at once")
    start: str = setting("uniform", "where lambda starts", choices=("uniform", "samples"))
    floor: float = setting(0.0, "entries up to this are raised to it, then all are normalised", low=0, high=1)

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        losses = received_losses(updates)
        first = torch.full_like(weights, 1 / len(updates)) if self.start == "uniform" else weights
        if not self.carry:
            return climb(first, losses, self.step_size, self.floor)
        before = server.memory.of(self).get("lambda")
        kept = with_newcomers(before or {}, server.names)
        if before is None:
            kept |= named(updates.silos, first * len(updates) / len(server.names))
        now = ordered(updates.silos, kept)
        mass = now.sum()  # of those who take part; the others keep theirs
        if mass == 0:
            return first
        climbed = climb(now / mass, losses, self.step_size, self.floor) * mass
        server.memory.of(self)["lambda"] = {**kept, **named(updates.silos, climbed)}
        return now / mass
