"""MOON (Li et al., CVPR 2021). Differs from FedAvg by drawing features to the received model's, away from the past."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.messages import Message
from fairsilo.core.output import Output, aligned
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.fields import around, between, setting
from fairsilo.methods.contrasts import contrast


@dataclass(frozen=True)
class ModelContrast(Part):
    """CE + mu mean_b -log(e^(cos(z,z_g)/T) / (e^(cos(z,z_g)/T) + e^(cos(z,z_p)/T))); z_g and z_p carry no gradient."""

    name = "model-contrast"
    about = About(
        paper="Li, He and Song, Model-Contrastive Federated Learning, CVPR 2021",
        formula="CE + mu mean_b -log(exp(cos(z, z_g)/T) / (exp(cos(z, z_g)/T) + exp(cos(z, z_p)/T)))",
        keeps=("its local model of the round before at the silo",),
    )
    needs = frozenset({"features", "trained-alignment"})

    mu: float = setting(1.0, "weight of the contrast", low=0, search=around(10))
    temperature: float = setting(0.5, "of the contrast", low=0, open_low=True, search=between(0.1, 1))

    def begin(self, silo: Silo) -> None:
        previous = silo.memory.of(self).get("previous")
        silo.hold(f"{self.name}.previous", silo.untrained() if previous is None else previous)

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        received = aligned(silo.reference(batch.inputs, silo.start))
        previous = aligned(silo.reference(batch.inputs, silo.scratch[f"{self.name}.previous"]))
        return loss + self.mu * contrast(aligned(output), received, previous, self.temperature)

    def finish(self, silo: Silo, update: Message) -> None:
        silo.memory.of(self)["previous"] = silo.model.read()
