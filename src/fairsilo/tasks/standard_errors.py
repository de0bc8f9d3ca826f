"""Standard errors of metrics from the sums of a tally: how far a result would move on other samples of the same size.

Each is a function of sums over samples, so that tallies of batches add up. A metric that is no mean is taken as linear
near its value (delta method): its error is that of the mean over samples of its influence function.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

NOISE = 1e-12  # what rounding leaves of a variance that is 0, against the mean of squares


def of_mean(total: float, squares: float, samples: float) -> float | None:
    """Of a mean, from the sum of values and of their squares; a single sample tells no spread."""
    if samples < 2:
        return None
    spread = squares / samples - (total / samples) ** 2
    return math.sqrt(spread / (samples - 1)) if spread > NOISE * squares / samples else 0.0


def of_share(share: float, samples: float) -> float:
    """Of a share of samples: binomial."""
    return math.sqrt(share * (1 - share) / samples)


# -------------------------------------------------------------------------------------------------------------- classes
def of_confusion(table: Tensor) -> dict[str, float]:
    """Of what `classify.from_confusion` tells, from the same matrix (true x predicted).

    Shares of a class are binomial, given how many samples the class has; accuracy and F1 are over all samples.
    """
    samples, right = table.sum(1), table.diag()
    total, present = samples.sum(), samples > 0
    found, others = right / samples.clamp(min=1), total - samples
    variances = (found * (1 - found) / samples.clamp(min=1))[present]
    balanced = float(variances.sum().sqrt() / present.sum())
    errors = {
        "accuracy": of_share(float(right.sum() / total), float(total)),
        "balanced-accuracy": balanced,
        "macro-f1": _of_f1(table),
    }
    if len(table) == 2:
        return errors | {
            name: of_share(float(found[number]), float(samples[number]))
            for name, number in (("sensitivity", 1), ("specificity", 0))
            if present[number]
        }
    errors["sensitivity"] = balanced
    counted = present & (others > 0)
    if counted.any():
        # a sample of class j that is taken for k lowers the specificity of k by 1 / others_k, and that of no other
        costs = torch.where(counted, 1 / others.clamp(min=1), 0.0).expand_as(table).clone().fill_diagonal_(0)
        shares = table / samples.clamp(min=1)[:, None]
        spread = (shares * costs.square()).sum(1) - (shares * costs).sum(1).square()
        errors["specificity"] = float((samples * spread.clamp(min=0)).sum().sqrt() / counted.sum())
    return errors


def _of_f1(table: Tensor) -> float:
    """Delta method over the cells: dF_k = (2 [i = j = k] - F_k ([i = k] + [j = k])) / (samples_k + predictions_k)."""
    samples, right, said = table.sum(1), table.diag(), table.sum(0)
    present = samples > 0
    both = (samples + said).clamp(min=1)
    gains = torch.where(present, 1 / (both * present.sum()), 0.0)
    losses = gains * 2 * right / both
    influence = torch.diag(2 * gains) - losses[:, None] - losses[None, :]
    return float((table * influence.square()).sum().sqrt())


def of_areas(areas: Tensor, own: Tensor, others: Tensor) -> float:
    """Of the mean of areas under curves: Hanley and McNeil (1982) for each, from the samples on both sides.

    The areas of two classes are nearly one number, so their mean is as sure as one of them. Of more classes they count
    as independent, which simulations bear out.
    """
    first, second = areas / (2 - areas), 2 * areas.square() / (1 + areas)
    variances = areas * (1 - areas) + (own - 1) * (first - areas.square()) + (others - 1) * (second - areas.square())
    errors = (variances.clamp(min=0) / (own * others)).sqrt()
    return float(errors.mean() if len(areas) == 2 else errors.square().sum().sqrt() / len(areas))


# ------------------------------------------------------------------------------------------------------ means of images
def products(values: Tensor, counted: Tensor) -> Tensor:
    """Sums over images of products of two classes' values and of whether they count (B x K each), as one row.

    An image counts in the means of several structures, and these are not independent.
    """
    values, counted = values * counted, counted.double()
    return torch.cat(
        [(one.T @ other).flatten() for one, other in ((values, values), (values, counted), (counted, counted))]
    )


def of_mean_of_means(sums: Tensor, chosen: Tensor) -> float | None:
    """Of the mean over the chosen classes of each class's mean over its images; from what `products` sums up."""
    classes = len(chosen)
    squares, crossed, counts = sums.view(3, classes, classes)[:, chosen][:, :, chosen]
    images = counts.diag()
    if not len(images) or (images < 2).any():
        return None
    means = crossed.diag() / images
    centred = squares - crossed * means - crossed.T * means[:, None] + counts * means * means[:, None]
    weights = 1 / (len(images) * (images * (images - 1)).sqrt())
    variance = float(weights @ centred @ weights)
    return math.sqrt(variance) if variance > NOISE * float(weights @ squares @ weights) else 0.0


# -------------------------------------------------------------------------------------------------------------- numbers
def of_explained(errors: tuple[float, float], powers: list[float], crossed: tuple[float, float]) -> float | None:
    """Of R^2 = 1 - M / V, by its influence -(e^2 - M c^2 / V) / V; c are targets around their mean.

    Args:
        errors: Sums of e^2 and e^4.
        powers: Sums of z^0 (the samples) to z^4, with z = y - offset.
        crossed: Sums of e^2 z and e^2 z^2.

    Returns:
        None where there are too few samples, or the offset is so far from the targets that sums lost their digits.
    """
    samples, first, second, third, fourth = powers
    middle = first / samples
    variance = second / samples - middle**2
    fourths = fourth - 4 * middle * third + 6 * middle**2 * second - 4 * middle**3 * first + samples * middle**4
    if samples < 2 or variance <= 0 or fourths < 1e-9 * fourth:
        return None
    ratio = errors[0] / samples / variance
    together = crossed[1] - 2 * middle * crossed[0] + middle**2 * errors[0]
    squares = (errors[1] - 2 * ratio * together + ratio**2 * fourths) / variance**2
    return math.sqrt(max(squares, 0.0) / samples / (samples - 1))
