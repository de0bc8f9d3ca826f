"""LoRA (Hu et al., ICLR 2022) on CLIP's image encoder. A model adaptation: the encoder is frozen, low-rank changes of
its attention's query and value projections are trained; classes by their prompts."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairsilo.config import setting
from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import TEMPLATE, ClipNetwork, similarities
from fairsilo.models.networks import Output
from fairsilo.part import Part
from fairsilo.parts.clips import require_clip


class LowRankClip(nn.Module):
    """CLIP with low-rank changes inside its image encoder, on a copy of its own."""

    def __init__(self, clip: ClipNetwork, texts: Tensor, rank: int, alpha: int) -> None:
        super().__init__()
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError as problem:
            raise FairsiloError("low-rank adaptation needs the package peft: pip install 'fairsilo[lora]'") from problem
        self.clip = clip
        own = copy.deepcopy(clip.pretrained)
        targets = [name for name, _ in own.vision_model.named_modules() if name.endswith(("q_proj", "v_proj"))]
        config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=targets)
        own.vision_model = inject_adapter_in_model(config, own.vision_model)
        for name, parameter in own.named_parameters():
            parameter.requires_grad_("lora_" in name)
        self.clip.pretrained = own
        self.register_buffer("texts", texts, persistent=False)

    def forward(self, inputs: Tensor) -> Output:
        features = self.clip.images(inputs)
        return Output(similarities(features, self.get_buffer("texts"), self.clip.scale), features)


@dataclass(frozen=True)
class LowRank(Part):
    """W x + (alpha / r) B A x for the query and value projections; B starts at zero."""

    name = "low-rank"
    paper = "Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022"
    formula = "W x + (alpha / r) B A x;  min CE(s cos(I, T), y) over A and B"
    tasks = ("classify",)

    rank: int = setting(32, "of the changes", low=1)
    lora_alpha: int = setting(32, "by which they are multiplied, over the rank", low=1)
    template: str = setting(TEMPLATE, "the prompt of a class")

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        clip = require_clip(self.name, network)
        with torch.no_grad():
            texts = clip.prompts(classes, self.template)
        return LowRankClip(clip, texts, self.rank, self.lora_alpha)
