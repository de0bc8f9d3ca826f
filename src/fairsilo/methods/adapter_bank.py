"""FedAG (Wang et al., ICML 2025): adapters around a frozen CLIP, how they answer together, and what they descend."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.methods.parts.image_adapter import attention
from fairsilo.models.backbones import ClipNetwork, similarities
from fairsilo.models.networks import Staged


class AdapterBank(Staged):
    """Frozen image features through one adapter per silo: one of them answers, or all, weighed by what they say."""

    def __init__(
        self, clip: ClipNetwork, texts: Tensor, count: int, cross: bool = True, as_printed: bool = False
    ) -> None:
        super().__init__()
        self.clip, self.cross, self.as_printed = clip, cross, as_printed
        self.adapters = nn.ModuleList(attention(clip.width, clip.width) for _ in range(count))
        self.mixer = nn.Linear(len(texts), 1)
        self.register_buffer("texts", texts, persistent=False)
        self.register_buffer("route", torch.tensor([-1.0]))  # the adapter that answers; -1: all of them
        self.known: dict[str, Tensor] = {}  # a silo's synthetic images as CLIP sees them, which never changes

    def stem(self, inputs: Tensor) -> Tensor:
        return self.clip.images(inputs)

    def adapted(self, stemmed: Tensor) -> Tensor:
        """I~_k = A_k(I) * I of every adapter: N x B x d."""
        return torch.stack([adapter(stemmed) * stemmed for adapter in self.adapters])

    def logits(self, adapted: Tensor) -> Tensor:
        """phi_k: N x B x classes."""
        texts = self.get_buffer("texts")
        if self.as_printed:
            return adapted @ texts.T
        return torch.stack([similarities(some, texts, self.clip.scale) for some in adapted])

    def attend(self, phi: Tensor) -> Tensor:
        """beta = softmax_k(MLP(phi_k)): B x N; equal shares where adapters did not learn to answer together."""
        scores = self.mixer(phi).squeeze(-1).T
        return torch.softmax(scores if self.cross else torch.zeros_like(scores), 1)

    def tail(self, stemmed: Tensor) -> Output:
        adapted = self.adapted(stemmed)
        phi = self.logits(adapted)
        beta, chosen = self.attend(phi), int(self.get_buffer("route"))
        share = beta if chosen < 0 else torch.eye(len(phi)).to(beta)[chosen].expand_as(beta)
        return Output(mixed(share, phi), mixed(share, adapted), {"attention": beta})


def mixed(share: Tensor, answers: Tensor) -> Tensor:
    """eta = sum_k beta_k phi_k."""
    return (share.T[..., None] * answers).sum(0)


class Losses(NamedTuple):
    """The terms of one silo's G; between the first and the last, one number per image."""

    mutual: Tensor  # J
    inside: Tensor  # CE(softmax(phi_n), y)
    across: Tensor  # CE(softmax(eta), y)
    lead: Tensor  # R
    total: Tensor


def server_losses(
    phi: Tensor,
    beta: Tensor | None,
    own: int,
    labels: Tensor,
    client: Tensor | None,
    quality: Tensor,
    lam: float,
    margin: float,
    reduction: str = "mean",
) -> Losses:
    """J + mean (as printed: sum) of CE(phi_n) + CE(eta) + lam R; without beta no CE(eta) and R, without client no J."""
    inside = F.cross_entropy(phi[own], labels, reduction="none")
    across = lead = torch.zeros_like(inside)
    if beta is not None:
        across = F.cross_entropy(mixed(beta, phi), labels, reduction="none")
        others = torch.cat([beta[:, :own], beta[:, own + 1 :]], 1)
        if others.shape[1]:
            lead = (margin + others.amax(1) - beta[:, own]).clamp(min=0)
    mutual = inside.new_zeros(()) if client is None else mutual_loss(client, phi[own], quality)
    rest = inside + across + lam * lead
    return Losses(mutual, inside, across, lead, mutual + (rest.mean() if reduction == "mean" else rest.sum()))


def mutual_loss(client: Tensor, clip: Tensor, quality: Tensor) -> Tensor:
    """J = sum_i a_i [KL(theta||phi) + KL(phi||theta)] / (2 sum_i a_i). A negative score counts as none, since it would
    turn the divergence round; where no score is positive, all images count alike."""
    alpha = quality.clamp(min=0).to(clip)
    alpha = torch.where(alpha.sum() > 0, alpha, torch.ones_like(alpha))
    return (alpha * (divergence(client, clip) + divergence(clip, client))).sum() / (2 * alpha.sum())


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """KL(softmax(one) || softmax(other)) per sample; gradients reach both."""
    first, second = F.log_softmax(one, 1), F.log_softmax(other, 1)
    return (first.exp() * (first - second)).sum(1)
