"""What every loader returns: classes and, per domain, inputs with targets and (where known) splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fairsilo.core.samples import Split, Storage
from fairsilo.errors import FairsiloError

TRAIN, VALIDATION, TEST, UNDECIDED = 0, 1, 2, -1
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Domain:
    """All samples of one domain.

    Attributes:
        name: Of the domain.
        inputs: A sample per row. Images are uint8, N x C x H x W; windows of a text int64, N x length; columns of a
            table float.
        targets: A target per sample: int64 N for classes and characters, uint8 N x H x W for masks, float N for
            numbers.
        split: TRAIN, VALIDATION, TEST or UNDECIDED per sample (constants of this module); what is undecided is divided
            by the run's settings.
        group: Samples with the same number stay in one split, such as images of one patient.
        silo: Who holds each sample, where that is known.
        attributes: Column -> a value per sample, such as sex or scanner.
        names: Of the files, as class/file, where samples come from files.
    """

    name: str
    inputs: Tensor | Storage  # images: uint8, N x C x H x W; windows of a text: int64, N x length
    targets: Tensor  # by task: int64 N (classify, next-character), uint8 N x H x W (segment), float N (regress)
    split: Tensor  # int8, N
    group: Tensor | None = None  # int64, N
    silo: tuple[str, ...] | None = None
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.targets)
        columns = {"inputs": self.inputs, "group": self.group, "silo": self.silo, "names": self.names}
        for name, column in {**columns, **self.attributes}.items():
            if column is not None and len(column) != count:
                raise FairsiloError(
                    f"domain {self.name!r} has {count} targets and {len(column)} entries of {name}; "
                    "there must be one for each"
                )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def samples(self) -> Split:
        """All of them, as a split that shares the storage."""
        return Split(self.inputs, self.targets, attributes=self.attributes)


def undecided(domain: Domain) -> Domain:
    """Without the splits that the data name."""
    return replace(domain, split=torch.full((len(domain),), UNDECIDED, dtype=torch.int8))


def in_order(domain: Domain, test: float) -> Domain:
    """The last of every ten samples to test and the others to train, in the order of the files' names.

    As FedHEAL divides Office-Caltech-10: classes in the order of their names, and the files of each; with test=0.2
    sample i trains if i % 10 <= 7. Samples without names keep the order they have.
    """
    last = round(10 * test)
    if abs(10 * test - last) > 1e-9:
        raise FairsiloError(f"data.test is {test:g}; with data.split=order it counts in tenths, such as 0.2")
    if domain.group is not None:
        raise FairsiloError(
            f"data.split=order goes sample by sample, and some of domain {domain.name!r} belong together (of a patient "
            "or an original); leave it out"
        )
    names = domain.names or ()
    order = sorted(range(len(names)), key=lambda index: names[index].split("/")) if names else range(len(domain))
    split = torch.full((len(domain),), TRAIN, dtype=torch.int8)
    split[[index for place, index in enumerate(order) if place % 10 >= 10 - last]] = TEST
    return replace(domain, split=split)


@dataclass(frozen=True)
class Dataset:
    """Domains with the samples of each, and the classes that they share.

    Attributes:
        name: What reports call it.
        classes: Names of the classes, by number; empty where targets are numbers.
        domains: Name -> samples of that domain.
        about: What it shows, in words.
        task: `classify`, `segment`, `regress`, `next-character`, or `package:name`.
        source: Where it was read from, such as `{"folder": PATH}`.
    """

    name: str
    classes: tuple[str, ...]
    domains: dict[str, Domain]
    about: str = ""
    task: str = "classify"
    source: dict[str, str] = field(default_factory=dict)
