"""FedCLIP (Lu et al., IEEE Data Eng. Bull. 2023). A model adaptation: CLIP is frozen, a small adapter that weighs its
image features is trained and sent; it trains by telling images and class prompts of a batch apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.config import TrainSettings, setting
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vectors import Layout
from fairsilo.errors import FairsiloError
from fairsilo.methods.clips import require_clip
from fairsilo.models.backbones import ClipNetwork, similarities
from fairsilo.models.networks import Staged


def attention(width: int, hidden: int) -> nn.Sequential:
    """softmax(W1 tanh(W2 f + b2) + b1): a weight for each entry of a feature."""
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, width), nn.Softmax(dim=1))


class AdaptedClip(Staged):
    """Frozen image features, weighed by the adapter; classes by their prompts' cosine."""

    def __init__(self, clip: ClipNetwork, texts: Tensor, hidden: int) -> None:
        super().__init__()
        self.clip, self.features_width = clip, clip.width
        self.adapter = attention(clip.width, hidden)
        self.register_buffer("texts", texts, persistent=False)

    def stem(self, inputs: Tensor) -> Tensor:
        return self.clip.images(inputs)

    def tail(self, stemmed: Tensor) -> Output:
        features = self.adapter(stemmed) * stemmed
        return Output(similarities(features, self.get_buffer("texts"), self.clip.scale), features)


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
        if self.clip_loss == "contrastive" and training.batch_size < 2:
            raise FairsiloError(
                f"{self.name} tells the images of a batch apart, and train.batch_size is 1; give 2 at least, or "
                "clip_loss=classes"
            )

    def criterion(self, silo: Silo, output: Output, batch: Batch) -> Tensor:
        if self.clip_loss == "classes":
            return silo.task.loss(output.prediction, batch.targets)
        return contrastive(output.prediction, batch.targets)


def contrastive(prediction: Tensor, targets: Tensor) -> Tensor:
    """Each image against the prompts of the batch and each prompt against its images; the pairs are the diagonal, so
    that two samples of one class count as negatives of each other, as released."""
    logits = prediction[:, targets]
    diagonal = torch.arange(len(targets), device=targets.device)
    return (F.cross_entropy(logits, diagonal) + F.cross_entropy(logits.T, diagonal)) / 2
