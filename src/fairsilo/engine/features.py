"""Frozen backbones are run once: what a network's frozen first stage makes of a silo's data is computed before round 1
and kept, so that an epoch costs the trained part alone."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fairsilo.core.samples import InFile, InMemory, SiloData, Split, Storage
from fairsilo.core.silo import inputs_for
from fairsilo.core.vectors import FlatModel
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.models.described import is_backbone
from fairsilo.models.networks import Staged

SPLITS = ("train", "validation", "test")


class Prepared(NamedTuple):
    """What an engine works with: plan and data, as they are or behind the frozen stage; and what to say of it."""

    plan: Blueprint
    federation: Federation
    server_data: Split | None
    said: str = ""


class Shelf:
    """Features that several runs of one process have in common, such as the cells of a comparison: made once.

    Found by the backbone and by what the images are, so that it does not matter who split the data. Past `limit` GiB
    nothing more is put here.
    """

    def __init__(self, limit: float) -> None:
        self.room = int(limit * 2**30)
        self.found: dict[tuple[object, ...], Tensor] = {}

    def put(self, key: tuple[object, ...], features: Tensor) -> None:
        size = features.numel() * features.element_size()
        if size <= self.room:
            self.room -= size
            self.found[key] = features


def keep_features(
    plan: Blueprint,
    federation: Federation,
    server_data: Split | None = None,
    *,
    wanted: bool = True,
    limit: float = 2.0,
    folder: Path | None = None,
    shelf: Shelf | None = None,
) -> Prepared:
    """The data behind the frozen stage, where there is one and it may be kept; past `limit` GiB in files."""
    plan = dataclasses.replace(plan, encoded=wanted and _server_encodes(plan))
    model = plan.flat()
    network = model.module
    frozen = sum(p.numel() for p in network.parameters() if not p.requires_grad)
    if not frozen:
        return Prepared(plan, federation, server_data)
    reason = _why_not(plan, isinstance(network, Staged), wanted)
    if reason:
        return Prepared(plan, federation, server_data, f"features of the frozen backbone are not kept: {reason}")
    assert isinstance(network, Staged)
    network.eval()
    keeper = _Keeper(model, network, plan, limit, folder, shelf)
    people = (*federation.silos, *federation.unseen)
    keeper.note(silo.split(name) for silo in people for name in SPLITS)
    keeper.note([server_data] if server_data else [])
    silos, unseen = (tuple(keeper.silo(one) for one in some) for some in (federation.silos, federation.unseen))
    server = keeper.split(server_data) if server_data else None
    where = f"{keeper.mapped / 2**20:.1f} MiB of them in files" if keeper.mapped else "in memory"
    said = f"features of the frozen backbone are kept: {keeper.bytes / 2**20:.1f} MiB, {where}"
    changed = dataclasses.replace(federation, silos=silos, unseen=unseen)
    return Prepared(dataclasses.replace(plan, stemmed=True), changed, server, said)


def _server_encodes(plan: Blueprint) -> bool:
    """Whether the server's own network has a frozen first stage, which sees images as they are."""
    own = plan.server_flat()
    return own is not None and isinstance(own.module, Staged) and not plan.method.owners("inputs")


class Encoded:
    """What the frozen first stage of the server's network makes of the samples that it is measured on: made when they
    are first asked for, and kept.

    Args:
        model: The server's network, which from then on takes what is kept.
    """

    def __init__(self, model: FlatModel) -> None:
        assert isinstance(model.module, Staged)
        self.model, self.network = model, model.module
        self._kept: dict[tuple[object, ...], tuple[Split, InMemory]] = {}  # the split stays where its place says

    def of(self, silo: SiloData) -> SiloData:
        self.network.stemmed = True
        return dataclasses.replace(silo, validation=self._split(silo.validation), test=self._split(silo.test))

    def _split(self, split: Split) -> Split:
        if not len(split):
            return split
        if split.place not in self._kept:
            blocks = (inputs_for(self.model, inputs) for inputs, _ in split.blocks(8 * self.network.block))
            self._kept[split.place] = split, InMemory(torch.cat(list(map(self.network.stem_in_blocks, blocks))))
        return Split(self._kept[split.place][1], split.targets, attributes=split.attributes)


def _why_not(plan: Blueprint, staged: bool, wanted: bool) -> str:
    if not wanted:
        return "engine.keep_features is off"
    if not staged:
        return "what is trained stands inside the encoder or before it"
    if plan.augment != "none":
        return f"images are changed at random (data.augment={plan.augment})"
    if plan.method.owners("server_network"):
        return "the server's network sees the images themselves"
    changing = [*plan.method.owners("inputs"), *(part for part in plan.method.parts if "raw-images" in part.needs)]
    if changing:
        return f"{changing[0].name} works on the images themselves"
    return ""


class _Keeper:
    def __init__(
        self,
        model: FlatModel,
        network: Staged,
        plan: Blueprint,
        limit: float,
        folder: Path | None,
        shelf: Shelf | None,
    ) -> None:
        self.model, self.network, self.folder = model, network, folder
        # a network by name has a pretrained stem that no seed changes; one of the user's own may have any
        self.shelf = shelf if isinstance(plan.model, str) and is_backbone(plan.model) else None
        self.stem = (plan.model, type(network), plan.arithmetic, plan.device)
        self.limit = int(limit * 2**30)
        self.bytes = self.mapped = self.files = 0
        self.used: dict[tuple[object, ...], _Used] = {}  # by storage, which splits and silos of a domain share

    def note(self, splits: Iterable[Split]) -> None:
        """Look at what will be asked for, so that each storage is gone through once, and only where it is used."""
        for split in splits:
            if len(split):
                self.used.setdefault(split.storage.place, _Used(split.storage)).add(split)

    def silo(self, silo: SiloData) -> SiloData:
        train, validation, test = (self.split(silo.split(name)) for name in SPLITS)
        return dataclasses.replace(silo, train=train, validation=validation, test=test)

    def split(self, split: Split) -> Split:
        if not len(split):
            return split
        used = self.used[split.storage.place]
        if used.features is None:
            used.features = self._shelved(used.samples)
        return Split(used.features, split.targets, used.numbers(split), split.attributes)

    def _shelved(self, samples: Split) -> Storage:
        if self.shelf is None:
            return self._features(samples)
        images = hashlib.sha256()
        for inputs, _ in samples.blocks():
            images.update(inputs.contiguous().numpy().tobytes())
        key = (*self.stem, len(samples), samples.shape, samples.dtype, images.hexdigest())
        if key in self.shelf.found:
            features = self.shelf.found[key]
            self.bytes += features.numel() * features.element_size()
            return InMemory(features)
        kept = self._features(samples)
        if isinstance(kept, InMemory):  # a file goes with its run
            self.shelf.put(key, kept.tensor)
        return kept

    def _features(self, samples: Split) -> InMemory | InFile:
        kept: InMemory | InFile | None = None
        start = 0
        for inputs, _ in samples.blocks(8 * self.network.block):
            found = self.network.stem_in_blocks(inputs_for(self.model, inputs)).cpu()
            if kept is None:
                kept = self._room((len(samples), *found.shape[1:]), found.dtype)
            kept.tensor[start : start + len(found)] = found
            start += len(found)
        assert kept is not None
        return kept

    def _room(self, shape: tuple[int, ...], dtype: torch.dtype) -> InMemory | InFile:
        size = torch.Size(shape).numel() * dtype.itemsize
        self.bytes += size
        if self.bytes <= self.limit or self.folder is None:
            return InMemory(torch.empty(shape, dtype=dtype))
        self.mapped += size
        self.files += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        return InFile(str(self.folder / f"features-{self.files:04d}.bin"), shape, dtype)


class _Used:
    """The samples of one storage that some split has, and their features once they are made."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.wanted = torch.zeros(len(storage), dtype=torch.bool)
        self.features: Storage | None = None

    def add(self, split: Split) -> None:
        self.wanted[slice(None) if split.indices is None else split.indices] = True

    @property
    def samples(self) -> Split:
        """Those that are used, in the storage's order."""
        chosen = self.wanted.nonzero().flatten()
        return Split(self.storage, chosen, None if len(chosen) == len(self.wanted) else chosen)

    def numbers(self, split: Split) -> Tensor | None:
        """Where a split's samples stand among those that are used."""
        if bool(self.wanted.all()):
            return split.indices
        position = self.wanted.long().cumsum(0) - 1
        return position if split.indices is None else position[split.indices]
