"""CLIP as it is (Radford et al., ICML 2021): classes by the cosine with their prompts; nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairsilo.config import setting
from fairsilo.core.measuring import measure
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Silo
from fairsilo.methods.clips import require_clip
from fairsilo.models.backbones import TEMPLATE, ClipNetwork, similarities
from fairsilo.models.networks import Staged


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


@dataclass(frozen=True)
class ZeroShot(Part):
    """argmax_c cos(I, T_c)."""

    name = "zero-shot"
    about = About(
        paper="Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021",
        formula="argmax_c cos(I, T_c)",
    )
    needs = frozenset({"classification"})
    does = frozenset({"trains-nothing"})

    template: str = setting(TEMPLATE, "the prompt of a class")

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        clip = require_clip(self.name, network)
        return PlainClip(clip, clip.prompts(classes, self.template))

    def train(self, silo: Silo) -> Tensor:
        return torch.tensor(measure(silo, "train").loss)
