"""A step of `char-lstm` with cuDNN's kernels of a step each and with one kernel a layer: errors and milliseconds.

PYTHONPATH=src python benchmarks/lstm_kernels.py    (a GPU, and Triton, which comes with PyTorch's builds for GPUs)
"""

from __future__ import annotations

import copy
import time

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fairsilo.core.recurrence import by_layers
from fairsilo.models.char_lstm import CharLSTM


def slopes_of(network: CharLSTM, texts: Tensor, targets: Tensor, precision: str) -> list[Tensor]:
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision == "high"
    network.zero_grad(set_to_none=True)
    cross_entropy(network(texts).prediction, targets).backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


def milliseconds(network: CharLSTM, texts: Tensor, targets: Tensor, times: int = 50) -> float:
    """Of a step without its optimiser, replayed as a CUDA graph."""

    def step() -> None:
        network.zero_grad(set_to_none=False)
        cross_entropy(network(texts).prediction, targets).backward()

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
    layered = copy.deepcopy(network)
    by_layers(layered)
    for rows in (10, 1600):
        texts, targets = (torch.randint(0, 80, size, device="cuda") for size in ((rows, 80), (rows,)))
        exact = slopes_of(network, texts, targets, "highest")
        for name, one in (("steps", network), ("layers", layered)):
            found = slopes_of(one, texts, targets, "high")
            worst = max(float((mine - other).norm() / other.norm()) for mine, other in zip(found, exact, strict=True))
            took = milliseconds(one, texts, targets)
            print(f"{rows:5d} texts, {name:6s}: {took:6.2f} ms, gradients within {worst:.1e} of float32")


if __name__ == "__main__":
    main()
