"""Batch normalisation with the activation behind it, and the gradient of a depthwise convolution's weights, in Triton.

A channel is cut into pieces of `block` elements, so that a few wide channels fill a GPU too; what pieces found is put
together in a fixed order, so that numbers are the same every time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _places(piece, channel, count, channels, size, block: tl.constexpr):
    """Where the elements of a channel's piece lie in images (rows x channels x size), and which of them there are."""
    at = piece * block + tl.arange(0, block)
    return (at // size) * channels * size + channel * size + at % size, at < count


@triton.jit
def _scaled(normal, scale, shift, channel, affine: tl.constexpr):
    if affine:
        normal = normal * tl.load(scale + channel) + tl.load(shift + channel)
    return normal


@triton.jit
def _squashed(values, squash: tl.constexpr):
    """Squash is 0: nothing; 1: ReLU; 2: ReLU6."""
    if squash > 0:
        values = tl.maximum(values, 0.0)
    if squash == 2:
        values = tl.minimum(values, 6.0)
    return values


@triton.jit
def _passed(change, before, squash: tl.constexpr):
    """The loss's slope by what went into the activation."""
    if squash > 0:
        change = tl.where(before > 0.0, change, 0.0)
    if squash == 2:
        change = tl.where(before < 6.0, change, 0.0)
    return change


@triton.jit(do_not_specialize=["count", "channels", "size", "pieces"])
def moments(images, means, squares, count, channels, size, pieces, block: tl.constexpr):
    """The mean of each piece and the sum of squares around it (channels x pieces)."""
    channel, piece = tl.program_id(0), tl.program_id(1)
    place, real = _places(piece, channel, count, channels, size, block)
    values = tl.load(images + place, mask=real, other=0.0)
    mean = tl.sum(values, 0) / tl.minimum(count - piece * block, block)
    around = tl.where(real, values - mean, 0.0)
    tl.store(means + channel * pieces + piece, mean)
    tl.store(squares + channel * pieces + piece, tl.sum(around * around, 0))


@triton.jit(do_not_specialize=["count", "channels", "size", "pieces", "epsilon", "momentum"])
def normalise(
    images,
    found,
    scale,
    shift,
    means,
    squares,
    running_mean,
    running_variance,
    saved,
    count,
    channels,
    size,
    pieces,
    epsilon,
    momentum,
    affine: tl.constexpr,
    tracked: tl.constexpr,
    squash: tl.constexpr,
    alone: tl.constexpr,
    width: tl.constexpr,
    block: tl.constexpr,
):
    """Normalised, scaled, shifted and squashed images; `saved` (2 x channels) gets means and inverse deviations.

    Without weights (`affine`) nothing is scaled, without running statistics (`tracked`) none are kept. A channel of one
    piece (`alone`) finds its moments here; `width` is a power of two of at least as many as pieces.
    """
    channel, piece = tl.program_id(0), tl.program_id(1)
    place, real = _places(piece, channel, count, channels, size, block)
    values = tl.load(images + place, mask=real, other=0.0)
    if alone:
        mean = tl.sum(values, 0) / count
        around = tl.where(real, values - mean, 0.0)
        variance = tl.sum(around * around, 0) / count
    else:
        each = tl.arange(0, width)
        there = each < pieces
        mine = tl.load(means + channel * pieces + each, mask=there, other=0.0)
        inside = tl.load(squares + channel * pieces + each, mask=there, other=0.0)
        sizes = tl.where(there, tl.minimum(count - each * block, block), 0).to(tl.float32)
        mean = tl.sum(mine * sizes, 0) / count
        apart = mine - mean
        variance = tl.sum(inside + sizes * apart * apart, 0) / count
    inverse = 1.0 / tl.sqrt(variance + epsilon)
    before = _scaled((values - mean) * inverse, scale, shift, channel, affine)
    tl.store(found + place, _squashed(before, squash), mask=real)
    if piece == 0:
        tl.store(saved + channel, mean)
        tl.store(saved + channels + channel, inverse)
    if tracked and piece == 0:
        old, spread = tl.load(running_mean + channel), tl.load(running_variance + channel)
        tl.store(running_mean + channel, old + momentum * (mean - old))
        unbiased = variance * (count / (count - 1.0))
        tl.store(running_variance + channel, spread + momentum * (unbiased - spread))


@triton.jit
def _slopes(
    images, change, scale, shift, saved, channel, channels, place, real, affine: tl.constexpr, squash: tl.constexpr
):
    """Slopes by normalised, scaled values, and the normalised values; zero where there is no element."""
    mean, inverse = tl.load(saved + channel), tl.load(saved + channels + channel)
    normal = (tl.load(images + place, mask=real, other=0.0) - mean) * inverse
    before = _scaled(normal, scale, shift, channel, affine)
    slope = _passed(tl.load(change + place, mask=real, other=0.0), before, squash)
    return slope, tl.where(real, normal, 0.0)


@triton.jit(do_not_specialize=["count", "channels", "size", "pieces"])
def sums(
    images,
    change,
    scale,
    shift,
    saved,
    parts,
    count,
    channels,
    size,
    pieces,
    affine: tl.constexpr,
    squash: tl.constexpr,
    block: tl.constexpr,
):
    """Of each piece the sums of slopes and of slopes times normalised values (2 x channels x pieces)."""
    channel, piece = tl.program_id(0), tl.program_id(1)
    place, real = _places(piece, channel, count, channels, size, block)
    slope, normal = _slopes(images, change, scale, shift, saved, channel, channels, place, real, affine, squash)
    tl.store(parts + channel * pieces + piece, tl.sum(slope, 0))
    tl.store(parts + (channels + channel) * pieces + piece, tl.sum(slope * normal, 0))


@triton.jit(do_not_specialize=["count", "channels", "size", "pieces"])
def differentiate(
    images,
    change,
    scale,
    shift,
    saved,
    parts,
    found,
    of_shift_and_scale,
    count,
    channels,
    size,
    pieces,
    affine: tl.constexpr,
    squash: tl.constexpr,
    alone: tl.constexpr,
    width: tl.constexpr,
    block: tl.constexpr,
):
    """The loss's slopes by images, and by shift and scale (2 x channels)."""
    channel, piece = tl.program_id(0), tl.program_id(1)
    place, real = _places(piece, channel, count, channels, size, block)
    slope, normal = _slopes(images, change, scale, shift, saved, channel, channels, place, real, affine, squash)
    if alone:
        by_shift, by_scale = tl.sum(slope, 0), tl.sum(slope * normal, 0)
    else:
        each = tl.arange(0, width)
        there = each < pieces
        by_shift = tl.sum(tl.load(parts + channel * pieces + each, mask=there, other=0.0), 0)
        by_scale = tl.sum(tl.load(parts + (channels + channel) * pieces + each, mask=there, other=0.0), 0)
    factor = tl.load(saved + channels + channel)
    if affine:
        factor *= tl.load(scale + channel)
    tl.store(found + place, factor * (slope - (by_shift + normal * by_scale) / count), mask=real)
    if affine and piece == 0:
        tl.store(of_shift_and_scale + channel, by_shift)
        tl.store(of_shift_and_scale + channels + channel, by_scale)


@triton.jit(do_not_specialize=["rows", "channels", "high", "wide", "out_high", "out_wide", "above", "left", "shares"])
def depthwise_weights(
    images,
    change,
    parts,
    rows,
    channels,
    high,
    wide,
    out_high,
    out_wide,
    above,
    left,
    shares,
    down: tl.constexpr,
    across: tl.constexpr,
    tall: tl.constexpr,
    broad: tl.constexpr,
    taps: tl.constexpr,
    block: tl.constexpr,
):
    """The loss's slopes by the weights of a channel (tall x broad), in shares (shares x channels x tall broad).

    Strides are down and across, zeros above and left of the images; taps is a power of two of at least tall x broad.
    """
    channel, share = tl.program_id(0), tl.program_id(1)
    tap = tl.arange(0, taps)
    used = (tap < tall * broad)[:, None]
    tap_y, tap_x = (tap // broad)[:, None] - above, (tap % broad)[:, None] - left
    size = out_high * out_wide
    count = rows * size
    total = tl.zeros((taps, block), tl.float32)
    for start in range(share * block, count, shares * block):
        at = start + tl.arange(0, block)
        real = at < count
        plane = (at // size) * channels + channel
        inside = at % size
        slope = tl.load(change + plane * size + inside, mask=real, other=0.0)
        y = (inside // out_wide)[None, :] * down + tap_y
        x = (inside % out_wide)[None, :] * across + tap_x
        seen = used & real[None, :] & (y >= 0) & (y < high) & (x >= 0) & (x < wide)
        values = tl.load(images + (plane * high * wide)[None, :] + y * wide + x, mask=seen, other=0.0)
        total += values * slope[None, :]
    place = parts + (share * channels + channel) * tall * broad + tap
    tl.store(place, tl.sum(total, 1), mask=tap < tall * broad)
