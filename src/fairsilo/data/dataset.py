"""What every loader returns: classes and, per domain, images with labels and (where known) splits."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

TRAIN, VALIDATION, TEST, UNDECIDED = 0, 1, 2, -1
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Domain:
    """All samples of one domain.

    `split` says TRAIN, VALIDATION, TEST or UNDECIDED per sample; `group` ties samples that must stay in one
    split (several renderings of one original, images of one patient); `silo` names the holder of each sample,
    if known.
    """

    name: str
    inputs: Tensor  # uint8, N x C x H x W
    targets: Tensor  # int64, N
    split: Tensor  # int8, N
    group: Tensor | None = None  # int64, N
    silo: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Dataset:
    name: str
    classes: tuple[str, ...]
    domains: dict[str, Domain]
    about: str = ""
    task: str = "classify"
    source: dict[str, str] = field(default_factory=dict)
