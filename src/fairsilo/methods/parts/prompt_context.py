"""PromptFL (Guo et al., IEEE TMC 2023). A model adaptation: CLIP is frozen, a few context vectors before every class
name are trained and sent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.config import setting
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.methods.clips import require_clip
from fairsilo.models.backbones import ClipNetwork, similarities
from fairsilo.models.networks import Staged

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


@dataclass(frozen=True)
class PromptContext(Part):
    """Cross-entropy of s cos(I, T_c), T_c the text feature of [v_1 ... v_M, class]; alignment is on the T_c."""

    name = "prompt-context"
    about = About(
        paper="Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts, IEEE TMC 2023",
        formula="T_c = text([v_1, ..., v_M, class c]);  min CE(s cos(I, T), y) over v",
    )
    needs = frozenset({"classification"})

    context_length: int = setting(16, "context vectors before the class name (M)", low=1)

    @property
    def weighting(self) -> str:
        return "uniform"

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        return PromptedClip(require_clip(self.name, network), classes, self.context_length)
