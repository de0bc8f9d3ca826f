"""The next character of a text: a class for each window of characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.streams import Batches
from fairsilo.core.task import Measure, Metric
from fairsilo.tasks.classify import Classify
from fairsilo.tasks.losses import entropies
from fairsilo.tasks.metrics import NEXT_CHARACTER
from fairsilo.tasks.standard_errors import of_share


@dataclass(frozen=True)
class NextCharacter(Classify):
    """Cross-entropy and accuracy over a vocabulary: which characters a silo's text lacks says nothing about it."""

    name: str = "next-character"

    def __post_init__(self) -> None:
        self.options.chosen(self.name, ("cross-entropy",), smoothing=("cross-entropy",))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return NEXT_CHARACTER

    @property
    def per_class(self) -> tuple[str, ...]:
        return ()

    @property
    def per_pair(self) -> tuple[str, ...]:
        return ()

    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        losses, counts = entropies(prediction.double(), targets, (), self.options.smoothing)
        right = (prediction.argmax(1) == targets).double()
        return torch.stack([losses.sum(), counts.sum(), right.sum()])

    def measure(self, tally: Tensor) -> Measure:
        losses, samples, right = tally.tolist()
        share = right / samples
        errors = {"accuracy": of_share(share, samples)}
        return Measure(losses / samples, share, int(samples), {"accuracy": share}, errors=errors)

    def strata(self, targets: Tensor) -> Tensor:
        return torch.zeros_like(targets)

    def occurrences(self, targets: Tensor) -> Tensor | None:
        return None

    def draws(self, kinds: str, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        return {}

    def augment(self, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return inputs, targets

    def caption(self, target: Tensor, classes: Sequence[str]) -> str:
        return f"then {classes[int(target)]!r}"
