"""SCAFFOLD (Karimireddy et al., ICML 2020). Differs from FedAvg by control variates that cancel the silos' drift.

The client control follows option II, (W - w_i) / (K eta). With momentum K eta becomes the total length of the K
steps' geometric sums; with Adam the control is the mean raw gradient of the local steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.config import setting
from fairsilo.messages import Message
from fairsilo.part import Part
from fairsilo.server import Server, Updates
from fairsilo.silo import Silo


@dataclass(frozen=True)
class ControlVariates(Part):
    """Every local gradient becomes g - c_i + c; the controls follow the gradients of the round."""

    name = "control-variates"
    paper = "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020"
    formula = "w <- w - eta (g - c_i + c);  c_i+ = c_i - c + (W - w_i)/(K eta);  c <- c + sum_i (c_i+ - c_i)/N"
    sends = ("the change of its control variate (a mean gradient), as large as the model",)
    keeps = ("control variate c_i at the silo", "control variate c at the server")

    server_lr: float = setting(1.0, "server's step on the mean update", low=0, open_low=True)
    shares: str = setting("uniform", "silos' shares in the mean update", choices=("uniform", "samples"))

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        message.tensors[f"{self.name}.control"] = self._server_control(server)
        return message

    def begin(self, silo: Silo) -> None:
        control = silo.message.tensors[f"{self.name}.control"]
        own = silo.memory.of(self).get("control")
        silo.scratch["correction"] = control.clone() if own is None else control - own
        if silo.training.optimizer != "sgd":
            silo.scratch["gradient_sum"] = torch.zeros_like(control)

    def gradients(self, silo: Silo) -> None:
        if "gradient_sum" in silo.scratch:
            silo.scratch["gradient_sum"] += silo.model.gradients
        silo.model.gradients += silo.scratch["correction"]

    def finish(self, silo: Silo, update: Message) -> None:
        own = silo.memory.of(self).get("control")
        if "gradient_sum" in silo.scratch:
            fresh = silo.scratch["gradient_sum"] / silo.steps
        else:
            length = silo.training.lr * step_count(silo.steps, silo.training.momentum)
            moved = (silo.start_parameters - silo.parameters.detach()) / length
            fresh = moved - silo.scratch["correction"]
        silo.memory.of(self)["control"] = fresh
        update.tensors[f"{self.name}.change"] = fresh if own is None else fresh - own

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        return torch.full_like(weights, 1 / len(updates)) if self.shares == "uniform" else weights

    def step(self, server: Server, updates: Updates, direction: Tensor) -> Tensor:
        changes = sum(message.tensors[f"{self.name}.change"] for message in updates.messages)
        server.memory.of(self)["control"] = self._server_control(server) + changes / len(server.names)
        parameters = server.layout.parameters
        direction[:parameters] *= self.server_lr
        return direction

    def _server_control(self, server: Server) -> Tensor:
        kept = server.memory.of(self).get("control")
        return kept if kept is not None else torch.zeros_like(server.vector[: server.layout.parameters])


def step_count(steps: int, momentum: float) -> float:
    """How many plain steps K steps with momentum amount to: sum over k of (1 - rho^k)/(1 - rho)."""
    if momentum == 0:
        return float(steps)
    if momentum == 1:
        return steps * (steps + 1) / 2
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
