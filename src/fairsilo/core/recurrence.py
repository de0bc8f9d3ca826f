"""LSTM layers as one kernel each: many lanes, or many runs, on one GPU then train side by side.

cuDNN launches kernels for every step of a sequence where products are float32 or TF32: two layers over 80 characters
and back are about a thousand for a batch of ten, each hardly longer than its launch, and lanes queue for launches.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from fairsilo.errors import FairsiloError

TILE = 16  # sequences of a program: the fewest that tensor cores multiply
LEAST = 32  # hidden units
ADDRESSES = 2**31  # kernels count in int32
ROOM = 140 * 1024  # bytes of shared memory that blocks of 256 units take


class Shape(NamedTuple):
    """How a program cuts up its work; the fastest of a dozen on an H200 for 256 units, with 100 programs at once."""

    block: int  # hidden units at a time
    slab: int  # how deep a slice of the recurrent matrix is read at a time
    warps: int
    stages: int  # slices on their way from the cache


FORWARD = Shape(256, 16, 8, 3)
BACKWARD = Shape(256, 64, 8, 3)
States: TypeAlias = tuple[Tensor, Tensor]


def by_layers(module: nn.Module) -> None:
    """Let the LSTM layers of a network on a GPU be computed so, where they are plain ones.

    Raises:
        FairsiloError: Triton is not there.
    """
    for one in module.modules():
        if type(one) is nn.LSTM and _plain(one):
            if find_spec("triton") is None:
                raise FairsiloError(
                    "engine.recurrence=layers needs Triton, which comes with PyTorch's builds for GPUs; "
                    "set engine.recurrence=steps"
                )
            one.__class__ = LayeredLSTM


def _plain(lstm: nn.LSTM) -> bool:
    width = lstm.hidden_size
    power = width >= LEAST and width & (width - 1) == 0
    plain = lstm.bias and not (lstm.bidirectional or lstm.proj_size)
    return power and plain and lstm.weight_hh_l0.dtype == torch.float32


class LayeredLSTM(nn.LSTM):
    def forward(self, input: Any, hx: States | None = None) -> tuple[Any, States]:
        if not isinstance(input, Tensor) or input.dim() != 3 or hx is not None:  # packed, or goes on from other states
            return super().forward(input, hx)
        cells = input.shape[0] * input.shape[1] * 4 * self.hidden_size
        if torch.is_autocast_enabled(input.device.type) or not 0 < cells < ADDRESSES:
            return super().forward(input, hx)
        return self._by_layers(input)

    def _by_layers(self, input: Tensor) -> tuple[Tensor, States]:
        states = input.transpose(0, 1) if self.batch_first else input
        last: list[Tensor] = []
        cells: list[Tensor] = []
        for layer in range(self.num_layers):
            if layer:
                states = nn.functional.dropout(states, self.dropout, self.training)
            tensors = (getattr(self, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            weight, recurrent, *biases = tensors
            states, cell = _Layer.apply(states, weight, recurrent, biases[0] + biases[1])  # type: ignore[no-untyped-call]
            last.append(states[-1])
            cells.append(cell)
        return states.transpose(0, 1) if self.batch_first else states, (torch.stack(last), torch.stack(cells))


class _Layer(torch.autograd.Function):
    """Inputs (steps x rows x inputs), weights and bias -> hidden states (steps x rows x width) and the last cells."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor) -> States:
        steps, rows, _ = inputs.shape
        width = recurrent.shape[1]
        gates = torch.addmm(bias, inputs.reshape(steps * rows, -1), weight.t())
        hidden, cells = (inputs.new_empty(steps + 1, rows, width) for _ in range(2))
        hidden[0].zero_()
        cells[0].zero_()
        _launch("forward", FORWARD, (gates, recurrent.t().contiguous(), hidden, cells), steps, rows, width)
        ctx.save_for_backward(inputs, weight, recurrent, gates, hidden, cells)
        return hidden[1:], cells[steps].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        above, of_cells = given
        inputs, weight, recurrent, gates, hidden, cells = ctx.saved_tensors
        steps, rows, width = above.shape
        slopes = above.new_empty(steps + 1, rows, 4 * width)
        slopes[steps].zero_()
        whole = recurrent.clone()  # where kernels read fastest: parameters lie end to end in one vector
        tensors = (above.contiguous(), gates, cells, whole, slopes, of_cells.clone())
        _launch("backward", BACKWARD, tensors, steps, rows, width)
        flat = slopes[:steps].view(steps * rows, 4 * width)
        flipped = flat.t()
        return (
            (flat @ weight).view_as(inputs) if ctx.needs_input_grad[0] else None,
            flipped @ inputs.reshape(steps * rows, -1),
            flipped @ hidden[:steps].view(steps * rows, width),
            flat.sum(0),
        )


def _launch(name: str, shape: Shape, tensors: tuple[Tensor, ...], steps: int, rows: int, width: int) -> None:
    kernel = getattr(importlib.import_module("fairsilo.core.lstm_kernels"), name)
    sizes = (width, TILE, min(_block(shape, tensors[0].device), width), min(shape.slab, width))
    precision = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    grid = ((rows + TILE - 1) // TILE,)
    kernel[grid](*tensors, steps, rows, *sizes, precision, num_warps=shape.warps, num_stages=shape.stages)


def _block(shape: Shape, device: torch.device) -> int:
    """Half of it where a multiprocessor has no room: 100 KB on GPUs for graphics, 160 or more on others."""
    if device.type != "cuda":
        return shape.block
    room = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", ROOM)
    return shape.block if room >= ROOM else shape.block // 2
