"""GRACE's server half (Zhang et al., MICCAI 2023). Differs from FedAvg by weights that favour silos whose
update agrees with the others'.

As the paper prints it, an update's agreement with itself counts (`include_diagonal`); the released code leaves it out.
Without it mean cosines fall to about 0 after a few rounds, one turns negative, and its silo is left with next to no
weight.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.fields import around, setting
from fairsilo.methods.geometry import agreement_weights, likeness


@dataclass(frozen=True)
class GradientAgreement(Part):
    """Weights proportional to p_i times the mean cosine of update i to all; shifted where one is negative."""

    name = "gradient-agreement"
    about = About(
        paper="Zhang et al., GRACE: A Generalized and Personalized Federated Learning Method, MICCAI 2023",
        formula="s_i = mean_j cos(D_i, D_j);  weight_i = s_i p_i / sum_j s_j p_j;  W <- W + lr sum_i weight_i D_i",
        sends=(EACH_UPDATE,),
    )
    needs = frozenset({"shared-tensors"})
    does = frozenset({"decides-weights"})

    server_lr: float = setting(1.0, "step of the server", low=0, open_low=True, search=around(3))
    include_diagonal: bool = setting(True, "count each update's agreement with itself, as the paper prints it")
    granularity: str = setting(
        "total",
        "cosines of whole updates, their mean over tensors, or that mean with weights falling from the first tensor "
        "to 0 at the last",
        choices=("total", "tensors", "depth"),
    )

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        return agreement_weights(likeness(updates, self.granularity), weights, self.include_diagonal)

    def step(self, server: Server, direction: Tensor) -> Tensor:
        direction[: server.silo_layout.shared] *= self.server_lr
        return direction
