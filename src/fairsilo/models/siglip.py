"""SigLIP by `transformers`: as CLIP, with encoders that end in the common space by themselves.

What differs from CLIP: texts have no token that starts them, are padded to the encoder's full length and read at their
last place. SigLIP was trained with a bias on its logits, which is the same for all classes and changes no choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import Backbone, ClipNetwork, spaced
from fairsilo.models.encoder_prompts import context_after


@cache
def _tokenizer(source: str) -> Any:
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    except Exception as problem:  # a damaged file: each library has errors of its own for it
        raise FairsiloError(f"the tokenizer of siglip:{source} cannot be loaded: {problem}") from problem
    if list(tokenizer("cat")["input_ids"]) == list(tokenizer("dog")["input_ids"]):
        raise FairsiloError(f"the tokenizer of siglip:{source} is missing: 'cat' and 'dog' are the same to it")
    return tokenizer


class SiglipNetwork(ClipNetwork):
    """SigLIP's two encoders, for everything that is built around CLIP."""

    kind = "siglip"

    def __init__(self, source: str, classes: int) -> None:
        Backbone.__init__(self, source, classes)
        self.width = int(self.pretrained.config.vision_config.hidden_size)

    @property
    def scale(self) -> Tensor:
        return super().scale.squeeze()

    def images(self, inputs: Tensor) -> Tensor:
        with self.arithmetic(inputs):
            out: Tensor = self.pretrained.vision_model(pixel_values=self.pixels(inputs)).pooler_output
        return out.float() if self.short_floats else out

    def tokens(self, texts: Sequence[str], context: int = 0) -> Tensor:
        tokenizer = _tokenizer(self.source)
        room = int(self.pretrained.config.text_config.max_position_embeddings) - context
        for text in texts:
            length = len(tokenizer(spaced(text))["input_ids"])
            if length > room:
                behind = f" behind a context of {context}" if context else ""
                raise FairsiloError(
                    f"the prompt {text!r}{behind} has {length + context} tokens, and the text encoder takes at most "
                    f"{room + context}"
                )
        found: Tensor = tokenizer(
            [spaced(text) for text in texts], padding="max_length", max_length=room, return_tensors="pt"
        )["input_ids"]
        # any tokens will do where the context takes their place
        return torch.cat([found[:, :1].expand(-1, context), found], 1)

    def read(self, tokens: Tensor, context: Tensor | None = None) -> Tensor:
        with context_after(0, self.pretrained.text_model.embeddings.token_embedding, context):
            out: Tensor = self.pretrained.text_model(input_ids=tokens).pooler_output
        return out
