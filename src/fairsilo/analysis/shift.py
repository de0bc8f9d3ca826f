"""How far silos are apart before anybody trains a method: labels, sizes, and what a network sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fairsilo.analysis.metrics import mean

Pair = tuple[str, str]
LEAST = 8  # samples of a silo, below which nothing is said of its features
FOLDS = 4


def label_distances(counts: Mapping[str, Sequence[int]]) -> dict[Pair, float]:
    """By pair of silos: the share of samples whose label would have to change for both to have the same mixture.

    That is the total variation distance: 0 for the same mixture of classes, 1 where no class is in common.

    Example:
        >>> label_distances({"a": [5, 5], "b": [10, 0]})
        {('a', 'b'): 0.5}
    """
    shares = {silo: np.asarray(some, float) / sum(some) for silo, some in counts.items() if sum(some)}
    return {(a, b): float(np.abs(shares[a] - shares[b]).sum() / 2) for a, b in combinations(shares, 2)}


def size_ratio(sizes: Sequence[int]) -> float:
    """How many times as many training samples the largest silo has as the smallest."""
    return max(sizes) / max(min(sizes), 1)


def proxy_a_distance(one: NDArray[np.float64], other: NDArray[np.float64], seed: int = 0) -> float | None:
    """How well a linear rule tells two silos' features apart: 0 not at all, 2 without an error.

    Ben-David's proxy: 2 (1 - 2 e), where e is the error of a logistic regression on samples it was not fitted to, as
    many of one silo as of the other. Below zero is chance, and given as 0. None where a silo has too few samples.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    count = min(len(one), len(other))
    if count < LEAST:
        return None
    draw = np.random.default_rng(seed)
    rows = np.concatenate([some[draw.permutation(len(some))[:count]] for some in (one, other)])
    whose = np.repeat([0, 1], count)
    rule = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))  # type: ignore[no-untyped-call]
    folds = StratifiedKFold(  # type: ignore[no-untyped-call]
        min(FOLDS, count), shuffle=True, random_state=seed
    )
    error = 1 - float(np.mean(cross_val_score(rule, rows, whose, cv=folds)))
    return max(0.0, 2 * (1 - 2 * error))


def feature_distances(features: Mapping[str, NDArray[np.float64]], seed: int = 0) -> dict[Pair, float]:
    """The proxy A-distance of every pair of silos that have enough samples."""
    found = {(a, b): proxy_a_distance(features[a], features[b], seed) for a, b in combinations(features, 2)}
    return {pair: value for pair, value in found.items() if value is not None}


def farthest(distances: Mapping[Pair, float]) -> Pair | None:
    """The two that are farthest apart."""
    return max(distances, key=lambda pair: distances[pair]) if distances else None


def typical(distances: Mapping[Pair, float]) -> float | None:
    """The mean over the pairs."""
    return mean(distances.values()) if distances else None
