"""SCAFFOLD (Karimireddy et al., ICML 2020). Differs from FedAvg by control variates that cancel the silos' drift.

The client control follows option II, (W - w_i) / (K eta). With momentum K eta becomes the total length of the K
steps' geometric sums; with Adam the control is the mean raw gradient of the local steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import PARAMETERS, Sends
from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.rates import require_one_rate
from fairsilo.core.server import Server
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import Layout
from fairsilo.fields import around, setting
from fairsilo.methods.newcomers import keep_mean, kept_mean
from fairsilo.methods.steps import path_length

CHANGE = "the change of its control variate (a mean gradient), as large as the model"
MEAN = "to each silo the mean of the control variates"


@dataclass(frozen=True)
class ControlVariates(Part):
    """Every local gradient becomes g - c_i + c; the controls follow the gradients of the round."""

    name = "control-variates"
    about = About(
        paper="Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020",
        formula="w <- w - eta (g - c_i + c);  c_i+ = c_i - c + (W - w_i)/(K eta);  c <- c + sum_i (c_i+ - c_i)/N",
        sends=(
            Sends("control-variates.change", CHANGE, PARAMETERS, per="sum"),
            Sends("control-variates.control", MEAN, PARAMETERS, to="silos"),
        ),
        keeps=("control variate c_i at the silo", "control variate c at the server"),
    )
    needs = frozenset({"even-steps"})

    server_lr: float = setting(1.0, "server's step on the mean update", low=0, open_low=True, search=around(3))
    shares: str = setting("uniform", "silos' shares in the mean update", choices=("uniform", "samples"))

    @property
    def weighting(self) -> str:
        return self.shares

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_one_rate(self.name, training, "divides a silo's change by the learning rate")

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        message.tensors[f"{self.name}.control"] = self._server_control(server)
        return message

    def begin(self, silo: Silo) -> None:
        control = silo.message.tensors[f"{self.name}.control"]
        own = silo.memory.of(self).get("control")
        silo.hold(f"{self.name}.correction", control if own is None else control - own)
        # where the path's length is unknown (Adam, momentum kept from before), the raw gradients are averaged
        if silo.training.optimizer != "sgd" or silo.training.keep_optimizer_state:
            silo.hold(f"{self.name}.sum", torch.zeros_like(control))

    def gradients(self, silo: Silo) -> None:
        correction = silo.scratch[f"{self.name}.correction"]
        raw = silo.model.gradients[: len(correction)]  # private tensors, last in the vector, have no control
        if f"{self.name}.sum" in silo.scratch:
            silo.scratch[f"{self.name}.sum"] += raw
        raw += correction

    def finish(self, silo: Silo, update: Message) -> None:
        own, correction = silo.memory.of(self).get("control"), silo.scratch[f"{self.name}.correction"]
        if f"{self.name}.sum" in silo.scratch:
            fresh = silo.scratch[f"{self.name}.sum"] / silo.steps
        else:
            length = silo.training.lr * path_length(silo.steps, silo.training.momentum)
            moved = (silo.start_parameters - silo.parameters.detach())[: len(correction)] / length
            fresh = moved - correction
        silo.memory.of(self)["control"] = fresh
        update.tensors[f"{self.name}.change"] = fresh if own is None else fresh - own

    def step(self, server: Server, direction: Tensor) -> Tensor:
        changes = server.received[f"{self.name}.change"]
        keep_mean(server, self, "control", self._server_control(server) + changes / len(server.names))
        direction[: server.silo_layout.shared] *= self.server_lr
        return direction

    def _server_control(self, server: Server) -> Tensor:
        kept = kept_mean(server, self, "control")
        return kept if kept is not None else torch.zeros_like(server.vector[: server.silo_layout.parameters])
