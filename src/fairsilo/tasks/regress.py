"""Regression: one number per sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fairsilo.core.streams import Batches
from fairsilo.core.task import Ending, Measure, Metric
from fairsilo.tasks.augmentation import augmented, draws
from fairsilo.tasks.metrics import REGRESS
from fairsilo.tasks.options import Options
from fairsilo.tasks.standard_errors import of_explained, of_mean

LOSSES = ("squared", "absolute")
STRATA = 10


@dataclass(frozen=True)
class Regress:
    """Squared or absolute error of (y - offset) / scale; metrics are in the units of the data.

    Silos do not tell each other how large their numbers are, so offset and scale are for the user to give: networks
    learn numbers around 0 and 1 well, and others slowly or not at all.
    """

    classes: int = 0
    metric: str = "mae"
    name: str = "regress"
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.options.chosen(self.name, LOSSES, offset=LOSSES, scale=LOSSES)

    @property
    def output(self) -> Ending:
        return Ending(1)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return REGRESS

    @property
    def reported(self) -> Metric:
        return next(one for one in REGRESS if one.name == self.metric)

    @property
    def guess(self) -> float:
        """The loss of saying 0 where numbers vary by 1 around it."""
        return math.sqrt(2 / math.pi) if self.options.loss == "absolute" else 1.0

    @property
    def per_class(self) -> tuple[str, ...]:
        return ()

    @property
    def per_pair(self) -> tuple[str, ...]:
        return ()

    # -------------------------------------------------------------------------------------------------------- training
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        wanted = ((targets.double() - self.options.offset) / self.options.scale).to(prediction.dtype)
        return self._losses(prediction.flatten() - wanted.flatten()).mean()

    def _losses(self, errors: Tensor) -> Tensor:
        return errors.abs() if self.options.loss == "absolute" else errors.square()

    def blended(self, targets: Tensor) -> Tensor:
        """Their mean."""
        return targets.double().mean(1, keepdim=True)

    def predicted(self, prediction: Tensor) -> Tensor:
        """Numbers in the units of the data."""
        return prediction.double().flatten() * self.options.scale + self.options.offset

    # ------------------------------------------------------------------------------------------------------- measuring
    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        errors, wanted = self.predicted(prediction) - targets.double(), targets.double()
        losses = self._losses(errors / self.options.scale)
        # targets around the offset, so that the sum of squares loses no digits where they are large
        near = wanted - self.options.offset
        squares = errors.square()
        columns = [losses, errors.abs(), squares, squares**2, squares * near, squares * near**2]
        columns += [near**power for power in range(5)]
        return torch.stack([one.sum() for one in columns])

    def measure(self, tally: Tensor) -> Measure:
        losses, absolute, squared, fourth, *crossed, samples, near, near_squared, third, last = tally.tolist()
        metrics = {"mae": absolute / samples, "rmse": math.sqrt(squared / samples)}
        errors = {"mae": of_mean(absolute, squared, samples)}
        of_squares = of_mean(squared, fourth, samples)
        if of_squares is not None:
            errors["rmse"] = of_squares / (2 * metrics["rmse"]) if squared else 0.0
        variance = near_squared - near**2 / samples
        if variance > 0:
            metrics["r2"] = 1 - squared / variance
            powers = [samples, near, near_squared, third, last]
            errors["r2"] = of_explained((squared, fourth), powers, (crossed[0], crossed[1]))
        if self.metric not in metrics:
            raise ValueError(f"{self.metric} is undefined on {int(samples)} samples with equal targets")
        known = {name: error for name, error in errors.items() if error is not None}
        return Measure(losses / samples, metrics[self.metric], int(samples), metrics, errors=known)

    # ------------------------------------------------------------------------------------------------------------ data
    def strata(self, targets: Tensor) -> Tensor:
        """The tenth of the sorted numbers that each is in."""
        ranks = targets.argsort(stable=True).argsort(stable=True)
        return ranks * min(STRATA, len(targets)) // max(len(targets), 1)

    def occurrences(self, targets: Tensor) -> Tensor | None:
        return None

    def fault(self, targets: Tensor) -> str | None:
        if targets.dim() != 1:
            return f"has targets of {'x'.join(map(str, targets.shape[1:]))}; each sample has one number"
        return None if targets.isfinite().all() else "has a target that is no finite number"

    def draws(self, kinds: str, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        return draws(kinds, shape, batches)

    def augment(self, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return augmented(inputs, drawn), targets

    def caption(self, target: Tensor, classes: Sequence[str]) -> str:
        return f"{float(target):g}"
