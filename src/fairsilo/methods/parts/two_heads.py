"""FedRoD (Chen and Chao, ICLR 2022). Differs from FedAvg by two heads: a shared one, trained as if all classes were
equally frequent, and a private one on top of it, trained on the silo's own frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vectors import AUXILIARY
from fairsilo.fields import setting
from fairsilo.methods.heads import second_head, shifted


@dataclass(frozen=True)
class TwoHeads(Part):
    """Balanced softmax of the shared head plus cross-entropy of both heads' sum; the silo's own model is that sum."""

    name = "two-heads"
    about = About(
        paper=(
            "Chen and Chao, On Bridging Generic and Personalized Federated Learning for Image Classification, ICLR 2022"
        ),
        formula="CE(c_g(z) + log n_i, y) + CE(stop(c_g(z)) + c_p(stop(z)), y)",
        keeps=("its second head at the silo",),
        results="personal",
    )
    needs = frozenset({"class-predictions", "features"})

    stop_gradient: bool = setting(True, "the second head's loss trains that head alone; GRACE's comparison: all of it")

    def modules(self, network: nn.Module) -> dict[str, nn.Module]:
        return {"head": second_head(self.name, network)}

    def begin(self, silo: Silo) -> None:
        """How many samples, or pixels, of each class the silo trains on."""
        labels = silo.data.train.targets.flatten().long()
        silo.hold(f"{self.name}.counts", torch.bincount(labels, minlength=silo.task.classes))

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        shared, features = output.prediction, output.features
        assert features is not None
        balanced = shifted(shared, silo.scratch[f"{self.name}.counts"])
        # what stands there is the plain loss of the shared head: the balanced one takes its place
        loss = loss - silo.task.loss(shared, batch.targets) + silo.task.loss(balanced, batch.targets)
        if self.stop_gradient:
            shared, features = shared.detach(), features.detach()
        own = silo.model.module.get_submodule(f"{AUXILIARY}.{self.name}.head")
        return loss + silo.task.loss(shared + own(features), batch.targets)

    def personal(self, silo: Silo, vector: Tensor) -> Tensor:
        """Both heads are linear over the same features, so their sum is one head."""
        views = silo.model.layout.views(vector := vector.clone())
        for name in ("weight", "bias"):
            if f"head.{name}" in views:
                views[f"head.{name}"] += views[f"{AUXILIARY}.{self.name}.head.{name}"]
        return vector
