"""FedMTL as GRACE compares with it. Differs from FedAvg by models that stay with their silos; the mean of them serves
only newcomers and unseen silos.

The regulariser of the released code carries no gradient there, so that it is plain local training; with `regularizer`
it is what was meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from fairsilo.config import setting
from fairsilo.messages import Message
from fairsilo.models.networks import Output
from fairsilo.part import Part
from fairsilo.server import Server, Updates
from fairsilo.silo import Batch, Silo
from fairsilo.vectors import AVERAGED, Slot


@dataclass(frozen=True)
class MultiTask(Part):
    """L_i(w_i) + 10^-f (||w_i||^2 + (1 - 1/M)^2 ||sum_j w_j||^2), f = floor(log10(size) + 1) + 1."""

    name = "multi-task"
    paper = "Smith et al., Federated Multi-Task Learning, as in GRACE's comparison, NeurIPS 2017"
    formula = "w_i <- w_i - eta grad (L_i(w_i) [+ 10^-f (||w_i||^2 + (1 - 1/M)^2 ||sum_j w_j||^2)])"
    sends = ("with regularizer: to each silo the sum of the others' models",)
    keeps = ("its model at the silo", "with regularizer: every silo's last model at the server")
    about = "personal"

    regularizer: bool = setting(False, "the term as it was meant; without, local training as released")

    def kind(self, slot: Slot) -> str:
        return AVERAGED

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        models = server.memory.of(self).get("models", {})
        others = [model for name, model in sorted(models.items()) if name != silo]
        if others:
            message.tensors[f"{self.name}.others"] = sum(others[1:], others[0])
        if self.regularizer:
            message.numbers[f"{self.name}.silos"] = len(others) + 1
        return message

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        if not self.regularizer:
            return loss
        own, others = silo.parameters, silo.message.tensors.get(f"{self.name}.others")
        omega = 1 - 1 / int(silo.message.numbers[f"{self.name}.silos"])
        total = own if others is None else own + others
        scale = 10.0 ** -(math.floor(math.log10(len(own)) + 1) + 1)
        return loss + scale * (own.square().sum() + omega**2 * total.square().sum())

    def collect(self, server: Server, updates: Updates) -> Updates:
        if self.regularizer:
            models = dict(server.memory.of(self).get("models", {}))
            for name, delta in zip(updates.silos, updates.deltas, strict=True):
                models[name] = (server.vector + delta)[: updates.layout.parameters]
            server.memory.of(self)["models"] = models
        return updates
