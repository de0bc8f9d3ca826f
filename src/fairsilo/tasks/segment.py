"""Segmentation: one class per pixel; class 0 is the background, the others are structures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairsilo.core.streams import Batches
from fairsilo.core.task import Ending, Measure, Metric
from fairsilo.errors import FairsiloError
from fairsilo.tasks.augmentation import augmented, draws, moved
from fairsilo.tasks.losses import SMOOTH, entropies, masks, overlaps, shares, soft_dice
from fairsilo.tasks.metrics import SEGMENT
from fairsilo.tasks.options import Options
from fairsilo.tasks.standard_errors import of_mean, of_mean_of_means, products

LOSSES = ("ce+dice", "cross-entropy", "dice")


@dataclass(frozen=True)
class Segment:
    """(cross-entropy + soft Dice) / 2 over all classes; Dice per structure, and HD95 where it is what is reported."""

    classes: int
    metric: str = "dice"
    name: str = "segment"
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        weighing = ("ce+dice", "cross-entropy")
        self.options.chosen(self.name, LOSSES, weights=weighing, smoothing=weighing)
        if self.metric == "hd95":
            _distances()

    @property
    def output(self) -> Ending:
        return Ending(self.classes, "pixel")

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """HD95 takes long, so it is measured only where it is asked for."""
        return SEGMENT if self.metric == "hd95" else SEGMENT[:-1]

    @property
    def reported(self) -> Metric:
        return next(one for one in SEGMENT if one.name == self.metric)

    @property
    def guess(self) -> float:
        """The loss of saying that all classes are equally likely everywhere, half of it the Dice of even areas."""
        entropy = math.log(self.classes)
        return {"cross-entropy": entropy, "dice": 1 - 1 / self.classes}.get(
            self.options.loss, (entropy + 1 - 1 / self.classes) / 2
        )

    @property
    def per_class(self) -> tuple[str, ...]:
        return ("samples", "dice")

    @property
    def per_pair(self) -> tuple[str, ...]:
        return ()

    # -------------------------------------------------------------------------------------------------------- training
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        targets = targets if targets.is_floating_point() else targets.long()
        losses, counts = entropies(prediction, targets, self.options.weights, self.options.smoothing)
        areas = overlaps(prediction.softmax(1), masks(targets, self.classes, prediction.dtype))
        return self._joint(losses.sum() / counts.sum(), soft_dice(*(one.sum(0) for one in areas)))

    def _joint(self, entropy: Tensor, dice: Tensor) -> Tensor:
        chosen = self.options.loss or LOSSES[0]
        return {"cross-entropy": entropy, "dice": dice}.get(chosen, (entropy + dice) / 2)

    def blended(self, targets: Tensor) -> Tensor:
        """The share of each class at each pixel."""
        return shares(targets, self.classes)

    def predicted(self, prediction: Tensor) -> Tensor:
        """Probabilities of each pixel."""
        return prediction.softmax(1)

    # ------------------------------------------------------------------------------------------------------- measuring
    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Sums in float64; the loss of several batches is that of one large one."""
        targets, scores = targets.long(), prediction.double()
        losses, counts = entropies(scores, targets, self.options.weights, self.options.smoothing)
        true = masks(targets, self.classes, torch.float64)
        soft = overlaps(scores.softmax(1), true)
        answer = prediction.argmax(1)
        said = masks(answer, self.classes, torch.float64)
        together, predicted, actual = overlaps(said, true)
        shown = predicted + actual > 0
        dice = torch.where(shown, 2 * together / (predicted + actual).clamp(min=1), 0.0)
        released = 2 * together / (predicted + actual + SMOOTH)
        rows = [*(one.sum(0) for one in (*soft, released, dice, shown.double(), (actual > 0).double()))]
        squares = released.mean(1).square().sum()  # of each image's mean, for the error of grace-dice
        heads = torch.stack([losses.sum(), counts.sum(), squares, scores.new_full((), len(scores))])
        return torch.cat([heads, *rows, products(dice, shown), *self._outlines(said, true)])

    def _outlines(self, said: Tensor, true: Tensor) -> list[Tensor]:
        """HD95 of each class, where it is asked for; sums and counts are on the diagonals of the products."""
        if self.metric != "hd95":
            return []
        with warnings.catch_warnings():  # of MONAI about itself
            warnings.simplefilter("ignore")
            found = _distances()(said, true, include_background=True, percentile=95).to(said)  # B x K
        known = found.isfinite()
        return [products(torch.where(known, found, 0.0), known)]

    def measure(self, tally: Tensor) -> Measure:
        tally = tally.cpu()
        heads, rows, paired = torch.split(tally, [4, 7 * self.classes, len(tally) - 4 - 7 * self.classes])
        together, predicted, true, released, dice, shown, samples = rows.view(7, self.classes)
        by_pair = paired.view(-1, 3 * self.classes**2)
        loss = self._joint(heads[0] / heads[1], soft_dice(together, predicted, true))
        means, images = dice / shown.clamp(min=1), float(heads[3])
        known = shown > 0
        structures = torch.arange(self.classes) > 0
        metrics, errors = {}, {}
        for name, chosen in (("dice", known & structures), ("dice-with-background", known)):
            if chosen.any():
                metrics[name], errors[name] = float(means[chosen].mean()), of_mean_of_means(by_pair[0], chosen)
        each = float((released / self.classes).sum())
        metrics["grace-dice"], errors["grace-dice"] = each / images, of_mean(each, float(heads[2]), images)
        if self.metric == "hd95":
            _, distances, counts = by_pair[1].view(3, self.classes, self.classes).diagonal(dim1=1, dim2=2)
            chosen = structures & (counts > 0)
            if chosen.any():
                metrics["hd95"] = float((distances / counts)[chosen].mean())
                errors["hd95"] = of_mean_of_means(by_pair[1], chosen)
        if self.metric not in metrics:
            raise ValueError(f"{self.metric} is undefined here: no image shows a structure, and none is predicted")
        per_class = {"samples": tuple(samples.tolist()), "dice": tuple(means.tolist())}
        certain = {name: error for name, error in errors.items() if error is not None}
        return Measure(float(loss), metrics[self.metric], int(images), metrics, per_class, errors=certain)

    # ------------------------------------------------------------------------------------------------------------ data
    def strata(self, targets: Tensor) -> Tensor:
        """Which structures an image shows, as a number with one bit for each."""
        shown = torch.stack([(targets == one).flatten(1).any(1) for one in range(1, min(self.classes, 32))], 1)
        return (shown.long() << torch.arange(shown.shape[1])).sum(1)

    def occurrences(self, targets: Tensor) -> Tensor | None:
        """Images that show each class."""
        return torch.stack([(targets == one).flatten(1).any(1).sum() for one in range(self.classes)])

    def fault(self, targets: Tensor) -> str | None:
        if targets.dim() != 3 or targets.is_floating_point():
            shape = "x".join(map(str, targets.shape[1:])) or "one number"
            return f"has targets of {shape} for an image; masks are height x width class numbers"
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= self.classes:
            return f"has masks with classes from {low} to {high}, and there are {self.classes}, numbered from 0"
        return None

    def draws(self, kinds: str, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        return draws(kinds, shape, batches)

    def augment(self, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Masks follow their images; what a crop lets in from outside is background."""
        masks = targets.unsqueeze(1).to(inputs.dtype)  # class numbers are exact in floats
        return augmented(inputs, drawn), moved(masks, drawn, nearest=True).squeeze(1).to(targets.dtype)

    def caption(self, target: Tensor, classes: Sequence[str]) -> str:
        shown = [name for number, name in enumerate(classes) if number and bool((target == number).any())]
        return ", ".join(shown) or "no structure"


def _distances() -> Any:
    """MONAI's distances between outlines."""
    try:
        from monai import metrics  # slow to import, and an extra
    except ImportError:
        raise FairsiloError(
            "hd95 is computed by MONAI; install it with `pip install 'fairsilo[medical]'`, or report dice"
        ) from None
    return metrics.compute_hausdorff_distance  # type: ignore[attr-defined]
