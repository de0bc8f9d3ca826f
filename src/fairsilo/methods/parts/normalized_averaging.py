"""FedNova (Wang et al., NeurIPS 2020). Differs from FedAvg by dividing each update by the length of its local path.

So a silo that took more steps does not pull the model further. With momentum, or FedProx's pull, the length is that of
the steps' own recursion.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import EACH_UPDATE, Sends
from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.rates import require_one_rate
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import Layout, weighted_mean
from fairsilo.errors import FairsiloError
from fairsilo.methods.parts.proximal import Proximal
from fairsilo.methods.steps import nova_coefficients, path_length


@dataclass(frozen=True)
class NormalizedAveraging(Part):
    """W <- W + tau_eff sum_i p_i (w_i - W)/a_i with tau_eff = sum_i p_i a_i."""

    name = "normalized-averaging"
    about = About(
        paper="Wang et al., Tackling the Objective Inconsistency Problem in Federated Optimization, NeurIPS 2020",
        formula="d_i = (W - w_i)/a_i;  tau_eff = sum_i p_i a_i;  W <- W - tau_eff sum_i p_i d_i",
        sends=(Sends("normalized-averaging.length", "the length of its local path (one number)"), EACH_UPDATE),
    )
    needs = frozenset({"even-steps", "shared-tensors"})

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_one_rate(self.name, training, "measures a silo's path in units of the learning rate")
        if training.optimizer != "sgd":
            raise FairsiloError(f"{self.name} divides by the length of SGD's path; train.optimizer must be sgd")
        if training.keep_optimizer_state and training.momentum:
            raise FairsiloError(
                f"{self.name} cannot measure a path begun with momentum; keep_optimizer_state must be false"
            )

    def finish(self, silo: Silo, update: Message) -> None:
        mu = sum(part.mu for part in silo.method.parts if isinstance(part, Proximal))
        training = silo.training
        length = path_length(silo.steps, training.momentum, training.lr * mu)
        if length <= 0:
            raise ValueError(f"the local path has length {length:g}: lr times mu is too large")
        update.numbers[f"{self.name}.length"] = length

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        direction = updates.mean(weights)
        coefficients = nova_coefficients(weights, updates.numbers(f"{self.name}.length"))
        direction[: updates.layout.shared] = weighted_mean(updates.parameters, coefficients)
        return direction
