"""FedDyn (Acar et al., ICLR 2021). Differs from FedAvg by a linear term that remembers each silo's past pulls.

Silo and server each carry a correction, so that the silos' optima move towards the federation's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import WIRE, Sends
from fairsilo.core.messages import MODEL, Message
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server
from fairsilo.core.silo import Batch, Silo
from fairsilo.fields import around, setting
from fairsilo.methods.newcomers import keep_mean, kept_mean


@dataclass(frozen=True)
class DynamicRegularizer(Part):
    """L_i(w) - <g_i, w> + (alpha/2) ||w - W||^2; W <- mean_i w_i - h/alpha. With alpha 0 it is FedAvg."""

    name = "dynamic-regularizer"
    about = About(
        paper="Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021",
        formula="g_i <- g_i - alpha (w_i - W);  h <- h - (alpha/N) sum_i (w_i - W);  W <- mean_i w_i - h/alpha",
        sends=(Sends(MODEL, shape=WIRE, per="sum"),),
        keeps=("its correction g_i at the silo", "the correction h at the server"),
    )
    needs = frozenset({"shared-tensors"})

    alpha: float = setting(0.1, "strength of the regulariser; 0 switches it off", low=0, search=around(10))

    @property
    def weighting(self) -> str:
        return "uniform" if self.alpha else ""

    def begin(self, silo: Silo) -> None:
        own = silo.memory.of(self).get("correction")
        zero = torch.zeros_like(silo.start[: silo.model.layout.shared])
        silo.hold(f"{self.name}.correction", zero if own is None else own)

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        correction = silo.scratch[f"{self.name}.correction"]
        here = silo.parameters[: len(correction)]  # tensors a silo keeps have no federation to be drawn to
        away = here - silo.start[: len(correction)]
        penalty: Tensor = 0.5 * self.alpha * away.square().sum() - (correction * here).sum()
        return loss + penalty

    def finish(self, silo: Silo, update: Message) -> None:
        correction = silo.scratch[f"{self.name}.correction"]
        away = (silo.parameters.detach() - silo.start_parameters)[: len(correction)]
        silo.memory.of(self)["correction"] = correction - self.alpha * away

    def step(self, server: Server, direction: Tensor) -> Tensor:
        if not self.alpha:
            return direction
        moved = server.received[MODEL][: server.silo_layout.shared] / len(server.names)
        kept = kept_mean(server, self, "correction")
        correction = (torch.zeros_like(moved) if kept is None else kept) - self.alpha * moved
        keep_mean(server, self, "correction", correction)
        direction[: len(moved)] -= correction / self.alpha
        return direction
