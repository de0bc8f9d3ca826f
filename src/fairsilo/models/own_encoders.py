"""An image and a text encoder of your own in CLIP's place, such as CLIP's ResNet-50 from weights you have.

A function of a package of yours returns an `ImageTextNetwork`; name it where a model is asked for, as
`model=package:function`, or as `fedag(backbone=package:function)`. Methods that train something behind the encoders run
on it as on CLIP; those that reach inside them (a learned context, low-rank changes, blocks) refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import Backbone, ClipNetwork, spaced


class ImageTextNetwork(ClipNetwork):
    """Two frozen encoders into one space; classes by their prompts' cosine.

    Args:
        images: Normalised RGB images (N x 3 x H x W) -> features (N x width). Frozen, and always in evaluation mode.
        texts: Some texts -> their features (as many x width). Asked once, before training.
        size: The side of the images that `images` takes; None: any.
        mean: Of each channel of the images it was trained on, on a scale from 0 to 1.
        deviation: Of each channel, likewise.
        scale: By which cosines are multiplied: exp of CLIP's `logit_scale`.
    """

    kind = "own"

    def __init__(
        self,
        images: nn.Module,
        texts: Callable[[Sequence[str]], Tensor],
        *,
        size: int | None = None,
        mean: Sequence[float] = (0.48145466, 0.4578275, 0.40821073),
        deviation: Sequence[float] = (0.26862954, 0.26130258, 0.27577711),
        scale: float = 100.0,
    ) -> None:
        nn.Module.__init__(self)
        self.source, self.texts, self.size = type(images).__name__, texts, size
        self.pretrained = images.eval().requires_grad_(False)
        self.width = self.described(["a photo"]).shape[1]
        self.register_buffer("mean", 2 * torch.tensor(mean).view(1, -1, 1, 1) - 1, persistent=False)
        self.register_buffer("deviation", 2 * torch.tensor(deviation).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("factor", torch.tensor(float(scale)), persistent=False)

    @property
    def image_size(self) -> int | None:
        return self.size

    @property
    def scale(self) -> Tensor:
        return self.get_buffer("factor")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        walk: Callable[..., object] = super(Backbone, self)._apply  # nothing of it is shared with other networks
        walk(fn, recurse)
        return self

    def images(self, inputs: Tensor) -> Tensor:
        with self.arithmetic(inputs):
            out: Tensor = self.pretrained(self.pixels(inputs))
        return out.float()

    @torch.no_grad()
    def described(self, texts: Sequence[str]) -> Tensor:
        found = self.texts([spaced(text) for text in texts])
        if not isinstance(found, Tensor) or found.dim() != 2 or len(found) != len(texts):
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise FairsiloError(f"the text encoder beside {self.source} gave {shape} for {len(texts)} texts, not rows")
        return found.detach().float()

    def prompts(self, classes: Sequence[str], template: str = "a photo of a {}") -> Tensor:
        found = self.described(self.prompted(classes, template)).to(self.scale.device)
        return nn.functional.normalize(found, dim=1)

    @property
    def text_width(self) -> int:
        raise FairsiloError(
            f"a learned context needs the tokens of CLIP's text encoder; set model=clip:PATH, not {self.source}"
        )
