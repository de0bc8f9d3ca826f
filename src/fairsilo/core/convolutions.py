"""Convolutions as products of matrices: a CPU whose own kernels are slow, as ARM's are in the backward pass, then
computes them at the speed of its products.

The patches of an image that a kernel sees become the rows of a matrix; some images at a time, so that it stays in a
cache.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOM = 4 << 20  # bytes of a matrix of patches
Pair: TypeAlias = tuple[int, int]


def by_matrices(module: nn.Module) -> None:
    """Let the convolutions of a network be computed so, where they are plain ones."""
    for one in module.modules():
        if type(one) is nn.Conv2d and one.groups == 1 and one.dilation == (1, 1) and one.padding_mode == "zeros":
            one.__class__ = MatrixConv2d


class MatrixConv2d(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if isinstance(self.padding, str) or input.dim() != 4:
            whole: Tensor = super()._conv_forward(input, weight, bias)
            return whole
        found: Tensor = _Convolution.apply(input, weight, self.stride, self.padding)  # type: ignore[no-untyped-call]
        return found if bias is None else found + bias[:, None, None]


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
        ctx.stride, ctx.padding = stride, padding
        factor = _as_matrix(weight)
        padded = _padded(images, padding)
        blocks = _split(padded, weight, stride)
        rows = [_patches(some, weight, stride) for some in blocks[:1]]
        found = [rows[0] @ factor.T, *(_patches(some, weight, stride) @ factor.T for some in blocks[1:])]
        made = rows if len(blocks) == 1 else ()  # of several they are made again
        ctx.save_for_backward(images, weight, padded, *made)
        high, wide = _size(padded, weight, stride)
        whole = found[0] if len(found) == 1 else torch.cat(found)
        return whole.view(len(images), high, wide, -1).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        images, weight, padded, *kept = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted, which torch's own has
            plain = (ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1, (*wanted, False))
            found = torch.ops.aten.convolution_backward(change, images, weight, None, *plain)
            return found[0], found[1], None, None
        factor = _as_matrix(weight)
        of_images = torch.zeros_like(padded) if wanted[0] else None
        of_factor: Tensor | None = None
        below = change.permute(0, 2, 3, 1).reshape(-1, len(weight))
        each = len(below) // len(padded)
        start = 0
        for some in (padded,) if kept else _split(padded, weight, ctx.stride):
            stop = start + len(some)
            here = below[start * each : stop * each]
            if wanted[1]:
                rows = kept[0] if kept else _patches(some, weight, ctx.stride)
                of_factor = here.T @ rows if of_factor is None else of_factor.addmm_(here.T, rows)
            if of_images is not None:
                _add_patches(of_images[start:stop], here @ factor, weight, ctx.stride)
            start = stop
        outputs, inputs, down, across = weight.shape
        of_weight = None
        if of_factor is not None:
            of_weight = of_factor.view(outputs, down, across, inputs).permute(0, 3, 1, 2)
        if of_images is not None:
            (above, left), (high, wide) = ctx.padding, images.shape[2:]
            of_images = of_images[:, above : above + high, left : left + wide].permute(0, 3, 1, 2)
        return of_images, of_weight, None, None


def _as_matrix(weight: Tensor) -> Tensor:
    """Rows are the outputs, columns places of the kernel and channels."""
    return weight.permute(0, 2, 3, 1).reshape(len(weight), -1)


def _padded(images: Tensor, padding: Pair) -> Tensor:
    """Images with channels last, and zeros around them."""
    above, left = padding
    return F.pad(images.permute(0, 2, 3, 1), (0, 0, left, left, above, above)).contiguous()


def _size(padded: Tensor, weight: Tensor, stride: Pair) -> Pair:
    """How many places a kernel has, from top to bottom and from left to right."""
    high, wide = ((padded.shape[1 + n] - weight.shape[2 + n]) // stride[n] + 1 for n in (0, 1))
    return high, wide


def _split(padded: Tensor, weight: Tensor, stride: Pair) -> tuple[Tensor, ...]:
    high, wide = _size(padded, weight, stride)
    each = high * wide * weight[0].numel() * padded.element_size()
    return torch.split(padded, max(1, ROOM // max(each, 1)))


def _patches(padded: Tensor, weight: Tensor, stride: Pair) -> Tensor:
    """A row for every place of the kernel: what it sees there."""
    down, across = weight.shape[2:]
    high, wide = _size(padded, weight, stride)
    image, line, pixel, _ = padded.stride()
    shape = (len(padded), high, wide, down, across * padded.shape[3])
    seen = padded.as_strided(shape, (image, line * stride[0], pixel * stride[1], line, 1), padded.storage_offset())
    return seen.reshape(-1, shape[3] * shape[4])


def _add_patches(padded: Tensor, rows: Tensor, weight: Tensor, stride: Pair) -> None:
    """The other way round: every place adds to the pixels that it sees."""
    down, across = weight.shape[2:]
    high, wide = _size(padded, weight, stride)
    seen = rows.view(len(padded), high, wide, down, across, -1)
    for line in range(down):
        for pixel in range(across):
            lines = slice(line, line + stride[0] * (high - 1) + 1, stride[0])
            pixels = slice(pixel, pixel + stride[1] * (wide - 1) + 1, stride[1])
            padded[:, lines, pixels] += seen[:, :, :, line, pixel]
