"""CLIP as it is (Radford et al., ICML 2021): classes by the cosine with their prompts; nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairsilo.core.measuring import measure
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Silo
from fairsilo.fields import setting
from fairsilo.methods.clips import require_clip
from fairsilo.models.backbones import TEMPLATE
from fairsilo.models.clip_networks import PlainClip


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
