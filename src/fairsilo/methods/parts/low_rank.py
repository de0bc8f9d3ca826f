"""LoRA (Hu et al., ICLR 2022) on CLIP's image encoder. A model adaptation: the encoder is frozen, low-rank changes of
its attention's query and value projections are trained; classes by their prompts."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn

from fairsilo.config import setting
from fairsilo.core.part import About, Part
from fairsilo.errors import FairsiloError
from fairsilo.methods.clips import require_clip
from fairsilo.models.backbones import TEMPLATE, PromptClassifier


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


@dataclass(frozen=True)
class LowRank(Part):
    """W x + (alpha / r) B A x for the query and value projections; B starts at zero."""

    name = "low-rank"
    about = About(
        paper="Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022",
        formula="W x + (alpha / r) B A x;  min CE(s cos(I, T), y) over A and B",
    )
    needs = frozenset({"classification"})

    rank: int = setting(32, "of the changes", low=1)
    lora_alpha: int = setting(32, "by which they are multiplied, over the rank", low=1)
    template: str = setting(TEMPLATE, "the prompt of a class")

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        clip = require_clip(self.name, network)
        own = with_low_rank(clip.pretrained, self.rank, self.lora_alpha)
        return PromptClassifier(clip, clip.prompts(classes, self.template), own)
