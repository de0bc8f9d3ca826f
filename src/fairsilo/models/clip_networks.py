"""Networks around a frozen CLIP: adapters of its image features, a learned context, low-rank changes, fewer blocks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.errors import FairsiloError
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


KNOWN = 4  # contexts whose class features are kept


class PromptedClip(Staged):
    """Frozen image features; class features from the learned context and the class's name."""

    def __init__(self, clip: ClipNetwork, classes: tuple[str, ...], length: int) -> None:
        super().__init__()
        self.clip, self.features_width = clip, clip.width  # images and classes have features of one width
        self.context = nn.Parameter(0.02 * torch.randn(length, clip.text_width))
        self.register_buffer("tokens", clip.tokens(classes, context=length), persistent=False)
        self.known: list[tuple[Tensor, Tensor]] = []  # contexts and their class features, the last used first

    def stem(self, inputs: Tensor) -> Tensor:
        return self.clip.images(inputs)

    def texts(self) -> Tensor:
        """Unit class features; without gradients they are computed again only when the context changed.

        A few contexts are known at a time, because a method may go back and forth between the received model, the
        silo's last one and the one it trains.
        """
        if torch.is_grad_enabled() and self.context.requires_grad:
            return self._encoded()
        found = next((pair for pair in self.known if torch.equal(pair[0], self.context)), None)
        if found is None:
            found = (self.context.detach().clone(), self._encoded().detach())
        self.known = [found, *(pair for pair in self.known if pair is not found)][:KNOWN]
        return found[1]

    def _encoded(self) -> Tensor:
        return F.normalize(self.clip.encode(self.get_buffer("tokens"), self.context), dim=1)

    def tail(self, stemmed: Tensor) -> Output:
        texts = self.texts()
        return Output(similarities(stemmed, texts, self.clip.scale), stemmed, {"aligned": texts})


class PlainClip(Staged):
    """Image features against class prompts. A model must hold something to train: here a zero that stays zero."""

    def __init__(self, clip: ClipNetwork, texts: Tensor) -> None:
        super().__init__()
        self.clip = clip
        self.nothing = nn.Parameter(torch.zeros(1))
        self.register_buffer("texts", texts, persistent=False)

    def stem(self, inputs: Tensor) -> Tensor:
        return self.clip.images(inputs)

    def tail(self, stemmed: Tensor) -> Output:
        return Output(similarities(stemmed, self.get_buffer("texts"), self.clip.scale) + self.nothing, stemmed)


class AdapterBank(Staged):
    """Frozen image features through several adapters: one of them answers, or all, weighted by what they say."""

    def __init__(
        self, clip: ClipNetwork, texts: Tensor, count: int, cross: bool = True, as_printed: bool = False
    ) -> None:
        super().__init__()
        self.clip, self.cross, self.as_printed = clip, cross, as_printed
        self.adapters = nn.ModuleList(attention(clip.width, clip.width) for _ in range(count))
        self.mixer = nn.Linear(len(texts), 1)
        self.register_buffer("texts", texts, persistent=False)
        self.register_buffer("route", torch.tensor([-1.0]))  # the adapter that answers; -1: all of them
        self.known: dict[str, Tensor] = {}  # sets of images as CLIP sees them, which never change, by name

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
        beta, chosen = self.attend(phi), self.get_buffer("route")
        alone = (torch.arange(len(phi), device=beta.device) == chosen).to(beta)
        share = torch.where(chosen < 0, beta, alone.expand_as(beta))  # without a look at the number, which would wait
        return Output(mixed(share, phi), mixed(share, adapted), {"attention": beta})


def adapter_bank(
    clip: ClipNetwork, classes: Sequence[str], template: str, count: int, cross: bool, as_printed: bool
) -> AdapterBank:
    """A bank over the prompts of classes; as printed in the paper their features are not normalised."""
    texts = clip.described(clip.prompted(classes, template)) if as_printed else clip.prompts(classes, template)
    return AdapterBank(clip, texts, count, cross, as_printed)


def mixed(share: Tensor, answers: Tensor) -> Tensor:
    """eta = sum_k beta_k phi_k."""
    return (share.T[..., None] * answers).sum(0)


def with_low_rank(pretrained: nn.Module, rank: int, alpha: int) -> nn.Module:
    """A copy of CLIP with low-rank changes inside its image encoder, which alone are trained."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as problem:
        raise FairsiloError("low-rank adaptation needs the package peft: pip install 'fairsilo[lora]'") from problem
    own: Any = copy.deepcopy(pretrained)
    targets = [name for name, _ in own.vision_model.named_modules() if name.endswith(("q_proj", "v_proj"))]
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=targets)
    own.vision_model = inject_adapter_in_model(config, own.vision_model)
    for name, parameter in own.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return own  # type: ignore[no-any-return]


def with_blocks(pretrained: nn.Module, trained: int, middle: list[int]) -> nn.Module:
    """A copy of CLIP with some blocks of its image encoder, of which the first and the last ones are trained."""
    own: Any = copy.deepcopy(pretrained).requires_grad_(False)
    layers = own.vision_model.encoder.layers
    first, last = list(range(trained)), list(range(len(layers) - trained, len(layers)))
    for index in (*first, *last):
        layers[index].requires_grad_(True)
    own.vision_model.encoder.layers = nn.ModuleList([layers[index] for index in (*first, *middle, *last)])
    return own  # type: ignore[no-any-return]


def emulated(start: int, middle: int, kept: int) -> list[int]:
    """Which blocks stand for the middle: evenly spaced, both its ends among them."""
    if kept == 1:
        return [start]
    return [start + round(index * (middle - 1) / (kept - 1)) for index in range(kept)]
