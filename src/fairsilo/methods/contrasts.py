"""Contrastive losses: what a feature should be near to, and what it should be told from."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.methods.representations import Known


def group_contrast(prompts: Tensor, known: Known, temperature: float, similarity: str) -> Tensor:
    """Per image: the cross-entropy of telling the own cluster's centre from all others and the silo's own past."""
    against = torch.cat([known.centres, known.previous[None]])
    if similarity == "cosine":
        prompts, against = F.normalize(prompts, dim=1), F.normalize(against, dim=1)
    own = known.own.expand(len(prompts))
    return F.cross_entropy(prompts @ against.T / temperature, own, reduction="none")


def feature_contrast(
    features: Tensor, received: Tensor, previous: Tensor, temperature: float, similarity: str
) -> Tensor:
    """Per image: the cross-entropy of telling the received model's features from the silo's own earlier ones."""
    if similarity == "cosine":
        features, received, previous = (F.normalize(one, dim=1) for one in (features, received, previous))
    return F.softplus((features * (previous - received)).sum(1) / temperature)


def contrastive(prediction: Tensor, targets: Tensor) -> Tensor:
    """Each image against the prompts of the batch and each prompt against its images; the pairs are the diagonal, so
    that two samples of one class count as negatives of each other, as released."""
    logits = prediction[:, targets]
    diagonal = torch.arange(len(targets), device=targets.device)
    return (F.cross_entropy(logits, diagonal) + F.cross_entropy(logits.T, diagonal)) / 2


def prototype_distance(features: Tensor, targets: Tensor, means: Tensor, known: Tensor) -> Tensor:
    aim = torch.where(known[targets][:, None], means[targets], features.detach())
    return (features - aim).square().mean()


def prototype_contrast(features: Tensor, targets: Tensor, means: Tensor, known: Tensor, temperature: float) -> Tensor:
    """InfoNCE over the prototypes that exist; a sample whose class has none adds 0 but still counts in the mean."""
    likeness = F.cosine_similarity(features[:, None], means[None], dim=2) / temperature
    likeness = likeness.masked_fill(~known, float("-inf"))
    usable = known[targets]
    losses = F.cross_entropy(torch.where(usable[:, None], likeness, 0), targets, reduction="none")
    return torch.where(usable, losses, 0).sum() / len(targets)


def contrast(features: Tensor, received: Tensor, previous: Tensor, temperature: float) -> Tensor:
    """The mean cross-entropy of telling the received model's features from the silo's own earlier ones."""
    near, far = F.cosine_similarity(features, received), F.cosine_similarity(features, previous)
    return F.softplus(torch.sub(far, near) / temperature).mean()
