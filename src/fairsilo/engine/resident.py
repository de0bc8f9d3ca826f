"""Data on the device where the model is: each silo's samples are copied there once, when it first answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch

from fairsilo.core.samples import InMemory, SiloData, Split

SHARE = 0.5  # of the device's free memory may hold data; training needs the rest


class Data(Protocol):
    """The data of the silos that a host serves, by name."""

    def __getitem__(self, name: str, /) -> SiloData: ...


class Resident:
    """The same data on a device, as far as its memory goes; splits that no longer fit stay where they are.

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

    def __getitem__(self, name: str, /) -> SiloData:
        if name not in self._silos:
            silo = self.data[name]
            train, validation, test = map(self._moved, (silo.train, silo.validation, silo.test))
            self._silos[name] = replace(silo, train=train, validation=validation, test=test)
        return self._silos[name]

    def _moved(self, split: Split) -> Split:
        if split.place not in self._splits:
            self._splits[split.place] = self._copied(split)
        return self._splits[split.place]

    def _copied(self, split: Split) -> Split:
        targets = split.targets
        size = len(split) * torch.Size(split.shape).numel() * split.dtype.itemsize
        size += targets.numel() * targets.dtype.itemsize
        if size > self.room:
            return split
        self.room -= size
        inputs = torch.empty(len(split), *split.shape, dtype=split.dtype, device=self.device)
        start = 0
        for block, _ in split.blocks():
            inputs[start : start + len(block)] = block
            start += len(block)
        return Split(InMemory(inputs), targets.to(self.device), attributes=split.attributes)


def beside(device: torch.device, data: Data) -> Data:
    """The data where a model on this device reads them; on a CPU they are there already."""
    return data if device.type == "cpu" else Resident(data, device)
