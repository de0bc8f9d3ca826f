"""FedAvgM, FedAdam, FedYogi (Hsu et al., 2019; Reddi et al., ICLR 2021). Differ from FedAvg by an optimiser on the
server, for which the mean update is the gradient. Statistics of BatchNorm take the plain mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.part import About, Part
from fairsilo.core.server import Server
from fairsilo.fields import around, between, setting
from fairsilo.methods.steps import second_moment


@dataclass(frozen=True)
class ServerOptimizer(Part):
    """m <- b1 m + (1-b1) D; v as Adam or Yogi has it; W <- W + lr m / (sqrt(v) + tau). Momentum: m <- b1 m + D."""

    name = "server-optimizer"
    about = About(
        paper="Reddi et al., Adaptive Federated Optimization, ICLR 2021",
        formula="m <- b1 m + (1-b1) D;  v <- b2 v + (1-b2) D^2 (Adam);  W <- W + lr m / (sqrt(v) + tau)",
        keeps=("moments of the mean update at the server",),
    )
    needs = frozenset({"shared-tensors"})

    rule: str = setting("adam", "how the mean update is used", choices=("momentum", "adam", "yogi"))
    server_lr: float = setting(0.01, "step of the server", low=0, open_low=True, search=around(10))
    beta1: float = setting(0.9, "of the first moment", low=0, high=0.9999, search=between(0, 0.99))
    beta2: float = setting(0.99, "of the second moment", low=0, high=0.9999)
    tau: float = setting(1e-3, "added to the root of that moment", low=0, open_low=True, search=around(10))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule == "momentum":
            self.refuse_idle("rule=momentum", "beta2", "tau")

    def step(self, server: Server, direction: Tensor) -> Tensor:
        memory = server.memory.of(self)
        change = direction[: server.silo_layout.shared]
        first = memory.get("first", torch.zeros_like(change))
        if self.rule == "momentum":
            first = self.beta1 * first + change
            moved = self.server_lr * first
        else:
            first = self.beta1 * first + (1 - self.beta1) * change
            second = memory.get("second", torch.full_like(change, self.tau**2))
            memory["second"] = second = second_moment(second, change.square(), self.beta2, self.rule)
            moved = self.server_lr * first / (second.sqrt() + self.tau)
        memory["first"] = first
        return torch.cat([moved, direction[len(change) :]])
