"""VPT, shallow (Jia et al., ECCV 2022), federated as FedGCR's baselines are. A model adaptation: the ViT is frozen;
prompts beside the patches and a linear head are trained and sent."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fairsilo.core.part import About, Part
from fairsilo.fields import setting
from fairsilo.methods.clips import require_vit
from fairsilo.models.vit_networks import PromptedVit


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
