"""Data on the device where the model is: copied there once, before the first silo answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fairsilo.core.samples import InMemory, Pooled, SiloData, Split
from fairsilo.data.federation import Federation

SHARE = 0.5  # of the device's free memory may hold data; training needs the rest


class Data(Protocol):
    """The data of the silos that a host serves, by name."""

    def __getitem__(self, name: str, /) -> SiloData: ...


class Resident:
    """The same data on a device, as far as its memory goes; splits that no longer fit stay where they are.

    Training samples of a simulation's silos lie in one tensor (`Pooled`), if all of them fit.

    Args:
        data: Silos by name.
        device: Where models train.
        room: How many bytes may be used there; by default half of what is free.
    """

    def __init__(self, data: Data, device: torch.device, room: int | None = None) -> None:
        self.data, self.device = data, device
        self.room = int(SHARE * torch.cuda.mem_get_info(device)[0]) if room is None else room
        self._silos: dict[str, SiloData] = {}
        self._splits: dict[tuple[object, ...], Split] = {}
        if isinstance(data, Federation):
            self._pool([silo.train for silo in data.silos])

    def __getitem__(self, name: str, /) -> SiloData:
        if name not in self._silos:
            silo = self.data[name]
            train, validation, test = map(self._moved, (silo.train, silo.validation, silo.test))
            self._silos[name] = replace(silo, train=train, validation=validation, test=test)
        return self._silos[name]

    def _pool(self, splits: list[Split]) -> None:
        """Lay splits one after the other into one tensor, each of them once."""
        some = {split.place: split for split in splits if len(split)}
        kinds = {(split.shape, split.dtype, split.targets.shape[1:], split.targets.dtype) for split in some.values()}
        size = sum(map(_bytes, some.values()))
        if len(kinds) != 1 or size > self.room:
            return
        self.room -= size
        [(shape, dtype, per_target, of_targets)] = kinds
        count = sum(map(len, some.values()))
        pool = Pooled(self._empty(count, shape, dtype), self._empty(count, tuple(per_target), of_targets))
        start = 0
        for place, split in some.items():
            here = slice(start, start + len(split))
            _fill(pool.tensor[here], split)
            pool.targets[here] = split.targets
            places = torch.arange(start, start + len(split), device=self.device)
            self._splits[place] = Split(pool, pool.targets[here], places, split.attributes)
            start += len(split)

    def _empty(self, count: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(count, *shape, dtype=dtype, device=self.device)

    def _moved(self, split: Split) -> Split:
        if split.place not in self._splits:
            self._splits[split.place] = self._copied(split)
        return self._splits[split.place]

    def _copied(self, split: Split) -> Split:
        size = _bytes(split)
        if size > self.room:
            return split
        self.room -= size
        inputs = self._empty(len(split), split.shape, split.dtype)
        _fill(inputs, split)
        return Split(InMemory(inputs), split.targets.to(self.device), attributes=split.attributes)


def _bytes(split: Split) -> int:
    targets = split.targets
    inputs = len(split) * torch.Size(split.shape).numel() * split.dtype.itemsize
    return inputs + targets.numel() * targets.dtype.itemsize


def _fill(inputs: Tensor, split: Split) -> None:
    start = 0
    for block, _ in split.blocks():
        inputs[start : start + len(block)] = block
        start += len(block)


def beside(device: torch.device, data: Data) -> Data:
    """The data where a model on this device reads them; on a CPU they are there already."""
    return data if device.type == "cpu" or isinstance(data, Resident) else Resident(data, device)
