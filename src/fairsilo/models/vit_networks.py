"""Networks around a frozen vision transformer, with trained prompts beside the patches of an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.models.backbones import VitNetwork

PROMPT = "h"  # the entry of Output.extra with the type-specific prompt of each image


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


class GroupedVit(nn.Module):
    """h = GC-Net(ViT(x)); z = ViT([CLS, patches, p_1 + h, ..., p_n + h]) at the class token; a head on z."""

    def __init__(self, vit: VitNetwork, prompts: int, dropout: float, gc_width: int = 4, head: str = "linear") -> None:
        super().__init__()
        self.vit = vit
        self.prompts = nn.Parameter(0.02 * torch.randn(prompts, vit.width))
        hidden = gc_width * vit.width
        self.gc_net = nn.Sequential(nn.Linear(vit.width, hidden), nn.ReLU(), nn.Linear(hidden, vit.width))
        self.dropout = nn.Dropout(dropout)
        self.head: nn.Module = vit.head
        if head == "mlp":
            self.head = nn.Sequential(nn.Linear(vit.width, vit.width), nn.ReLU(), vit.head)
        del vit.head

    def forward(self, inputs: Tensor) -> Output:
        with torch.no_grad():
            plain = self.vit.token(inputs)
        prompt: Tensor = self.gc_net(plain)
        features = self.vit.token(inputs, self.prompts + prompt[:, None])
        return Output(self.head(self.dropout(features)), features, {PROMPT: prompt})

    def uncustomised(self, inputs: Tensor) -> Tensor:
        """The prediction with the prompts alone, h left out."""
        prediction: Tensor = self.head(self.dropout(self.vit.token(inputs, self.prompts)))
        return prediction
