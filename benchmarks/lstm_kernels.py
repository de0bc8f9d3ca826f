"""A step of `char-lstm` with cuDNN and with kernels of our own that launch once a layer: errors and milliseconds.

    PYTHONPATH=src python benchmarks/lstm_kernels.py    (a GPU, and Triton, which comes with PyTorch's builds for GPUs)

cuDNN launches kernels for every time step where products are float32 or TF32: two layers over 80 characters and back
are about a thousand for a batch of ten, each hardly longer than its launch, and lanes and runs side by side queue for
launches. Here a program walks through time by itself with 16 sequences; it reads the recurrent matrix from the GPU's
cache at every step. That is slower alone and scales with a GPU's multiprocessors; README.md has what was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import cross_entropy

from fairsilo.models.char_lstm import CharLSTM

TILE = 16  # sequences of a program: the fewest that tensor cores multiply


class Shape(NamedTuple):
    """How a program cuts up its work; the fastest of a dozen on an H200 for 256 units, with 100 programs at once."""

    block: int  # hidden units at a time
    slab: int  # how deep a slice of the recurrent matrix is read at a time
    warps: int
    stages: int  # slices on their way from the cache


FORWARD = Shape(256, 16, 8, 3)
BACKWARD = Shape(256, 64, 8, 3)


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit(do_not_specialize=["steps", "rows"])
def _forward(
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
                i = tl.dot(h, tl.load(w), i)
                f = tl.dot(h, tl.load(w + width), f)
                g = tl.dot(h, tl.load(w + 2 * width), g)
                o = tl.dot(h, tl.load(w + 3 * width), o)
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
def _backward(
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
):
    """Slopes (steps + 1 x rows x 4 width, the last zero) become the loss's by the gates before their squashing.

    Above (steps x rows x width) are the loss's by hidden states, without what later steps add; carried (rows x width,
    zero) those by a cell that the step after hands down; the weight is 4 width x width.
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
                dh = tl.dot(slope, tl.load(weight + along[:, None] * width + column), dh)
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


def _launch(kernel: Any, shape: Shape, tensors: tuple[Tensor, ...], steps: int, rows: int, width: int) -> None:
    block, slab = min(shape.block, width), min(shape.slab, width)
    kernel[((rows + TILE - 1) // TILE,)](
        *tensors, steps, rows, width, TILE, block, slab, num_warps=shape.warps, num_stages=shape.stages
    )


class Layer(torch.autograd.Function):
    """Inputs (steps x rows x inputs), nn.LSTM's weights and its biases' sum -> hidden states (steps x rows x width)."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor) -> Tensor:
        steps, rows, _ = inputs.shape
        width = recurrent.shape[1]
        gates = torch.addmm(bias, inputs.reshape(steps * rows, -1), weight.t())
        hidden, cells = (inputs.new_empty(steps + 1, rows, width) for _ in range(2))
        hidden[0].zero_()
        cells[0].zero_()
        _launch(_forward, FORWARD, (gates, recurrent.t().contiguous(), hidden, cells), steps, rows, width)
        ctx.save_for_backward(inputs, weight, recurrent, gates, hidden, cells)
        return hidden[1:]

    @staticmethod
    @torch.autograd.function.once_differentiable
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        inputs, weight, recurrent, gates, hidden, cells = ctx.saved_tensors
        steps, rows, width = above.shape
        slopes = above.new_empty(steps + 1, rows, 4 * width)
        slopes[steps].zero_()
        given = (above.contiguous(), gates, cells, recurrent.clone(), slopes, above.new_zeros(rows, width))
        _launch(_backward, BACKWARD, given, steps, rows, width)
        flat = slopes[:steps].view(steps * rows, 4 * width)
        flipped = flat.t()
        return (
            (flat @ weight).view_as(inputs) if ctx.needs_input_grad[0] else None,
            flipped @ inputs.reshape(steps * rows, -1),
            flipped @ hidden[:steps].view(steps * rows, width),
            flat.sum(0),
        )


TENSORS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def with_kernels(network: CharLSTM, texts: Tensor) -> Tensor:
    states = network.embedding(texts).transpose(0, 1)
    for layer in range(network.lstm.num_layers):
        weight, recurrent, *biases = (getattr(network.lstm, f"{kind}_l{layer}") for kind in TENSORS)
        states = Layer.apply(states, weight, recurrent, sum(biases))
    return network.head(states[-1])


def with_cudnn(network: CharLSTM, texts: Tensor) -> Tensor:
    return network(texts).prediction


Way = Callable[[CharLSTM, Tensor], Tensor]


def slopes_of(way: Way, network: CharLSTM, texts: Tensor, targets: Tensor, precision: str) -> list[Tensor]:
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision == "high"
    network.zero_grad(set_to_none=True)
    cross_entropy(way(network, texts), targets).backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


def milliseconds(way: Way, network: CharLSTM, texts: Tensor, targets: Tensor, times: int = 50) -> float:
    """Of a step without its optimiser, replayed as a CUDA graph."""

    def step() -> None:
        network.zero_grad(set_to_none=False)
        cross_entropy(way(network, texts), targets).backward()

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            step()
    graph.replay()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        graph.replay()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begun) / times


def main() -> None:
    torch.manual_seed(0)
    network = CharLSTM(80).cuda()
    for rows in (10, 1600):
        texts, targets = (torch.randint(0, 80, size, device="cuda") for size in ((rows, 80), (rows,)))
        exact = slopes_of(with_cudnn, network, texts, targets, "highest")
        for name, way in (("cuDNN", with_cudnn), ("kernels", with_kernels)):
            found = slopes_of(way, network, texts, targets, "high")
            worst = max(float((one - other).norm() / other.norm()) for one, other in zip(found, exact, strict=True))
            took = milliseconds(way, network, texts, targets)
            print(f"{rows:5d} texts, {name:8s}: {took:6.2f} ms, gradients within {worst:.1e} of float32")


if __name__ == "__main__":
    main()
