"""DP-FedAvg (McMahan et al., ICLR 2018), with the noise at the silo: the server need not be trusted with it. Differs
from FedAvg by updates that are cut to a length and blurred, so that they hardly tell whether a silo took part."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fairsilo.core.messages import MODEL, Message
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Silo
from fairsilo.core.vault import normal
from fairsilo.fields import setting
from fairsilo.methods.accounting import account, epsilon_of_part


@dataclass(frozen=True)
class NoisedUpdates(Part):
    """D_i <- D_i min(1, C / |D_i|) + N(0, (z C)^2)."""

    name = "dp-updates"
    about = About(
        paper="McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018",
        formula="D_i <- D_i min(1, C / |D_i|) + N(0, (z C)^2)",
        sends=(epsilon_of_part("dp-updates"),),
        keeps=("how often it sent an update",),
        protects="all data of a silo together, against any others in their place",
    )
    needs = frozenset({"no-batch-norm"})
    does = frozenset({"private-updates"})

    clip: float = setting(1.0, "C, the largest length of an update", low=0, open_low=True)
    noise: float = setting(1.0, "z, the noise in units of it; 0: none, and no epsilon", low=0)
    delta: float = setting(1e-5, "the probability that epsilon does not hold", low=0, high=1, open_low=True)
    budget: float = setting(0.0, "epsilon beyond which nothing is sent; 0: no bound", low=0, rare="once spent")

    def finish(self, silo: Silo, update: Message) -> None:
        account(self, silo, update, self.noise / 2)  # other data may turn a cut update round: 2 C apart

    def outgoing(self, silo: Silo, update: Message) -> None:
        change = update.tensors[MODEL][: silo.model.layout.wire.floats]
        length = float(torch.linalg.vector_norm(change, dtype=torch.float64))
        change *= min(1.0, self.clip / length) if length else 1.0
        change += self.noise * self.clip * normal(silo.secret(self.name, "noise"), change)
