"""A silo as one vector, the mean over its classes of their mean representation, and clusters of such vectors.

Every class counts the same, so the vector tells what the silo's images look like and not how many it has of each class.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairsilo.core.measuring import output_of
from fairsilo.core.output import Output, vectors_in
from fairsilo.core.silo import Silo
from fairsilo.methods.class_means import ClassSums
from fairsilo.models.vit_networks import PROMPT


def of_images(output: Output) -> Tensor:
    """One row per image: its type-specific prompt where the network makes one, else its features."""
    if isinstance(output.extra, dict) and PROMPT in output.extra:
        found: Tensor = output.extra[PROMPT]
        return found
    return vectors_in(output)


@torch.no_grad()
def representation(silo: Silo, max_batches: int = 0) -> Tensor:
    """h~ = mean over the classes present of the mean of h over their training samples, under the model held.

    With `max_batches` that many batches drawn at random stand for all samples: files often come sorted by class.
    """
    silo.model.eval()
    split = silo.data.train
    chosen = torch.arange(len(split))
    if max_batches:
        drawn = torch.randperm(len(split), generator=silo.stream("representation"))
        chosen = drawn[: max_batches * silo.training.batch_size]
    total = ClassSums(silo.task.classes)
    for indices in torch.split(chosen, silo.evaluation_batch):
        batch = silo.batch(split, indices)
        total.add(of_images(output_of(silo, batch)).double(), batch.targets)
    return total.means()[total.counts > 0].mean(0).to(silo.model.layout.dtype)


def mixture(rows: np.ndarray[Any, Any], clusters: int, covariance: str, reg_covar: float, seed: int) -> list[int]:
    """The component of each row under a Gaussian mixture; the partition does not depend on the order of the rows."""
    from sklearn.mixture import GaussianMixture  # slow to import

    spread = np.sqrt(rows.var(0).mean())
    if clusters == 1 or spread <= 1e-6 * np.abs(rows).max():  # they differ by rounding only
        return [0] * len(rows)
    scaled = (rows - rows.mean(0)) / spread  # so that reg_covar means the same whatever the network's scale
    components = min(clusters, len(np.unique(scaled.round(6), axis=0)))
    make: Any = GaussianMixture
    model = make(components, covariance_type=covariance, reg_covar=reg_covar, n_init=5, random_state=seed)
    order = np.lexsort(scaled.T[::-1])
    labels = np.empty(len(rows), dtype=int)
    labels[order] = model.fit_predict(scaled[order])
    return [int(label) for label in labels]


def renumbered(found: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """The same partition, its clusters numbered so that most silos keep the number they had."""
    overlaps = Counter((found[name], before[name]) for name in found if name in before)
    numbers: dict[int, int] = {}
    for (new, old), _ in sorted(overlaps.items(), key=lambda item: (-item[1], item[0])):
        if new not in numbers and old not in numbers.values():
            numbers[new] = old
    for new in sorted(set(found.values()) - set(numbers)):
        numbers[new] = min(set(range(len(numbers) + 1)) - set(numbers.values()))
    return {name: numbers[new] for name, new in found.items()}


def centres_of(rows: Tensor, clusters: Tensor, before: Tensor | None = None) -> Tensor:
    """H_t = the mean of the rows of cluster t; a cluster without members keeps the centre it had."""
    known = rows[:0] if before is None else before
    found = []
    for number in range(max(int(clusters.max()) + 1, len(known))):
        members = rows[clusters == number]
        found.append(members.mean(0) if len(members) else known[number])
    return torch.stack(found)


def clustering_accuracy(clusters: dict[str, int], types: dict[str, str]) -> float:
    """The share of silos whose type is the majority type of their cluster."""
    counts: dict[int, Counter[str]] = {}
    for name, cluster in clusters.items():
        counts.setdefault(cluster, Counter())[types[name]] += 1
    return sum(max(found.values()) for found in counts.values()) / len(clusters)


class Known(NamedTuple):
    """What a silo knows of the clusters: all centres, which one is its own, and its representation a round ago."""

    centres: Tensor
    own: Tensor  # its number
    previous: Tensor
