"""Outlines of the truth and of the prediction, drawn into small pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from fairsilo.runs.pictures import Example

WIDTH = 320  # of a drawn picture: outlines of two pixels are fine lines on a page


def picture(one: Example, colours: Mapping[str, Sequence[int]]) -> bytes:
    """The image with both outlines as a JPEG, in colours for `truth`, for what was `said`, and for `both`."""
    factor = max(1, WIDTH // max(one.image.shape[1:]))
    image = F.interpolate(one.image[None].float(), scale_factor=factor, mode="bilinear")[0]
    pixels = image.round().to(torch.uint8).expand(3, -1, -1).movedim(0, -1).clone()
    truth, said = (edges(mask, factor) for mask in (one.truth, one.said))
    for key, where in (("truth", truth & ~said), ("said", said & ~truth), ("both", truth & said)):
        pixels[where] = torch.tensor(colours[key], dtype=torch.uint8)
    file = io.BytesIO()
    # without subsampling of colours, which would blur the outlines
    Image.fromarray(pixels.numpy()).save(file, "JPEG", quality=80, subsampling=0)
    return file.getvalue()


def edges(mask: Tensor, factor: int) -> Tensor:
    """Pixels on either side of a change of class, after each pixel became a square of `factor` pixels.

    Outside is background, so that what fills the whole image has an outline too.
    """
    large = F.pad(mask.repeat_interleave(factor, 0).repeat_interleave(factor, 1), (1, 1, 1, 1))
    found = torch.zeros_like(large, dtype=torch.bool)
    down, right = large[1:] != large[:-1], large[:, 1:] != large[:, :-1]
    found[1:] |= down
    found[:-1] |= down
    found[:, 1:] |= right
    found[:, :-1] |= right
    return found[1:-1, 1:-1]
