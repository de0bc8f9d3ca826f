"""Random changes of training images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def augmented(images: Tensor, kinds: str, stream: torch.Generator) -> Tensor:
    """Random crops after padding by an eighth, and random mirror images; drawn on the CPU so that engines agree."""
    count, _, height, width = images.shape
    if "crop" in kinds:
        margin = max(1, height // 8)
        shifts = torch.randint(0, 2 * margin + 1, (2, count, 1), generator=stream)
        rows = (shifts[0] + torch.arange(height)).to(images.device)
        columns = (shifts[1] + torch.arange(width)).to(images.device)
        padded = F.pad(images, [margin] * 4, value=-1.0).permute(0, 2, 3, 1)
        sample = torch.arange(count, device=images.device)[:, None, None]
        images = padded[sample, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
    if "flip" in kinds:
        mirrored = (torch.rand(count, generator=stream) < 0.5).to(images.device)
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    return images
