"""Mean features of classes, and how near a feature is to that of its class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core.measuring import output_of
from fairsilo.core.output import vectors_in
from fairsilo.core.samples import Split
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import FlatModel


def members(labels: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Samples x classes: 1 where a sample is of the class. (torch's one_hot looks at the labels on a CPU.)"""
    return torch.zeros(len(labels), classes, dtype=dtype, device=labels.device).scatter_(1, labels[:, None], 1)


class ClassSums:
    """Sums of features by class, and how many samples each class has, over batches as they come."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.sums, self.counts = torch.zeros(()), torch.zeros(())

    def add(self, features: Tensor, labels: Tensor) -> None:
        member = members(labels, self.classes, features.dtype)
        self.sums, self.counts = self.sums.to(features), self.counts.to(features)
        self.sums, self.counts = self.sums + member.T @ features, self.counts + member.sum(0)

    def means(self) -> Tensor:
        """Classes x features; zero for a class without a sample."""
        return self.sums / self.counts.clamp(min=1)[:, None]


class RunningSums:
    """The same over the training steps of an exchange, which may be replayed: sums that the model keeps."""

    def __init__(self, model: FlatModel, name: str, classes: int) -> None:
        self.model, self.classes, self.names = model, classes, (f"{name}.sums", f"{name}.counts")
        for one in self.names:
            model.begin_sum(one)

    def add(self, features: Tensor, labels: Tensor) -> None:
        member = members(labels, self.classes, features.dtype)
        for name, value in zip(self.names, (member.T @ features, member.sum(0)), strict=True):
            self.model.add_to_sum(name, value)

    def means_and_counts(self) -> tuple[Tensor, Tensor]:
        """Classes x features, zero for a class without a sample, and how many each has."""
        sums, counts = map(self.model.sum_of, self.names)
        assert sums is not None
        assert counts is not None
        return sums / counts.clamp(min=1)[:, None], counts


def class_means(batches: Iterable[tuple[Tensor, Tensor]], classes: int) -> Tensor:
    """The mean feature of each class over batches of features and labels; zero for a class without a sample."""
    total = ClassSums(classes)
    for features, labels in batches:
        total.add(features, labels)
    return total.means()


def quality(features: Tensor, labels: Tensor, means: Tensor) -> Tensor:
    """cos(feature, mean feature of its class); 0 for a class that the silo does not have."""
    return F.cosine_similarity(features, means[labels], dim=1)


@torch.no_grad()
def features_of(silo: Silo, split: Split) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of features and targets of a split, under the model held."""
    for batch in silo.evaluation_batches(split):
        yield vectors_in(output_of(silo, batch)), batch.targets


def mean_of_those_with_it(
    means: Tensor, has: Tensor, before: Tensor | None, known_before: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The mean over silos of each class's mean feature, and which classes are known.

    Args:
        means: Silos x classes x features.
        has: Silos x classes: which silos have which classes; only these count.
        before: Classes x features: what stays for a class that no silo has; None at first.
        known_before: Which of these are known.
    """
    known = has.any(0)
    mean = (means * has[..., None]).sum(0) / has.sum(0).clamp(min=1)[:, None]
    if before is None or known_before is None:
        return mean, known
    return torch.where(known[:, None], mean, before), known | known_before
