"""LoRA (Hu et al., ICLR 2022) on CLIP's image encoder: a model adaptation. The encoder is frozen; low-rank changes of
its attention's queries and values are trained. The server averages A and B, and not B A (as FedIT, ICASSP 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fairsilo.core.part import About, Part
from fairsilo.fields import setting
from fairsilo.methods.clips import require_blocks
from fairsilo.models.backbones import TEMPLATE, PromptClassifier
from fairsilo.models.clip_networks import with_low_rank


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
        clip = require_blocks(self.name, network)
        own = with_low_rank(clip.pretrained, self.rank, self.lora_alpha)
        return PromptClassifier(clip, clip.prompts(classes, self.template), own)
