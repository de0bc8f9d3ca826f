"""FedMix (Yoon et al., ICLR 2021). Differs from FedAvg by mixing in averaged samples of all silos.

Before training every silo sends the means of small groups of its inputs and targets; the server hands all of them to
everyone. Locally, mixup with such a mean is approximated to first order, so that nobody mixes with a single sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import Sends
from fairsilo.core.messages import Message
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server
from fairsilo.core.silo import Batch, Silo
from fairsilo.errors import FairsiloError
from fairsilo.fields import around, setting
from fairsilo.methods.mixing import group_means, mixing_terms

MEANS = "once, means of groups of its training samples and of their targets, which go to every silo"


@dataclass(frozen=True)
class MeanMixing(Part):
    """(1-lam) l(f((1-lam)x), y) + lam l(f((1-lam)x), y_mean) + lam <d l1/dx, x_mean>."""

    name = "mean-mixing"
    about = About(
        paper="Yoon et al., FedMix: Approximation of Mixup under Mean Augmented Federated Learning, ICLR 2021",
        formula="l1 = (1-lam) l(f((1-lam)x), y);  l1 + lam l(f((1-lam)x), y_mean) + lam <d l1/dx, x_mean>",
        sends=(
            Sends("inputs", MEANS, ("groups", "input"), "float", exchange="share", topic="means", to="everybody"),
            Sends("labels", MEANS, ("groups", "prediction"), "float", exchange="share", topic="means", to="everybody"),
        ),
        keeps=("the bank of means at the silo and the server",),
    )
    needs = frozenset({"blended-targets", "continuous-inputs", "input-gradients"})

    lam: float = setting(0.05, "share of the mean in the mixture", low=0, high=1, search=around(10))
    group: int = setting(8, "samples that are averaged into one mean; the fewer, the less private", low=2)

    def prepare(self, server: Server) -> None:
        ask = Message({}, {"part": self.name, "topic": "means"})
        means = server.ask("share", dict.fromkeys(server.names, ask))
        if not means:
            raise FairsiloError(f"{self.name}: no silo sent its means, so there is nothing to mix")
        bank = {key: torch.cat([means[name].tensors[key] for name in sorted(means)]) for key in ("inputs", "labels")}
        handed = Message(dict(bank), {"part": self.name, "topic": "bank"})
        delivered = server.ask("share", dict.fromkeys(server.names, handed))
        server.memory.of(self).update(**bank, delivered=dict.fromkeys(delivered, True))

    def share(self, silo: Silo, message: Message) -> Message:
        """Asked with nothing: send the means. Asked with a bank: keep it."""
        if "inputs" in message.tensors:
            silo.memory.of(self).update(message.tensors)
            return Message()
        inputs, labels = group_means(silo, silo.stream(self.name), self.group)
        return Message({"inputs": inputs, "labels": labels})

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        """A silo that missed the bank gets it with the model."""
        memory = server.memory.of(self)
        if silo not in memory["delivered"]:
            message.tensors |= {f"{self.name}.{key}": memory[key] for key in ("inputs", "labels")}
        return message

    def begin(self, silo: Silo) -> None:
        for key in ("inputs", "labels"):
            late = silo.message.tensors.get(f"{self.name}.{key}")
            silo.hold(f"{self.name}.{key}", silo.memory.of(self)[key] if late is None else late)

    def draw(self, silo: Silo, indices: Tensor, stream: torch.Generator) -> dict[str, Tensor]:
        return {"means": torch.randint(len(silo.scratch[f"{self.name}.inputs"]), (len(indices),), generator=stream)}

    def inputs(self, silo: Silo, inputs: Tensor, batch: Batch, training: bool) -> Tensor:
        return ((1 - self.lam) * inputs).requires_grad_(True) if training else inputs

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        bank, drawn = silo.scratch[f"{self.name}.inputs"], batch.extra[f"{self.name}.means"]
        plain = silo.task.loss(output.prediction, batch.targets)
        blended = silo.task.loss(output.prediction, silo.scratch[f"{self.name}.labels"][drawn])
        terms = mixing_terms(plain, blended, batch.inputs, bank[drawn], self.lam)
        return loss - plain + terms[0] + terms[1] + terms[2]  # whatever other parts added stays as it was
