"""Batch normalisation with the activation behind it in one or two kernels, and gradients of depthwise convolutions'
weights in one: for networks of many small layers on a GPU.

cuDNN gives a channel of a batch one block of threads, so that the few wide channels of a network's first layers leave
most of a GPU idle; PyTorch reads whole batches once for every weight of a depthwise kernel.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.errors import FairsiloError

PIECE = 4096  # elements of a channel that a program normalises
PIECES = 1024  # of a channel, at most: what a program puts together
TAPS = 49  # weights of a depthwise kernel, at most
BLOCK = 128  # places that a program's depthwise kernel looks from at a time
PROGRAMS = 1024  # of a depthwise gradient, so that a GPU is full
ADDRESSES = 2**31  # kernels count in int32
SQUASHES: dict[type[nn.Module], int] = {nn.ReLU: 1, nn.ReLU6: 2}
ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (lambda values: values, F.relu, F.relu6)
Pair: TypeAlias = tuple[int, int]


def by_fused_kernels(module: nn.Module) -> None:
    """Let batch normalisation and depthwise convolutions of a network on a GPU be computed so, where they are plain.

    Raises:
        FairsiloError: Triton is not there.
    """
    for one in module.modules():
        if type(one) is nn.BatchNorm2d and one.num_features:
            _require_triton()
            one.__class__ = FusedBatchNorm2d
        if type(one) is nn.Conv2d and _depthwise(one):
            _require_triton()
            one.__class__ = DepthwiseConv2d
    for one in module.modules():
        if isinstance(one, nn.Sequential):
            for norm, behind in pairwise(one):
                if isinstance(norm, FusedBatchNorm2d) and type(behind) in SQUASHES:
                    norm.squash = SQUASHES[type(behind)]
                    behind.__class__ = Squashed


def _require_triton() -> None:
    if find_spec("triton") is None:
        raise FairsiloError(
            "engine.fused=true needs Triton, which comes with PyTorch's builds for GPUs; set engine.fused=false"
        )


def _depthwise(layer: nn.Conv2d) -> bool:
    tall, broad = layer.kernel_size
    apart = layer.groups == layer.in_channels == layer.out_channels > 1 and layer.dilation == (1, 1)
    return apart and tall * broad <= TAPS and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _plain(images: Tensor) -> bool:
    """Whether the kernels are for them: float32, one channel's map after another."""
    fits = images.dim() == 4 and images.dtype == torch.float32 and 0 < images.numel() < ADDRESSES
    return fits and images.is_contiguous() and not torch.is_autocast_enabled(images.device.type)


class Squashed(nn.Module):
    """An activation that the normalisation before it has applied."""

    def forward(self, input: Tensor) -> Tensor:
        return input


class FusedBatchNorm2d(nn.BatchNorm2d):
    squash = 0

    def forward(self, input: Tensor) -> Tensor:
        kept = self.training and self.track_running_stats  # running statistics are to follow
        count = input.numel() // self.num_features
        by_itself = self.training or self.running_mean is None
        fits = _plain(input) and 1 < count <= PIECE * PIECES and (self.momentum is not None or not kept)
        if not by_itself or not fits:
            return ACTIVATIONS[self.squash](super().forward(input))
        mean, variance = (self.running_mean, self.running_var) if kept else (None, None)
        if kept and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        own = (self.weight, self.bias, mean, variance, self.eps, self.momentum or 0.0, self.squash)
        found: Tensor = _Normalisation.apply(input, *own)  # type: ignore[no-untyped-call]
        return found


class _Normalisation(torch.autograd.Function):
    """Images -> normalised by their own moments, scaled, shifted, squashed; running statistics follow in place."""

    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        scale: Tensor | None,
        shift: Tensor | None,
        mean: Tensor | None,
        variance: Tensor | None,
        epsilon: float,
        momentum: float,
        squash: int,
    ) -> Tensor:
        shape = count, channels, _, pieces = _shape(images)
        means, squares = images.new_empty(2, channels, pieces)
        if pieces > 1:
            _launch("moments", (channels, pieces), images, means, squares, *shape, block=PIECE)
        found, saved = torch.empty_like(images), images.new_empty(2, channels)
        given = [saved if one is None else one for one in (scale, shift, means, squares, mean, variance)]  # never read
        flags = {"affine": scale is not None, "tracked": mean is not None, "squash": squash}
        cut = {"alone": pieces == 1, "width": _power(pieces), "block": _block(count)}
        _launch(
            "normalise", (channels, pieces), images, found, *given, saved, *shape, epsilon, momentum, **flags, **cut
        )
        ctx.save_for_backward(images, scale, shift, saved)
        ctx.epsilon, ctx.squash = epsilon, squash
        return found

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor | None, ...]:
        images, scale, shift, saved = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted, which torch's own has
            plain = ACTIVATIONS[ctx.squash](F.batch_norm(images, None, None, scale, shift, True, 0.0, ctx.epsilon))
            wanted = [one for one, asked in zip((images, scale, shift), ctx.needs_input_grad, strict=False) if asked]
            found = iter(torch.autograd.grad(plain, wanted, change, create_graph=True))
            return (*(next(found) if asked else None for asked in ctx.needs_input_grad[:3]), *[None] * 5)
        shape = count, channels, _, pieces = _shape(images)
        given = (images, change.contiguous(), *(saved if one is None else one for one in (scale, shift)), saved)
        flags = {"affine": scale is not None, "squash": ctx.squash}
        parts = images.new_empty(2, channels, pieces)
        if pieces > 1:
            _launch("sums", (channels, pieces), *given, parts, *shape, **flags, block=PIECE)
        by_images, of_shift_and_scale = torch.empty_like(images), images.new_empty(2, channels)
        cut = {"alone": pieces == 1, "width": _power(pieces), "block": _block(count)}
        _launch(
            "differentiate", (channels, pieces), *given, parts, by_images, of_shift_and_scale, *shape, **flags, **cut
        )
        if scale is None:
            return by_images, *[None] * 7
        return by_images, of_shift_and_scale[1], of_shift_and_scale[0], *[None] * 5


class DepthwiseConv2d(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not _plain(input) or not torch.is_grad_enabled() or not weight.requires_grad:
            whole: Tensor = super()._conv_forward(input, weight, bias)
            return whole
        found: Tensor = _Depthwise.apply(input, weight, self.stride, self.padding)  # type: ignore[no-untyped-call]
        return found if bias is None else found + bias[:, None, None]


class _Depthwise(torch.autograd.Function):
    """PyTorch's convolution and its gradient by images; the gradient by weights in one kernel."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(images, weight, None, stride, padding, 1, len(weight))

    @staticmethod
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        images, weight = ctx.saved_tensors
        of_images, of_weight = ctx.needs_input_grad[:2]
        library = partial(torch.ops.aten.convolution_backward, change, images, weight, None)
        plain = (ctx.stride, ctx.padding, (1, 1), False, (0, 0), len(weight))
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted, which torch's own has
            by_images, by_weight, _ = library(*plain, (of_images, of_weight, False))
            return by_images, by_weight, None, None
        by_images = library(*plain, (True, False, False))[0] if of_images else None
        return by_images, _of_weights(images, change.contiguous(), weight, ctx) if of_weight else None, None, None


def _of_weights(images: Tensor, change: Tensor, weight: Tensor, ctx: Any) -> Tensor:
    (rows, channels, high, wide), (out_high, out_wide) = images.shape, change.shape[2:]
    tall, broad = weight.shape[2:]
    shares = max(1, min(PROGRAMS // channels, -(-rows * out_high * out_wide // BLOCK)))
    parts = images.new_empty(shares, *weight.shape)
    sizes = (rows, channels, high, wide, out_high, out_wide, *ctx.padding, shares, *ctx.stride, tall, broad)
    _launch(
        "depthwise_weights", (channels, shares), images, change, parts, *sizes,
        taps=_power(tall * broad), block=BLOCK,
    )  # fmt: skip
    return parts[0] if shares == 1 else parts.sum(0)


def _shape(images: Tensor) -> tuple[int, int, int, int]:
    """Elements of a channel, channels, elements of a map, pieces of a channel."""
    count, size = images.numel() // images.shape[1], images.shape[2] * images.shape[3]
    return count, images.shape[1], size, -(-count // PIECE)


def _block(count: int) -> int:
    return min(PIECE, _power(count))


def _power(least: int) -> int:
    """The smallest power of two that is not below."""
    return 1 << (least - 1).bit_length()


def _launch(name: str, grid: tuple[int, int], *arguments: Any, block: int, **constants: Any) -> None:
    kernel = getattr(importlib.import_module("fairsilo.core.fused_kernels"), name)
    width = constants.get("taps", 1) * block
    kernel[grid](*arguments, **constants, block=block, num_warps=max(1, min(8, width // 256)))
