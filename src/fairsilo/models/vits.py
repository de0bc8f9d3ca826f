"""Vision transformers from scratch, all of them trained: the network of `transformers` with random weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.errors import FairsiloError
from fairsilo.models.attention import written_out


class ScratchVit(nn.Module):
    """Twelve layers and a linear head on the class token."""

    width: int

    def __init__(self, classes: int, channels: int = 3, size: int = 224, patch: int = 16) -> None:
        import transformers

        super().__init__()
        if size % patch:
            raise FairsiloError(f"patches of {patch} pixels do not divide an image of {size}; set size or patch")
        config: Any = transformers.ViTConfig(
            hidden_size=self.width,
            num_hidden_layers=12,
            num_attention_heads=self.width // 64,
            intermediate_size=4 * self.width,
            image_size=size,
            patch_size=patch,
            num_channels=channels,
        )
        config._attn_implementation = written_out()
        self.body: Any = transformers.ViTModel(config, add_pooling_layer=False)
        self.head = nn.Linear(self.width, classes)
        self.size = size

    def features(self, inputs: Tensor) -> Tensor:
        """The class token's output."""
        height, width = inputs.shape[-2:]
        if (height, width) != (self.size, self.size):
            raise FairsiloError(
                f"the images are {height}x{width}, and this vision transformer takes {self.size}x{self.size}; set "
                f"data.size={self.size}, or its own size as in vit-tiny(size={height}, patch=...)"
            )
        found: Tensor = self.body(inputs).last_hidden_state[:, 0]
        return found

    def forward(self, inputs: Tensor) -> Output:
        features = self.features(inputs)
        return Output(self.head(features), features)


class VitTiny(ScratchVit):
    """Width 192, 3 heads."""

    width = 192


class VitBase(ScratchVit):
    """Width 768, 12 heads."""

    width = 768
