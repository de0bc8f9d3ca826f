"""TERM (Li et al., ICLR 2021). Differs from FedAvg by weights that grow exponentially with a silo's loss.

`official` follows the released federated code: coefficients e_i/(est M) with an estimate that starts at 0, so that
the first round takes a doubled step and every step is shrunk by a further 1/M.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About
from fairsilo.core.server import Server, Updates
from fairsilo.fields import decades, setting
from fairsilo.methods.loss_weights import tilted
from fairsilo.methods.received_loss import RECEIVED_LOSS, ReportsReceivedLoss, received_losses


@dataclass(frozen=True)
class TiltedWeights(ReportsReceivedLoss):
    """Weights proportional to p_i exp(t (l_i - max_j l_j)); t = 0 is FedAvg."""

    name = "tilted-weights"
    about = About(
        paper="Li et al., Tilted Empirical Risk Minimization, ICLR 2021",
        formula="weight_i = p_i exp(t l_i) / sum_j p_j exp(t l_j)",
        sends=(RECEIVED_LOSS, EACH_UPDATE),
        keeps=("with `official`, a running estimate at the server",),
    )
    does = frozenset({"decides-weights"})

    t: float = setting(0.1, "tilt: positive favours high losses, negative low ones", search=decades(0.01, 10))
    official: bool = setting(False, "the released code's coefficients, which do not sum to 1")

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        losses = received_losses(updates)
        if not self.official:
            return tilted(weights, losses, self.t)
        tilt = (self.t * (losses - losses.max())).exp()
        memory = server.memory.of(self)
        memory["estimate"] = memory.get("estimate", 0.0) / 2 + float(tilt.mean()) / 2
        coefficients: Tensor = tilt / (memory["estimate"] * len(updates))
        return coefficients / len(updates)
