"""What changes rounding, as settings of a run: the same on every engine, so that numbers are the run's and not the
machine's."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from fairsilo.config import EngineSettings


@dataclass(frozen=True)
class Arithmetic:
    """How networks compute.

    Args:
        precision: Of products in a network: float32; tf32 (a GPU's float32 with a mantissa of 10 bits); or bfloat16.
            Parameters, losses, optimisers and all that the server does stay float32.
        channels_last: Images in the memory order that some convolutions are faster in.
        onednn: Whether a CPU may use oneDNN's kernels.
        convolutions: Of a CPU: `kernels`, PyTorch's own; or `matrices`, products of them (core/convolutions.py).
        recurrence: Of a GPU: LSTM layers by `steps`, cuDNN's kernels; or by `layers`, one kernel each
            (core/recurrence.py).
        fused: Of a GPU: batch normalisation with its activation, and gradients of depthwise convolutions, by kernels of
            fairsilo's own (core/fused.py).
        deterministic: Of a GPU: kernels that give the same numbers every time. Others add numbers up in the order in
            which they happen to be ready, and after some rounds of training that is a matter of points.
    """

    precision: str = "float32"
    channels_last: bool = False
    onednn: bool = True
    convolutions: str = "kernels"
    recurrence: str = "steps"
    fused: bool = False
    deterministic: bool = False

    @classmethod
    def of(cls, settings: EngineSettings) -> Arithmetic:
        return cls(**{one.name: getattr(settings, one.name) for one in fields(cls)})

    @contextmanager
    def set(self) -> Iterator[None]:
        """Torch's own switches as they must be for a run; put back afterwards."""
        convolutions, kernels, short = torch.backends.cudnn, torch.backends.mkldnn, self.precision == "tf32"
        matrices = torch.get_float32_matmul_precision()
        before = convolutions.allow_tf32, kernels.enabled
        torch.set_float32_matmul_precision("high" if short else "highest")
        convolutions.allow_tf32 = short
        kernels.enabled = self.onednn and kernels.enabled  # type: ignore[assignment]
        try:
            with _deterministic() if self.deterministic else nullcontext():
                yield
        finally:
            torch.set_float32_matmul_precision(matrices)
            convolutions.allow_tf32, kernels.enabled = before

    def cast(self, device: torch.device) -> AbstractContextManager[object]:
        """Around a pass through a network."""
        if self.precision != "bfloat16":
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)

    def ordered(self, inputs: Tensor) -> Tensor:
        """Images in the memory order that was asked for."""
        if not self.channels_last or inputs.dim() != 4:
            return inputs
        return inputs.contiguous(memory_format=torch.channels_last)


@contextmanager
def _deterministic() -> Iterator[None]:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)  # an operation without such a kernel says so once
    memory.fill_uninitialized_memory = False  # nothing here reads what it has not written
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled


EXACT = Arithmetic()


def fast(device: str) -> Arithmetic:
    """What is fastest on a device while training still works: as measured (benchmarks/README.md)."""
    if device == "cuda" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return Arithmetic("bfloat16", channels_last=True)
    if platform.machine() in ("aarch64", "arm64"):
        return Arithmetic(onednn=False, convolutions="matrices")
    return Arithmetic(channels_last=True)
