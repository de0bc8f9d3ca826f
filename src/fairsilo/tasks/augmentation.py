"""Random changes of training images: what is drawn, before the first step, and what it does to a batch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor


def margin_of(height: int) -> int:
    """By how many pixels an image is padded before a crop of its own size is taken."""
    return max(1, height // 8)


def draws(kinds: str, count: int, shape: tuple[int, ...], stream: torch.Generator) -> dict[str, Tensor]:
    """The random choices for a batch of so many images (channels x height x width each), one row per image."""
    found = {}
    if "crop" in kinds:
        shifts = torch.randint(0, 2 * margin_of(shape[-2]) + 1, (2, count, 1), generator=stream)
        found["shifts"] = shifts.squeeze(-1).T.contiguous()
    if "flip" in kinds:
        found["mirrored"] = torch.rand(count, generator=stream) < 0.5
    return found


def augmented(images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
    """Crops after padding by an eighth, and mirror images, as they were drawn.

    `black` among what was drawn is what the padding becomes (images x channels); without it images lie in [-1, 1].
    """
    count, _, height, width = images.shape
    if "shifts" in drawn:
        down, right = drawn["shifts"].unsqueeze(-1).unbind(1)
        rows = down + torch.arange(height, device=images.device)
        columns = right + torch.arange(width, device=images.device)
        padded = _padded(images, margin_of(height), drawn.get("black")).permute(0, 2, 3, 1)
        sample = torch.arange(count, device=images.device)[:, None, None]
        images = padded[sample, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
    if "mirrored" in drawn:
        images = torch.where(drawn["mirrored"][:, None, None, None], images.flip(3), images)
    return images


def _padded(images: Tensor, margin: int, black: Tensor | None) -> Tensor:
    if black is None:
        return F.pad(images, [margin] * 4, value=-1.0)
    height, width = images.shape[-2:]
    padded = black[:, :, None, None].repeat(1, 1, height + 2 * margin, width + 2 * margin)
    padded[:, :, margin:-margin, margin:-margin] = images
    return padded
