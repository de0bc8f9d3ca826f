"""FedMTL as GRACE compares with it. Differs from FedAvg by models that stay with their silos; the mean of them serves
only newcomers and unseen silos.

The regulariser of the released code carries no gradient there, so that it is plain local training; with `regularizer`
it is what was meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE, PARAMETERS, Sends
from fairsilo.core.messages import Message
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vectors import AVERAGED, Slot
from fairsilo.fields import setting

OTHERS = "with regularizer: to each silo the sum of the others' models"


@dataclass(frozen=True)
class MultiTask(Part):
    """L_i(w_i) + 10^-f (||w_i||^2 + (1 - 1/M)^2 ||sum_j w_j||^2), f = floor(log10(size) + 1) + 1."""

    name = "multi-task"
    about = About(
        paper="Smith et al., Federated Multi-Task Learning, as in GRACE's comparison, NeurIPS 2017",
        formula="w_i <- w_i - eta grad (L_i(w_i) [+ 10^-f (||w_i||^2 + (1 - 1/M)^2 ||sum_j w_j||^2)])",
        sends=(Sends("multi-task.others", OTHERS, PARAMETERS, to="silos"), EACH_UPDATE),
        keeps=("its model at the silo", "with regularizer: every silo's last model at the server"),
        results="personal",
    )

    regularizer: bool = setting(False, "the term as it was meant; without, local training as released")

    @property
    def sends(self) -> tuple[Sends, ...]:
        return self.about.sends if self.regularizer else ()

    def kind(self, slot: Slot) -> str:
        return AVERAGED

    def prepare(self, server: Server) -> None:
        if self.regularizer:  # who has not trained yet has the initial model
            initial = server.vector[: server.layout.parameters].clone()
            server.memory.of(self)["models"] = dict.fromkeys(server.names, initial)

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        if self.regularizer:
            models = server.memory.of(self)["models"]
            key = f"{self.name}.sum"
            if key not in server.facts:
                server.facts[key] = torch.stack([models[name] for name in sorted(models)]).sum(0)
            own = models.get(silo, 0.0)  # a newcomer has none among them
            message.tensors[f"{self.name}.others"] = server.facts[key] - own
            message.numbers[f"{self.name}.silos"] = len(server.names)
        return message

    def begin(self, silo: Silo) -> None:
        if self.regularizer:
            silo.hold(f"{self.name}.others", silo.message.tensors[f"{self.name}.others"])

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        if not self.regularizer:
            return loss
        others: Tensor = silo.scratch[f"{self.name}.others"]
        own = silo.parameters[: len(others)]  # without what parts train beside the network
        omega = 1 - 1 / int(silo.message.numbers[f"{self.name}.silos"])
        scale = 10.0 ** -(math.floor(math.log10(len(own)) + 1) + 1)
        return loss + scale * (own.square().sum() + omega**2 * (own + others).square().sum())

    def collect(self, server: Server, updates: Updates) -> Updates:
        if self.regularizer:
            models = dict(server.memory.of(self)["models"])
            for name, delta in zip(updates.silos, updates.deltas, strict=True):
                models[name] = (server.vector + delta)[: updates.layout.parameters]
            server.memory.of(self)["models"] = models
        return updates
