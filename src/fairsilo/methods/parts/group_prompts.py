"""FedGC, the silo half of FedGCR (AAAI 2024). A model adaptation: prompts beside the patches of a frozen ViT, each
shifted by a prompt h that GC-Net makes of the image itself, so that types of silos get customised prompts from one
model. Two contrasts, from the second round on, draw h to the centre of the silo's cluster and features to the received
model's. The prompt of an image never depends on the others of its batch (in the released code it does)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairsilo.core.messages import Message
from fairsilo.core.output import Output, vectors_in
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.fields import around, setting
from fairsilo.methods.clips import require_vit
from fairsilo.methods.contrasts import feature_contrast, group_contrast
from fairsilo.methods.parts.clustering import CLUSTERS
from fairsilo.methods.representations import Known
from fairsilo.models.vit_networks import PROMPT, GroupedVit


@dataclass(frozen=True)
class GroupPrompts(Part):
    """CE + l1 GC + l2 RA: contrasts of h with the clusters' centres, and of z with the received model's features."""

    name = "group-prompts"
    about = About(
        paper="Cheng et al., FedGCR: Federated Learning with Distinct Client Types, AAAI 2024",
        formula=(
            "CE + l1 GC + l2 RA;  GC = -log(e^(s(h, H_own)/T) / (e^(s(h, h_prev)/T) + sum_t e^(s(h, H_t)/T)));  "
            "RA = -log(e^(s(z, z_0)/T) / (e^(s(z, z_0)/T) + e^(s(z, z_prev)/T)))"
        ),
        keeps=("its local model of the round before at the silo",),
    )
    needs = frozenset({"classification", "part:clustering"})

    prompts: int = setting(4, "prompts beside the patches (n)", low=1)
    gc_width: int = setting(4, "hidden width of GC-Net, in widths of the ViT", low=1)
    head: str = setting(
        "linear", "on the features; the paper draws an MLP, the released code is linear", choices=("linear", "mlp")
    )
    head_dropout: float = setting(0.1, "on the features before the head", low=0, high=0.9)
    similarity: str = setting("cosine", "s; the paper's dot product saturates", choices=("cosine", "dot"))
    temperature: float = setting(0.5, "of both contrasts (T)", low=0, open_low=True, search=around(10))
    gc_weight: float = setting(0.5, "of the contrast of prompts (l1)", low=0, search=around(10))
    ra_weight: float = setting(0.1, "of the contrast of features (l2)", low=0, search=around(10))
    variant: str = setting(
        "paper",
        "released: l1 = 0.05 to 0.1 over the rounds, l2 = 0.05 with T = 1; in round 1 CE with and without h",
        choices=("paper", "released"),
    )

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        return GroupedVit(require_vit(self.name, network), self.prompts, self.head_dropout, self.gc_width, self.head)

    def begin(self, silo: Silo) -> None:
        previous = silo.memory.of(self).get("previous")
        if previous is not None:
            silo.hold(f"{self.name}.previous", previous)
        silo.hold(f"{self.name}.progress", torch.tensor(silo.round / silo.rounds, dtype=silo.model.layout.dtype))

    def phase(self, silo: Silo, step: int) -> Hashable:
        return silo.round > 1

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        known, before = silo.scratch.get(CLUSTERS), silo.scratch.get(f"{self.name}.previous")
        if known is None or before is None:  # the silo's first round
            if self.variant == "paper" or silo.round > 1:
                return loss
            module = silo.model.module
            assert isinstance(module, GroupedVit)
            return loss + silo.task.loss(module.uncustomised(batch.inputs), batch.targets)
        received = vectors_in(silo.reference(batch.inputs, silo.start))
        previous = vectors_in(silo.reference(batch.inputs, before))
        return loss + self.terms(output, known, received, previous, silo.scratch[f"{self.name}.progress"])

    def finish(self, silo: Silo, update: Message) -> None:
        silo.memory.of(self)["previous"] = silo.model.read()

    def terms(
        self, output: Output, known: Known, received: Tensor, previous: Tensor, progress: float | Tensor
    ) -> Tensor:
        """l1 GC + l2 RA on a batch; `progress` is the share of the rounds that are over."""
        released = self.variant == "released"
        gc_weight = 0.1 * (0.5 + 0.5 * progress) if released else self.gc_weight
        ra_weight, ra_temperature = (0.05, 1.0) if released else (self.ra_weight, self.temperature)
        groups = group_contrast(output.extra[PROMPT], known, self.temperature, self.similarity)
        features = feature_contrast(vectors_in(output), received, previous, ra_temperature, self.similarity)
        return gc_weight * groups.mean() + ra_weight * features.mean()
