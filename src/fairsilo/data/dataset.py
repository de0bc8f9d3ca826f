"""What every loader returns: classes and, per domain, inputs with targets and (where known) splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from fairsilo.core.samples import Split, Storage
from fairsilo.errors import FairsiloError

TRAIN, VALIDATION, TEST, UNDECIDED = 0, 1, 2, -1
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Domain:
    """All samples of one domain.

    `split` says TRAIN, VALIDATION, TEST or UNDECIDED per sample; `group` ties samples that must stay in one
    split (several renderings of one original, images of one patient); `silo` names the holder of each sample,
    if known; `attributes` say what else is known of it (column -> a value per sample, such as sex or scanner).
    """

    name: str
    inputs: Tensor | Storage  # images: uint8, N x C x H x W; windows of a text: int64, N x length
    targets: Tensor  # by task: int64 N (classify, next-character), uint8 N x H x W (segment), float N (regress)
    split: Tensor  # int8, N
    group: Tensor | None = None  # int64, N
    silo: tuple[str, ...] | None = None
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.targets)
        columns = {"inputs": self.inputs, "group": self.group, "silo": self.silo}
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


@dataclass(frozen=True)
class Dataset:
    name: str
    classes: tuple[str, ...]
    domains: dict[str, Domain]
    about: str = ""
    task: str = "classify"
    source: dict[str, str] = field(default_factory=dict)
