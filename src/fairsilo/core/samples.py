"""Samples of a silo: splits in memory or in files, and the three of them that a silo holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.roster import Member


@dataclass(frozen=True)
class Split:
    """Samples in memory: uint8 images (or floats) and their targets."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class MappedSplit(Split):
    """Samples whose inputs lie in a file: another process opens it again instead of getting a copy."""

    path: str

    def __reduce__(self) -> tuple[Callable[..., MappedSplit], tuple[object, ...]]:
        return _mapped, (self.path, tuple(self.inputs.shape), self.inputs.dtype, self.targets)


def _mapped(path: str, shape: tuple[int, ...], dtype: torch.dtype, targets: Tensor) -> MappedSplit:
    return MappedSplit(in_file(path, shape, dtype), targets, path)


def in_file(path: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor that lies in a file, which is made where there is none."""
    count = torch.Size(shape).numel()
    found: Tensor = torch.from_file(path, shared=True, size=count, dtype=dtype)
    return found.view(shape)


def place_of(tensor: Tensor) -> tuple[object, ...]:
    """Tells whether two tensors are the same stretch of memory, read in the same way."""
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


@dataclass(frozen=True)
class SiloData:
    """One participant's private data."""

    name: str
    domain: str
    train: Split
    validation: Split
    test: Split

    @property
    def member(self) -> Member:
        """What the silo says of itself to the server."""
        targets = self.test.targets
        labels = len(targets) > 0 and targets.dim() == 1 and not targets.is_floating_point()
        tested = tuple(torch.bincount(targets).tolist()) if labels else ()
        return Member(self.name, self.domain, len(self.train), len(self.validation), len(self.test), tested)

    def split(self, name: str) -> Split:
        found: Split = getattr(self, name)
        return found
