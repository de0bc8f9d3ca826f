"""Samples: splits of a storage in memory or on disk, and the three splits of a silo.

A `Split` is a list of samples of a storage: all of them, or some by index. Silos and splits of one domain share a
storage without copying it. `take` reads inputs; targets are always in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fairsilo.core.roster import Member
from fairsilo.errors import FairsiloError

BLOCK = 1024  # samples read at a time where all are read


class Storage(Protocol):
    """Where inputs are stored: in memory, in a file, in several places."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def place(self) -> tuple[object, ...]:
        """Identifies the memory or file: equal for two storages of the same one."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: Tensor) -> Tensor:
        """These samples in this order, as a new tensor (len(indices) x shape)."""
        ...

    def share_memory(self) -> None:
        """Move tensors to shared memory, where other processes read them in place."""
        ...


class OneTensor:
    """Samples in one tensor (N x shape), wherever its numbers lie."""

    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, indices: Tensor) -> Tensor:
        return self.tensor[indices]


@dataclass(frozen=True)
class InMemory(OneTensor):
    """Samples in a tensor in memory."""

    tensor: Tensor

    @property
    def place(self) -> tuple[object, ...]:
        return place_of(self.tensor)

    def share_memory(self) -> None:
        self.tensor.share_memory_()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Pooled(InMemory):
    """Samples of many silos in one tensor, their targets beside them: what is recorded for one silo then reads another
    one's at the same address."""

    targets: Tensor

    def both(self, places: Tensor) -> tuple[Tensor, Tensor]:
        return self.tensor[places], self.targets[places]


class InFile(OneTensor):
    """Samples in a memory-mapped file of raw numbers: another process maps the file instead of getting a copy.

    The file is created where there is none, unless it is only read.
    """

    def __init__(self, path: str, shape: tuple[int, ...], dtype: torch.dtype, read_only: bool = False) -> None:
        self.path, self.read_only = path, read_only
        count = torch.Size(shape).numel()
        self.tensor: Tensor = torch.from_file(path, shared=not read_only, size=count, dtype=dtype).view(shape)

    @property
    def place(self) -> tuple[object, ...]:
        return (self.path,)

    def __reduce__(self) -> tuple[type[InFile], tuple[object, ...]]:
        return InFile, (self.path, tuple(self.tensor.shape), self.tensor.dtype, self.read_only)

    def share_memory(self) -> None:
        """Nothing to do: a file is shared as it is."""


@dataclass(frozen=True)
class Windows:
    """Windows of a text that lies in memory once: sample i is the `length` codes from position `starts[i]` on.

    Windows that overlap share their codes; `take` hands them out as int64.
    """

    codes: Tensor  # one row of character codes, uint8 or int64
    starts: Tensor  # int64, N
    length: int

    def __post_init__(self) -> None:
        if len(self.starts) and not 0 <= int(self.starts.min()) <= int(self.starts.max()) <= self._last:
            raise FairsiloError(
                f"windows of {self.length} characters start between {int(self.starts.min())} and "
                f"{int(self.starts.max())}, and the text has {len(self.codes)} characters"
            )

    @property
    def _last(self) -> int:
        return len(self.codes) - self.length

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def dtype(self) -> torch.dtype:
        return torch.int64

    @property
    def place(self) -> tuple[object, ...]:
        return (*place_of(self.codes), *place_of(self.starts), self.length)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, indices: Tensor) -> Tensor:
        return self.codes[self.starts[indices][:, None] + torch.arange(self.length)].long()

    def share_memory(self) -> None:
        for tensor in (self.codes, self.starts):
            tensor.share_memory_()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Joined:
    """Samples of several splits one after another."""

    splits: tuple[Split, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.splits[0].shape

    @property
    def dtype(self) -> torch.dtype:
        return self.splits[0].dtype

    @property
    def place(self) -> tuple[object, ...]:
        return tuple(split.place for split in self.splits)

    def __len__(self) -> int:
        return sum(map(len, self.splits))

    def take(self, indices: Tensor) -> Tensor:
        found = torch.empty(len(indices), *self.shape, dtype=self.dtype)
        start = 0
        for split in self.splits:
            here = ((indices >= start) & (indices < start + len(split))).nonzero().flatten()
            if len(here):
                found[here] = split.take(indices[here] - start)[0]
            start += len(split)
        return found

    def share_memory(self) -> None:
        for split in self.splits:
            split.share_memory()


class Split:
    """Samples with their targets.

    Args:
        inputs: uint8 images (N x C x H x W, shown to the network in [-1, 1] or as it asks), floats or int64 (N x
            anything, as they are), or a storage that hands them out.
        targets: N targets: class numbers, masks or floats, as the task has them.
        indices: Which samples of the storage these are (int64, as many as targets); all of them where left out.
        attributes: What else is known of each sample, such as sex or scanner: column -> N values.

    Raises:
        FairsiloError: Inputs, targets and attributes differ in number.

    Example:
        >>> import torch
        >>> from fairsilo import Split
        >>> split = Split(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1]))
        >>> len(split), split.shape
        (3, (1, 8, 8))
        >>> split.subset([2, 0]).targets.tolist()
        [1, 0]
    """

    def __init__(
        self,
        inputs: Tensor | Storage,
        targets: Tensor,
        indices: Tensor | None = None,
        attributes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.storage: Storage = InMemory(inputs) if isinstance(inputs, Tensor) else inputs
        self.targets = targets
        self.indices = indices
        self.attributes: Mapping[str, tuple[str, ...]] = {
            name: tuple(values) for name, values in (attributes or {}).items()
        }
        count = len(self.storage) if indices is None else len(indices)
        if count != len(targets):
            raise FairsiloError(f"a split has {count} inputs and {len(targets)} targets; there must be one for each")
        for name, values in self.attributes.items():
            if len(values) != len(targets):
                raise FairsiloError(
                    f"attribute {name!r} has {len(values)} values for {len(targets)} samples; each needs one"
                )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return self.storage.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.storage.dtype

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for splits with the same samples of the same storage."""
        return (*self.storage.place, None if self.indices is None else place_of(self.indices))

    @property
    def inputs(self) -> Tensor:
        """All inputs as one tensor; for small data. `take` and `blocks` read large ones piece by piece."""
        if self.indices is None and isinstance(self.storage, InMemory):
            return self.storage.tensor
        return self.take(torch.arange(len(self)))[0]

    def take(self, indices: Tensor | Sequence[int]) -> tuple[Tensor, Tensor]:
        """These samples, in this order: inputs (len(indices) x shape) and targets.

        Example:
            >>> import torch
            >>> from fairsilo import Split
            >>> Split(torch.arange(4.0), torch.tensor([0, 1, 0, 1])).take([3, 0])
            (tensor([3., 0.]), tensor([1, 0]))
        """
        chosen = torch.as_tensor(indices, dtype=torch.long)
        return self.storage.take(chosen if self.indices is None else self.indices[chosen]), self.targets[chosen]

    def blocks(self, size: int = BLOCK) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples in order, so many at a time: inputs and targets."""
        for start in range(0, len(self), size):
            yield self.take(torch.arange(start, min(start + size, len(self))))

    def subset(self, indices: Tensor | Sequence[int]) -> Split:
        """Some of the samples, as a split of its own that shares the storage."""
        chosen = torch.as_tensor(indices, dtype=torch.long)
        indices = chosen if self.indices is None else self.indices[chosen]
        kept = chosen.tolist() if self.attributes else ()
        attributes = {name: [values[index] for index in kept] for name, values in self.attributes.items()}
        return Split(self.storage, self.targets[chosen], indices, attributes)

    def with_columns(self, names: Collection[str]) -> Split:
        """The same samples with these attributes alone."""
        attributes = {name: values for name, values in self.attributes.items() if name in names}
        return Split(self.storage, self.targets, self.indices, attributes)

    def share_memory(self) -> None:
        """Let other processes read everything in place."""
        self.storage.share_memory()
        for tensor in (self.targets,) if self.indices is None else (self.targets, self.indices):
            tensor.share_memory_()  # type: ignore[no-untyped-call]


def joined(splits: Iterable[Split]) -> Split:
    """Several splits as one, with the attributes that all of them have.

    Splits with the same samples of one storage are taken once.
    """
    found = tuple({split.place: split for split in splits}.values())
    columns = [name for name in found[0].attributes if all(name in split.attributes for split in found)]
    attributes = {name: [value for split in found for value in split.attributes[name]] for name in columns}
    return Split(Joined(found), torch.cat([split.targets for split in found]), attributes=attributes)


def place_of(tensor: Tensor) -> tuple[object, ...]:
    """Equal for two tensors that are the same view of the same memory."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


@dataclass(frozen=True)
class SiloData:
    """One participant's private data.

    Args:
        name: Of the silo, unique in a federation.
        domain: Where its samples come from, such as a hospital or a camera.
        train: What it trains on.
        validation: What chooses rounds and a silo's best model, and what some methods measure models on; may be empty.
        test: What results are about; may be empty.

    Example:
        >>> import torch
        >>> from fairsilo import SiloData, Split
        >>> everything = Split(torch.rand(10, 3, 8, 8), torch.arange(10) % 2)
        >>> parts = (everything.subset(range(*ends)) for ends in ((0, 6), (6, 8), (8, 10)))
        >>> silo = SiloData("clinic-a", "hospital", *parts)
        >>> len(silo.train), len(silo.validation), silo.test.targets.tolist()
        (6, 2, [0, 1])
    """

    name: str
    domain: str
    train: Split
    validation: Split
    test: Split

    def member(self, tested: tuple[int, ...] = (), trained: tuple[int, ...] = ()) -> Member:
        """What the silo says of itself to the server; `tested`, `trained`: how many samples show each class."""
        return Member(self.name, self.domain, len(self.train), len(self.validation), len(self.test), tested, trained)

    def split(self, name: str) -> Split:
        found: Split = getattr(self, name)
        return found
