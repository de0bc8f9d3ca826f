"""FedCLIP (Lu et al., IEEE Data Eng. Bull. 2023). A model adaptation: CLIP is frozen, a small adapter that weighs its
image features is trained and sent; it trains by telling images and class prompts of a batch apart."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vectors import Layout
from fairsilo.fields import setting
from fairsilo.methods.clips import require_clip
from fairsilo.methods.contrasts import contrastive
from fairsilo.methods.requirements import require_two_a_batch
from fairsilo.models.clip_networks import AdaptedClip


@dataclass(frozen=True)
class ImageAdapter(Part):
    """I~ = softmax(W1 tanh(W2 I)) * I; the symmetric contrastive loss of a batch's images and class prompts."""

    name = "image-adapter"
    about = About(
        paper="Lu et al., FedCLIP: Fast Generalization and Personalization for CLIP in Federated Learning, 2023",
        formula=(
            "I~ = softmax(W1 tanh(W2 I + b2) + b1) * I;  min (CE over rows + CE over columns)/2 of s cos(I~_i, T_j)"
        ),
    )
    needs = frozenset({"classification", "features"})

    adapter_width: int = setting(1, "hidden width, in widths of CLIP's features", low=1)
    template: str = setting("a picture of a {}", "the prompt of a class")
    clip_loss: str = setting(
        "contrastive", "against the prompts of the batch, or of all classes", choices=("contrastive", "classes")
    )

    @property
    def weighting(self) -> str:
        return "uniform"

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        clip = require_clip(self.name, network)
        return AdaptedClip(clip, clip.prompts(classes, self.template), self.adapter_width * clip.width)

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        if self.clip_loss == "contrastive":
            require_two_a_batch(self.name, training, "tells the images of a batch apart", "clip_loss=classes")

    def criterion(self, silo: Silo, output: Output, batch: Batch) -> Tensor:
        if self.clip_loss == "classes":
            return silo.task.loss(output.prediction, batch.targets)
        return contrastive(output.prediction, batch.targets)
