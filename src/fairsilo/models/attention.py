"""Attention of a ViT written out, without a mask: it can be differentiated twice, as FedMix does, and a GPU can record
it (the mask that `transformers` makes for its own is copied from the CPU in every pass)."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor, nn

NAME = "fairsilo"


@cache
def written_out() -> str:
    """The name under which `transformers` knows it."""
    from transformers import AttentionInterface
    from transformers.models.vit.modeling_vit import eager_attention_forward

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, _mask: Tensor | None, **more: Any
    ) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = eager_attention_forward(module, query, key, value, None, **more)
        return found

    AttentionInterface.register(NAME, attention)
    return NAME
