"""What a network is trained for: its loss and how a prediction is scored."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core.task import Measure


@dataclass(frozen=True)
class Classify:
    """Cross-entropy; accuracy or balanced accuracy (classes without a sample are left out of the balance)."""

    classes: int
    metric: str = "accuracy"
    name: str = "classify"

    @property
    def guess(self) -> float:
        """The loss of saying that all classes are equally likely."""
        return math.log(self.classes)

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
        samples = count.sum()
        score = right.sum() / samples
        if self.metric == "balanced-accuracy":
            present = count > 0
            score = (right[present] / count[present]).mean()
        return Measure(float(tally[0] / samples), float(score), int(samples))
