"""Data for a model that is trained already: one domain or several, with classes the model knows, not all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fairsilo.data import INDEX_SUFFIXES, has_name, load
from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.data.folder import SUFFIXES, headers_of
from fairsilo.data.layouts import has_masks, mask_folders, outlined, pairs_in
from fairsilo.data.packed import read_domain
from fairsilo.data.reading import Stack, natural, size_limit
from fairsilo.errors import FairsiloError, nearest


def read_newcomer(source: str, classes: Sequence[str], size: int | None, fit: str = "squeeze") -> dict[str, Domain]:
    """Domains by name from PATH/class/image, PATH/domain/class/image, an index, packed files, or `glyphs:street`.

    With masks from PATH/images and PATH/masks, the same inside domains, or packed files.
    """
    name, _, wanted = source.partition(":")
    path = Path(source)
    if has_name(name) and not path.exists():
        found = load(name=name, size=size, fit=fit)
        if wanted and wanted not in found.domains:
            raise FairsiloError(f"{name} has no domain {wanted!r}{nearest(wanted, found.domains)}")
        chosen = {key: domain for key, domain in found.domains.items() if not wanted or key == wanted}
        return _renumbered(chosen, found.classes, classes, source)
    if path.suffix.lower() in INDEX_SUFFIXES and path.is_file():
        found = load(index=source, size=size, fit=fit, least=1)
        return _renumbered(found.domains, found.classes, classes, source)
    files = sorted(file for file in path.glob("*.npz") if not file.name.startswith(".")) if path.is_dir() else []
    if files:
        return _packed(files, classes, Stack(size, fit))
    if not path.is_dir():
        raise FairsiloError(f"{source} is no folder; give PATH/class/image or PATH/domain/class/image")
    return _folders(path, classes, Stack(size, fit))


def read_images(sources: Iterable[Path], size: int | None, fit: str = "squeeze") -> tuple[list[str], Tensor]:
    """Image files, and those inside folders, in name order: their paths and their pixels."""
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            inside = sorted(file for file in source.rglob("*") if file.suffix.lower() in SUFFIXES)
            if not inside:
                raise FairsiloError(f"{source} holds no image ({' '.join(SUFFIXES)})")
            files += inside
        elif source.exists():
            files.append(source)
        else:
            raise FairsiloError(f"{source} does not exist")
    stack = Stack(size, fit)
    with size_limit():
        for file in files:
            stack.add(file, str(file))
    found = stack.take()
    assert isinstance(found, Tensor)
    return [str(file) for file in files], found


def _folders(path: Path, classes: Sequence[str], stack: Stack) -> dict[str, Domain]:
    if has_masks(path):
        return mask_folders(path, stack).domains
    if (path / "images").is_dir() and (path / "masks").is_dir():
        name = path.resolve().name
        return {name: outlined(name, pairs_in(path / "images", path / "masks"), stack)}
    inside = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not inside:
        raise FairsiloError(f"{path} holds no folders; give PATH/class/image or PATH/domain/class/image")
    if set(inside) & set(classes):  # class folders: all of it is one domain
        return {path.resolve().name: _domain(path, path.resolve().name, classes, stack)}
    return {name: _domain(path / name, name, classes, stack) for name in inside}


def _domain(path: Path, name: str, classes: Sequence[str], stack: Stack) -> Domain:
    """As the same folder is read where it is one of several domains: the same samples in the same order and groups."""
    targets: list[int] = []
    files: list[Path] = []
    with size_limit():
        for inside in natural(one.name for one in path.iterdir() if one.is_dir() and not one.name.startswith(".")):
            label = _number(inside, classes, path)
            for file in sorted(file for file in (path / inside).iterdir() if file.suffix.lower() in SUFFIXES):
                stack.add(file, str(file))
                targets.append(label)
                files.append(file)
    if not targets:
        raise FairsiloError(f"{path} holds no image in a folder of a class; lay it out as class/image")
    split = torch.full((len(targets),), UNDECIDED, dtype=torch.int8)
    group, attributes = headers_of(files)
    names = tuple(f"{file.parent.name}/{file.name}" for file in files)
    return Domain(name, stack.take(), torch.tensor(targets), split, group, attributes=attributes, names=names)


def _packed(files: Sequence[Path], classes: Sequence[str], stack: Stack) -> dict[str, Domain]:
    """File by file, since `read_packed` asks for two domains at least: it is for federations, which hold one out."""
    found: dict[str, Domain] = {}
    with size_limit():
        for file in files:
            domain, names = read_domain(file, stack)
            if domain.targets.ndim == 3 and len(names) == len(classes) == 2:
                names = list(classes)  # background and what is outlined, whatever the folder is called
            found |= _renumbered({file.stem: domain}, names, classes, file)
    return found


def relabelled(dataset: Dataset, classes: Sequence[str]) -> Dataset:
    """With the classes in this order, mapped by name; not all of them need samples.

    Raises:
        FairsiloError: The data have a class that is not among them, or have none at all.
    """
    if tuple(classes) == dataset.classes:
        return dataset
    if not dataset.classes:
        raise FairsiloError(f"data.classes names classes, which {dataset.name} have not; set data.classes=-")
    number = torch.tensor([_number(name, classes, dataset.name) for name in dataset.classes])
    made = {
        name: replace(one, targets=number[one.targets.long()].to(one.targets.dtype))
        for name, one in dataset.domains.items()
    }
    return replace(dataset, classes=tuple(classes), domains=made)


def _renumbered(
    domains: dict[str, Domain], theirs: Sequence[str], ours: Sequence[str], where: object
) -> dict[str, Domain]:
    number = torch.tensor([_number(name, ours, where) for name in theirs])
    return {
        name: replace(one, targets=number[one.targets.long()].to(one.targets.dtype), silo=None)
        for name, one in domains.items()
    }


def _number(name: str, classes: Sequence[str], where: object) -> int:
    if name not in classes:
        raise FairsiloError(f"{where} has the class {name!r}, which is none of the model's{nearest(name, classes)}")
    return list(classes).index(name)
