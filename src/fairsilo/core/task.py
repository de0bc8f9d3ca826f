"""What a network is trained for: the loss, and how its predictions are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Measure:
    """Mean loss (accumulated in float64) and metric of a model on some samples."""

    loss: float
    metric: float
    samples: int


class Task(Protocol):
    """What silos and methods ask of a task; one file each in `tasks/`."""

    @property
    def name(self) -> str: ...

    @property
    def classes(self) -> int: ...

    @property
    def guess(self) -> float:
        """The loss of a guess that knows nothing."""
        ...

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """What is trained: the mean over a batch."""
        ...

    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Sums over a batch in float64, from which `measure` is computed: tallies of batches add up."""
        ...

    def measure(self, tally: Tensor) -> Measure:
        """Loss and metric of all samples that a tally holds."""
        ...
