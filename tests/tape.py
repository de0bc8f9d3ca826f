"""Records a step as a CUDA graph does, on any machine: its operations are made again, in place, on the same tensors.

What differs between silos and is not held, what depends on the value of a tensor, and what Python counts in a step, all
show as they would on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairsilo.core.recording import Recorded, Recordings

aten = torch.ops.aten
WAITING = {  # a GPU's recording cannot wait for a value, nor for one of Python's on its way to the GPU
    aten.lift_fresh.default,
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten._unique2.default,
    aten.masked_select.default,
    aten.index.Tensor,  # by a mask; by numbers it is fine, as `_waits` knows
}


class LooksError(RuntimeError):
    pass


class Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any], Any]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function in WAITING and _waits(function, args):
            raise LooksError(f"a step that looks at values cannot be recorded ({function})")
        result = function(*args, **(kwargs or {}))
        self.done.append((function, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def again(self) -> None:
        for function, args, kwargs, result in self.done:
            for before, now in zip(tree_leaves(result), tree_leaves(function(*args, **kwargs)), strict=True):
                if isinstance(before, Tensor) and before.data_ptr() != now.data_ptr():
                    before.copy_(now)


def _waits(function: Any, args: Sequence[Any]) -> bool:
    if function is not aten.index.Tensor:
        return True
    return any(one is not None and one.dtype == torch.bool for one in args[1])


class OnTape(Recordings):
    """Recordings by tape; counts what was recorded and what was made again."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded = self.replayed = 0

    def record(self, step: Callable[[], Tensor]) -> Recorded | None:
        tape = Tape()
        try:
            with tape:
                result = step()
        except LooksError as problem:  # as on a GPU such a step is made; what it did until then is done twice here
            self.failed(problem)
            return None
        self.recorded += 1

        def again() -> None:
            self.replayed += 1
            tape.again()

        return Recorded(result, again, step)
