"""Class prototypes: mean features of each class, averaged over silos. Shared by FedProc and FedProto.

Collected from the features of the last local epoch, while the model is still training; none exist in the first round.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE, Sends
from fairsilo.core.messages import Message
from fairsilo.core.output import Output, vectors_in
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Batch, Silo
from fairsilo.methods.class_means import RunningSums, mean_of_those_with_it

PROTOTYPES = "prototypes"  # what silos got of them: means and which are known, or None
WORDS = "the mean feature of each of its classes and how many samples it has of it"
MEANS = "to each silo the mean of these features over the silos, class by class"


@dataclass(frozen=True)
class Prototypes(Part):
    """P_c = plain mean over the silos that have class c of their mean feature; a class nobody had keeps its old one."""

    name = "prototypes"
    about = About(
        formula="P_c = mean over silos with class c of the mean of h(x) over their samples of c",
        sends=(
            Sends("prototypes.means", WORDS, ("classes", "features"), "float"),
            Sends("prototypes.counts", WORDS, ("classes",), "float"),
            Sends("prototypes.global", MEANS, ("classes", "features"), "float", to="silos"),
            EACH_UPDATE,
        ),
        keeps=("global class prototypes at the server",),
    )
    needs = frozenset({"one-class", "features"})

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        message.tensors |= {f"{self.name}.{key}": value for key, value in server.memory.of(self).items()}
        return message

    def begin(self, silo: Silo) -> None:
        names, given = [f"{self.name}.{key}" for key in ("means", "known")], silo.message.tensors
        silo.scratch[PROTOTYPES] = [silo.hold(name, given[name]) for name in names] if names[0] in given else None
        sums = RunningSums(silo.model, self.name, silo.task.classes)
        silo.scratch |= {f"{self.name}.sums": sums, f"{self.name}.step": -1}

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        if batch.last and silo.scratch[f"{self.name}.step"] != silo.steps:  # once a step, however many passes it takes
            silo.scratch[f"{self.name}.step"] = silo.steps
            silo.scratch[f"{self.name}.sums"].add(vectors_in(output).detach(), batch.targets)
        return loss

    def finish(self, silo: Silo, update: Message) -> None:
        means, counts = silo.scratch[f"{self.name}.sums"].means_and_counts()
        update.tensors |= {f"{self.name}.means": means, f"{self.name}.counts": counts}

    def collect(self, server: Server, updates: Updates) -> Updates:
        means = torch.stack([message.tensors[f"{self.name}.means"] for message in updates.messages])
        has = torch.stack([message.tensors[f"{self.name}.counts"] for message in updates.messages]) > 0
        before = server.memory.of(self)
        mean, known = mean_of_those_with_it(means, has, before.get("means"), before.get("known"))
        before.update(means=mean, known=known)
        return updates
