"""FedProx (Li et al., MLSys 2020). Differs from FedAvg by a pull of the local model towards the received one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.fields import around, setting


@dataclass(frozen=True)
class Proximal(Part):
    """L_i(w) + (mu/2) ||w - W||^2; the pull is in the gradient before momentum acts on it."""

    name = "proximal"
    about = About(
        paper="Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020",
        formula="L_i(w) + (mu/2) ||w - W||^2",
    )

    mu: float = setting(0.01, "strength of the pull", low=0, search=around(100))

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        away = silo.parameters - silo.start_parameters
        return loss + 0.5 * self.mu * away.square().sum()
