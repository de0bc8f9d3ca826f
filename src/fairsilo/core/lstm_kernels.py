"""The recurrence of an LSTM layer as one kernel, forward and backward, in Triton.

A program walks through time by itself with 16 sequences, and reads the recurrent matrix from the GPU's cache at every
step: alone that is slower than cuDNN's kernels of a step each, and it scales with a GPU's multiprocessors.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit(do_not_specialize=["steps", "rows"])
def forward(
    gates,
    weight,
    hidden,
    cells,
    steps,
    rows,
    width: tl.constexpr,
    tile: tl.constexpr,
    block: tl.constexpr,
    slab: tl.constexpr,
    precision: tl.constexpr,
):
    """Gates (steps x rows x 4 width: input, forget, candidate, output) hold what inputs and biases add, then the gates.

    Hidden states and cells (steps + 1 x rows x width) begin with those before the first step; the weight is width x
    4 width.
    """
    row = tl.program_id(0) * tile + tl.arange(0, tile)
    real = (row < rows)[:, None]
    for step in range(steps):
        now = gates + step * rows * 4 * width + row[:, None] * 4 * width
        before = step * rows * width + row[:, None] * width
        after = before + rows * width
        for unit in range(0, width, block):
            column = unit + tl.arange(0, block)[None, :]
            i = tl.load(now + column, mask=real, other=0.0)
            f = tl.load(now + width + column, mask=real, other=0.0)
            g = tl.load(now + 2 * width + column, mask=real, other=0.0)
            o = tl.load(now + 3 * width + column, mask=real, other=0.0)
            for depth in range(0, width, slab):
                along = depth + tl.arange(0, slab)
                h = tl.load(hidden + before + along[None, :], mask=real, other=0.0)
                w = weight + along[:, None] * 4 * width + column
                i = tl.dot(h, tl.load(w), i, input_precision=precision)
                f = tl.dot(h, tl.load(w + width), f, input_precision=precision)
                g = tl.dot(h, tl.load(w + 2 * width), g, input_precision=precision)
                o = tl.dot(h, tl.load(w + 3 * width), o, input_precision=precision)
            i, f, g, o = tl.sigmoid(i), tl.sigmoid(f), _tanh(g), tl.sigmoid(o)
            c = f * tl.load(cells + before + column, mask=real, other=0.0) + i * g
            tl.store(now + column, i, mask=real)
            tl.store(now + width + column, f, mask=real)
            tl.store(now + 2 * width + column, g, mask=real)
            tl.store(now + 3 * width + column, o, mask=real)
            tl.store(cells + after + column, c, mask=real)
            tl.store(hidden + after + column, o * _tanh(c), mask=real)
        tl.debug_barrier()  # the next step reads what other threads have just written


@triton.jit(do_not_specialize=["steps", "rows"])
def backward(
    above,
    gates,
    cells,
    weight,
    slopes,
    carried,
    steps,
    rows,
    width: tl.constexpr,
    tile: tl.constexpr,
    block: tl.constexpr,
    slab: tl.constexpr,
    precision: tl.constexpr,
):
    """Slopes (steps + 1 x rows x 4 width, the last zero) become the loss's by the gates before their squashing.

    Above (steps x rows x width) are the loss's by hidden states, without what later steps add; carried (rows x width)
    those by the last cells, then by each before it; the weight is 4 width x width.
    """
    row = tl.program_id(0) * tile + tl.arange(0, tile)
    real = (row < rows)[:, None]
    for back in range(steps):
        step = steps - 1 - back
        here = step * rows * width + row[:, None] * width
        wide = step * rows * 4 * width + row[:, None] * 4 * width
        later = slopes + wide + rows * 4 * width
        for unit in range(0, width, block):
            column = unit + tl.arange(0, block)[None, :]
            dh = tl.load(above + here + column, mask=real, other=0.0)
            for depth in range(0, 4 * width, slab):
                along = depth + tl.arange(0, slab)
                slope = tl.load(later + along[None, :], mask=real, other=0.0)
                w = tl.load(weight + along[:, None] * width + column)
                dh = tl.dot(slope, w, dh, input_precision=precision)
            i = tl.load(gates + wide + column, mask=real, other=0.0)
            f = tl.load(gates + wide + width + column, mask=real, other=0.0)
            g = tl.load(gates + wide + 2 * width + column, mask=real, other=0.0)
            o = tl.load(gates + wide + 3 * width + column, mask=real, other=0.0)
            c = tl.load(cells + here + column, mask=real, other=0.0)
            squashed = _tanh(tl.load(cells + here + rows * width + column, mask=real, other=0.0))
            kept = carried + row[:, None] * width + column
            dc = tl.load(kept, mask=real, other=0.0) + dh * o * (1 - squashed * squashed)
            tl.store(slopes + wide + column, dc * g * i * (1 - i), mask=real)
            tl.store(slopes + wide + width + column, dc * c * f * (1 - f), mask=real)
            tl.store(slopes + wide + 2 * width + column, dc * i * (1 - g * g), mask=real)
            tl.store(slopes + wide + 3 * width + column, dh * squashed * o * (1 - o), mask=real)
            tl.store(kept, dc * f, mask=real)
        tl.debug_barrier()
