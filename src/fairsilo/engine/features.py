"""Frozen backbones are run once: what a network's frozen first stage makes of a silo's data is computed before round 1
and kept, so that an epoch costs the trained part alone."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fairsilo.core.samples import MappedSplit, SiloData, Split, in_file, place_of
from fairsilo.core.silo import prepare
from fairsilo.data.federation import Federation
from fairsilo.engine.host import Blueprint
from fairsilo.models.backbones import is_backbone
from fairsilo.models.networks import Staged


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
    network = plan.flat().module
    frozen = sum(p.numel() for p in network.parameters() if not p.requires_grad)
    if not frozen:
        return Prepared(plan, federation, server_data)
    reason = _why_not(plan, isinstance(network, Staged), wanted)
    if reason:
        return Prepared(plan, federation, server_data, f"features of the frozen backbone are not kept: {reason}")
    assert isinstance(network, Staged)
    network.eval()
    keeper = _Keeper(network, plan, limit, folder, shelf)
    silos, unseen = (tuple(keeper.silo(one) for one in some) for some in (federation.silos, federation.unseen))
    server = keeper.split(server_data) if server_data else None
    where = f"{keeper.mapped / 2**20:.1f} MiB of them in files" if keeper.mapped else "in memory"
    said = f"features of the frozen backbone are kept: {keeper.bytes / 2**20:.1f} MiB, {where}"
    changed = dataclasses.replace(federation, silos=silos, unseen=unseen)
    return Prepared(dataclasses.replace(plan, stemmed=True), changed, server, said)


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


class _Kept(NamedTuple):
    """Features, and the file they lie in, if they do."""

    features: Tensor
    path: str = ""


class _Keeper:
    def __init__(
        self, network: Staged, plan: Blueprint, limit: float, folder: Path | None, shelf: Shelf | None
    ) -> None:
        self.network, self.device, self.folder = network, torch.device(plan.device), folder
        # a network by name has a pretrained stem that no seed changes; one of the user's own may have any
        self.shelf = shelf if isinstance(plan.model, str) and is_backbone(plan.model) else None
        self.stem = (plan.model, type(network), plan.precision, plan.device)
        self.limit = int(limit * 2**30)
        self.dtype = next(p.dtype for p in network.parameters() if p.requires_grad)
        self.bytes = self.mapped = self.files = 0
        self.done: dict[tuple[object, ...], _Kept] = {}  # silos of one domain share their test set

    def silo(self, silo: SiloData) -> SiloData:
        train, validation, test = (self.split(silo.split(name)) for name in ("train", "validation", "test"))
        return dataclasses.replace(silo, train=train, validation=validation, test=test)

    def split(self, split: Split) -> Split:
        if not len(split):
            return split
        known = place_of(split.inputs)
        if known not in self.done:
            self.done[known] = self._shelved(split.inputs)
        features, path = self.done[known]
        return MappedSplit(features, split.targets, path) if path else Split(features, split.targets)

    def _shelved(self, inputs: Tensor) -> _Kept:
        if self.shelf is None:
            return self._features(inputs)
        images = hashlib.sha256(inputs.contiguous().numpy().tobytes()).hexdigest()
        key = (*self.stem, tuple(inputs.shape), inputs.dtype, images)
        if key in self.shelf.found:
            features = self.shelf.found[key]
            self.bytes += features.numel() * features.element_size()
            return _Kept(features)
        kept = self._features(inputs)
        if not kept.path:  # a file goes with its run
            self.shelf.put(key, kept.features)
        return kept

    def _features(self, inputs: Tensor) -> _Kept:
        kept: _Kept | None = None
        for start in range(0, len(inputs), 8 * self.network.block):
            some = prepare(inputs[start : start + 8 * self.network.block], self.device, self.dtype)
            found = self.network.stem_in_blocks(some).cpu()
            if kept is None:
                kept = self._room((len(inputs), *found.shape[1:]), found.dtype)
            kept.features[start : start + len(found)] = found
        assert kept is not None
        return kept

    def _room(self, shape: tuple[int, ...], dtype: torch.dtype) -> _Kept:
        size = torch.Size(shape).numel() * dtype.itemsize
        self.bytes += size
        if self.bytes <= self.limit or self.folder is None:
            return _Kept(torch.empty(shape, dtype=dtype))
        self.mapped += size
        self.files += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        path = str(self.folder / f"features-{self.files:04d}.bin")
        return _Kept(in_file(path, shape, dtype), path)
