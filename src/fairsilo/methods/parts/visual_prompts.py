"""VPT, shallow (Jia et al., ECCV 2022), federated as FedGCR's baselines are. A model adaptation: the ViT is frozen;
prompts beside the patches and a linear head are trained and sent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairsilo.config import setting
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.methods.clips import require_vit
from fairsilo.models.backbones import VitNetwork


class PromptedVit(nn.Module):
    """Prompts appended to the embedded patches (they get no position), and a head on the class token."""

    def __init__(self, vit: VitNetwork, prompts: int, dropout: float) -> None:
        super().__init__()
        self.vit = vit
        self.prompts = nn.Parameter(0.02 * torch.randn(prompts, vit.width))
        self.dropout = nn.Dropout(dropout)
        self.head = vit.head
        del vit.head

    def forward(self, inputs: Tensor) -> Output:
        features = self.vit.token(inputs, self.prompts)
        return Output(self.head(self.dropout(features)), features)


@dataclass(frozen=True)
class VisualPrompts(Part):
    """z = ViT([CLS, patches, p_1, ..., p_n]) at the class token; logits = linear(z)."""

    name = "visual-prompts"
    about = About(
        paper="Jia et al., Visual Prompt Tuning, ECCV 2022",
        formula="z = ViT([CLS, patches, p_1, ..., p_n])_CLS;  min CE(linear(z), y) over p and the head",
    )

    prompts: int = setting(4, "prompts beside the patches (n)", low=1)
    head_dropout: float = setting(0.1, "on the features before the head", low=0, high=0.9)

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        return PromptedVit(require_vit(self.name, network), self.prompts, self.head_dropout)
