"""Classification: one class per sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core.task import Ending, Measure, Metric
from fairsilo.tasks.augmentation import augmented, draws

METRICS = (
    Metric("accuracy", "share of samples whose class is predicted"),
    Metric("balanced-accuracy", "mean over the classes present in the samples of the share predicted of each"),
)


@dataclass(frozen=True)
class Classify:
    """Cross-entropy; accuracy, and balanced accuracy over the classes that the samples have."""

    classes: int
    metric: str = "accuracy"  # the name of the one that is reported
    name: str = "classify"

    @property
    def output(self) -> Ending:
        return Ending(self.classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return METRICS

    @property
    def reported(self) -> Metric:
        return next(one for one in METRICS if one.name == self.metric)

    @property
    def guess(self) -> float:
        """The loss of saying that all classes are equally likely."""
        return math.log(self.classes)

    @property
    def per_class(self) -> tuple[str, ...]:
        return ("samples", "right")

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)

    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Loss sum, then right answers and samples per class, in float64: tallies of batches add up."""
        losses = F.cross_entropy(prediction.double(), targets, reduction="none")
        right = (prediction.argmax(1) == targets).double()
        member = F.one_hot(targets, self.classes).double()
        return torch.cat([losses.sum().reshape(1), right @ member, member.sum(0)])

    def measure(self, tally: Tensor) -> Measure:
        right, count = tally[1 : 1 + self.classes], tally[1 + self.classes :]
        samples, present = count.sum(), count > 0
        metrics = {
            "accuracy": float(right.sum() / samples),
            "balanced-accuracy": float((right[present] / count[present]).mean()),
        }
        per_class = {"samples": tuple(count.tolist()), "right": tuple(right.tolist())}
        return Measure(float(tally[0] / samples), metrics[self.metric], int(samples), metrics, per_class)

    def strata(self, targets: Tensor) -> Tensor:
        return targets

    def occurrences(self, targets: Tensor) -> Tensor | None:
        return None if targets.is_floating_point() else torch.bincount(targets, minlength=self.classes)

    def fault(self, targets: Tensor) -> str | None:
        if targets.is_floating_point():  # of a loss of the user's own
            return None
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= self.classes:
            return f"has labels from {low} to {high}, and there are {self.classes} classes, numbered from 0"
        return None

    def draws(self, kinds: str, count: int, shape: tuple[int, ...], stream: torch.Generator) -> dict[str, Tensor]:
        return draws(kinds, count, shape, stream)

    def augment(self, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return augmented(inputs, drawn), targets

    def caption(self, target: Tensor, classes: Sequence[str]) -> str:
        return classes[int(target)]
