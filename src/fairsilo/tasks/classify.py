"""Classification: one class per sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core.streams import Batches
from fairsilo.core.task import Ending, Measure, Metric
from fairsilo.tasks.augmentation import augmented, draws
from fairsilo.tasks.losses import entropies, focal, shares
from fairsilo.tasks.metrics import CLASSIFY
from fairsilo.tasks.options import Options
from fairsilo.tasks.standard_errors import of_areas, of_confusion, of_mean

LOSSES = ("cross-entropy", "focal")
BINS = 15  # of confidence
STEPS = 100  # of scores
LARGEST = 64  # classes whose confusion is kept: its size is their square


@dataclass(frozen=True)
class Classify:
    """Cross-entropy or focal loss; accuracy and what else a confusion matrix, confidence and scores tell."""

    classes: int
    metric: str = "accuracy"  # the name of the one that is reported
    name: str = "classify"
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.options.chosen(self.name, LOSSES, weights=LOSSES, gamma=("focal",), smoothing=("cross-entropy",))

    @property
    def output(self) -> Ending:
        return Ending(self.classes)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return CLASSIFY

    @property
    def reported(self) -> Metric:
        return next(one for one in self.metrics if one.name == self.metric)

    @property
    def guess(self) -> float:
        """The loss of saying that all classes are equally likely."""
        if self.options.loss == "focal":
            mean = sum(self.options.weights) / self.classes if self.options.weights else 1.0
            return mean * math.pow(1 - 1 / self.classes, self.options.gamma) * math.log(self.classes)
        return math.log(self.classes)

    @property
    def separable(self) -> bool:
        """A weighted cross-entropy is divided by the weights of its whole batch, so that one sample alone has none."""
        return self.options.loss == "focal" or not self.options.weights

    @property
    def per_class(self) -> tuple[str, ...]:
        return ("samples", "right", "predicted")

    @property
    def per_pair(self) -> tuple[str, ...]:
        return ("confusion",) if self.classes <= LARGEST else ()

    # -------------------------------------------------------------------------------------------------------- training
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        chosen = self.options
        if chosen.loss == "focal":
            return focal(prediction, targets, chosen.weights, chosen.gamma).mean()
        if not chosen.weights:
            return F.cross_entropy(prediction, targets, label_smoothing=chosen.smoothing)
        losses, counts = entropies(prediction, targets, chosen.weights, chosen.smoothing)
        return losses.sum() / counts.sum()

    def blended(self, targets: Tensor) -> Tensor:
        """The share of each class."""
        return shares(targets, self.classes)

    def predicted(self, prediction: Tensor) -> Tensor:
        """Probabilities."""
        return prediction.softmax(1)

    # ------------------------------------------------------------------------------------------------------- measuring
    @cached_property
    def _parts(self) -> tuple[int, ...]:
        """The lengths of what a tally holds: losses and their counts, confusion, calibration, scores."""
        return 2, self.classes**2, 4 * BINS, 2 * STEPS * self.classes

    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Sums in float64: tallies of batches add up."""
        scores = prediction.double()
        if self.options.loss == "focal":
            losses = focal(scores, targets, self.options.weights, self.options.gamma)
            counts = torch.ones_like(losses)
        else:
            losses, counts = entropies(scores, targets, self.options.weights, self.options.smoothing)
        shares = scores.softmax(1)
        answer = prediction.argmax(1)
        return torch.cat(
            [
                torch.stack([losses.sum(), counts.sum()]),
                counts_of(targets * self.classes + answer, self.classes**2),
                calibration(shares.amax(1), answer == targets),
                histograms(shares, targets),
            ]
        )

    def measure(self, tally: Tensor) -> Measure:
        losses, confusion, certainty, scores = torch.split(tally.cpu(), list(self._parts))
        table = confusion.view(self.classes, self.classes)
        samples, right, said = table.sum(1), table.diag(), table.sum(0)
        metrics = from_confusion(table)
        errors: dict[str, float | None] = {**of_confusion(table)}
        areas = areas_under_curves(scores.view(self.classes, 2, STEPS))
        if len(areas[0]):
            metrics["auroc"] = float(areas[0].mean())
            errors["auroc"] = of_areas(*areas)
        metrics["ece"], errors["ece"] = calibration_error(certainty)
        per_class = {
            "samples": tuple(samples.tolist()),
            "right": tuple(right.tolist()),
            "predicted": tuple(said.tolist()),
        }
        per_pair = {"confusion": tuple(map(tuple, table.tolist()))} if self.per_pair else {}
        found = float(losses[0] / losses[1])
        known = {name: error for name, error in errors.items() if error is not None}
        return Measure(found, metrics[self.metric], int(samples.sum()), metrics, per_class, per_pair, known)

    # ------------------------------------------------------------------------------------------------------------ data
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

    def draws(self, kinds: str, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        return draws(kinds, shape, batches)

    def augment(self, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return augmented(inputs, drawn), targets

    def caption(self, target: Tensor, classes: Sequence[str]) -> str:
        return classes[int(target)]


def from_confusion(table: Tensor) -> dict[str, float]:
    """What a confusion matrix (true x predicted) tells; of classes that no sample has nothing can be told."""
    samples, right, said = table.sum(1), table.diag(), table.sum(0)
    total, present = samples.sum(), samples > 0
    found = right[present] / samples[present]
    others, falsely = (total - samples)[present], (said - right)[present]
    metrics = {
        "accuracy": float(right.sum() / total),
        "balanced-accuracy": float(found.mean()),
        "macro-f1": float((2 * right / (samples + said).clamp(min=1))[present].mean()),
        "sensitivity": float(found.mean()),
    }
    if (others > 0).any():
        metrics["specificity"] = float((1 - falsely / others)[others > 0].mean())
    if len(table) == 2:  # the second class is the finding, the first its absence
        shares = right / samples
        for name, number in (("sensitivity", 1), ("specificity", 0)):
            metrics.pop(name, None)
            if present[number]:
                metrics[name] = float(shares[number])
    return metrics


def counts_of(places: Tensor, size: int, weights: Tensor | None = None) -> Tensor:
    """How often each place comes, or the sum of the weights there, in float64. (`bincount` waits for a GPU.)"""
    found = torch.zeros(size, dtype=torch.float64, device=places.device)
    return found.index_add_(0, places, torch.ones_like(places).double() if weights is None else weights.double())


def calibration(confidence: Tensor, right: Tensor) -> Tensor:
    """For each bin of confidence: samples, the sum of their confidence, right answers, squares of the difference."""
    place = (confidence * BINS).long().clamp(0, BINS - 1)
    counted = [torch.ones_like(confidence), confidence, right.double(), (confidence - right.double()).square()]
    return torch.cat([counts_of(place, BINS, one) for one in counted])


def calibration_error(sums: Tensor) -> tuple[float, float | None]:
    """The mean over samples of confidence minus rightness, with the sign of its bin; and its standard error."""
    samples, confidence, right, squares = sums.view(4, BINS)
    total, count = float((confidence - right).abs().sum()), float(samples.sum())
    return total / count, of_mean(total, float(squares.sum()), count)


def histograms(shares: Tensor, targets: Tensor) -> Tensor:
    """How often each class gets each score, from samples of other classes and from its own."""
    classes = shares.shape[1]
    place = (shares * STEPS).long().clamp(0, STEPS - 1)
    own = torch.arange(classes, device=shares.device) == targets[:, None]
    rows = 2 * torch.arange(classes, device=shares.device) + own
    return counts_of((rows * STEPS + place).flatten(), 2 * classes * STEPS)


def areas_under_curves(counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the classes that some samples have and some have not: area, samples of the class, samples of others.

    Equal scores count half.
    """
    others, own = counts.unbind(1)
    below = others.cumsum(1) - others
    wins = (own * (below + others / 2)).sum(1)
    own, others = own.sum(1), others.sum(1)
    known = own * others > 0
    return (wins / (own * others))[known], own[known], others[known]
