"""PromptFL (Guo et al., IEEE TMC 2023). A model adaptation: CLIP is frozen, a few context vectors before every class
name are trained and sent."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fairsilo.core.part import About, Part
from fairsilo.fields import setting
from fairsilo.methods.clips import require_clip
from fairsilo.models.clip_networks import PromptedClip


@dataclass(frozen=True)
class PromptContext(Part):
    """Cross-entropy of s cos(I, T_c), T_c the text feature of [v_1 ... v_M, class]; alignment is on the T_c."""

    name = "prompt-context"
    about = About(
        paper="Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts, IEEE TMC 2023",
        formula="T_c = text([v_1, ..., v_M, class c]);  min CE(s cos(I, T), y) over v",
    )
    needs = frozenset({"classification"})
    does = frozenset({"made-steps"})  # its text encoder looks at values

    context_length: int = setting(16, "context vectors before the class name (M)", low=1)

    @property
    def weighting(self) -> str:
        return "uniform"

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        return PromptedClip(require_clip(self.name, network), classes, self.context_length)
