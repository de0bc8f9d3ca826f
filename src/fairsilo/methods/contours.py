"""What is asked of maps of pixels: contours alike in any style (ELCFS), smooth and steady answers (IOP-FL)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

RING = 5  # pixels around a structure that are its background


def grown(mask: Tensor, by: int) -> Tensor:
    """A mask (B x H x W floats) with so many more pixels around it; fewer where `by` is below 0."""
    size = 2 * abs(by) + 1
    if by < 0:
        return 1 - grown(1 - mask, -by)
    return F.max_pool2d(mask[:, None], size, 1, by)[:, 0]


def embeddings(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean features of the contours of an image's structures and of the ring around them.

    Args:
        features: B x C x H x W.
        targets: Masks, B x H x W.

    Returns:
        N x 2 x C (contour, then ring) for the images that have both, and which images these are.
    """
    mask = (targets > 0).to(features.dtype)
    areas = torch.stack([mask - grown(mask, -1), grown(mask, RING) - mask], 1)  # B x 2 x H x W
    counts = areas.sum((2, 3))
    known = (counts > 0).all(1)
    means = torch.einsum("bchw,bahw->bac", features, areas) / counts.clamp(min=1)[:, :, None]
    return means[known], known


def contour_contrast(raw: Tensor, restyled: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """NT-Xent over contours and rings of the same images in two styles.

    An embedding's positive is that of the same place in the other style; its negatives are all embeddings of the other
    kind (rings for a contour). The paper names neither; contours of other images count as neither.
    """
    one, _ = embeddings(raw, targets)
    other, _ = embeddings(restyled, targets)
    if not len(one):
        return raw.sum() * 0
    # kind x style x image
    found = F.normalize(torch.stack([one, other]), dim=3).permute(2, 0, 1, 3)
    similar = (found[:, 0] * found[:, 1]).sum(2) / temperature  # kind x image
    losses = []
    for kind in (0, 1):
        negatives = found[1 - kind].flatten(0, 1)
        for style in (0, 1):
            away = found[kind, style] @ negatives.T / temperature
            losses.append(torch.logsumexp(torch.cat([similar[kind][:, None], away], 1), 1) - similar[kind])
    return torch.cat(losses).mean()


def roughness(probabilities: Tensor) -> Tensor:
    """Mean absolute difference between neighbouring pixels of B x K x H x W."""
    down = (probabilities[:, :, 1:] - probabilities[:, :, :-1]).abs().mean()
    right = (probabilities[:, :, :, 1:] - probabilities[:, :, :, :-1]).abs().mean()
    return down + right


def disagreement(predict: Callable[[Tensor], Tensor], images: Tensor, expected: Tensor) -> Tensor:
    """Squared difference between probabilities and those of the same images; maps are turned and mirrored."""
    turn = (0, False)
    if expected.dim() == 4:
        turn = (int(torch.randint(4, ())), bool(torch.rand(()) < 0.5))
        images = turned(images, *turn)
    found = predict(images)
    return (expected - (turned(found, *turn, back=True) if expected.dim() == 4 else found)).square().mean()


def turned(maps: Tensor, quarters: int, mirrored: bool, back: bool = False) -> Tensor:
    """Images or maps after so many quarter turns and a mirror, or brought back from there."""
    if back:
        maps = maps.flip(3) if mirrored else maps
        return torch.rot90(maps, -quarters, (2, 3))
    maps = torch.rot90(maps, quarters, (2, 3))
    return maps.flip(3) if mirrored else maps
