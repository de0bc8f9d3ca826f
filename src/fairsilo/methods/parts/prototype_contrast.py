"""FedProc (Mu et al., FGCS 2023). Differs from FedAvg by drawing features to their class's global prototype, at first
with all the weight, in the last round with none."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.local import task_loss
from fairsilo.core.output import Output, vectors_in
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.fields import around, setting
from fairsilo.methods.contrasts import prototype_contrast
from fairsilo.methods.parts.prototypes import PROTOTYPES


@dataclass(frozen=True)
class PrototypeContrast(Part):
    """alpha_t InfoNCE + (1 - alpha_t) CE with alpha_t = 1 - t/(R-1); CE alone while there are no prototypes."""

    name = "prototype-contrast"
    about = About(
        paper="Mu et al., FedProc: Prototypical Contrastive Federated Learning on Non-IID Data, FGCS 2023",
        formula="alpha_t mean_b -log(exp(cos(z, P_y)/T) / sum_c exp(cos(z, P_c)/T)) + (1 - alpha_t) CE",
    )
    needs = frozenset({"one-class", "trained-features", "part:prototypes"})

    temperature: float = setting(1.0, "of the contrast", low=0, open_low=True, search=around(10))

    def begin(self, silo: Silo) -> None:
        share = 1 - (silo.round - 1) / (silo.rounds - 1) if silo.rounds > 1 else 1.0
        silo.hold(f"{self.name}.share", torch.tensor(share, dtype=silo.model.layout.dtype))

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        if silo.scratch[PROTOTYPES] is None:
            return loss
        means, known = silo.scratch[PROTOTYPES]
        share: Tensor = silo.scratch[f"{self.name}.share"]
        near = prototype_contrast(vectors_in(output), batch.targets, means, known, self.temperature)
        plain = task_loss(silo, output, batch)
        return loss + share * (near - plain)  # whatever other parts added stays as it was
