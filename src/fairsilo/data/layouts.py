"""Forms in which public data sets are found: folders of images, lists, FedBN's pickles, masks beside images."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fairsilo.data.about import found_folders
from fairsilo.data.dataset import SPLITS, TEST, TRAIN, UNDECIDED, Dataset, Domain
from fairsilo.data.folder import SUFFIXES, images_in, visible
from fairsilo.data.pickles import read_pair
from fairsilo.data.reading import Source, Stack, decode, natural, size_limit
from fairsilo.errors import FairsiloError

Sample = tuple[Source, str, int]  # an image, what errors call it, and its class


# ------------------------------------------------------------------------------------------------------------- folders
def domain_folders(
    folder: Path,
    stack: Stack,
    domains: Sequence[str],
    classes: Sequence[str] | None = None,
    lists: Mapping[str, str] | None = None,
) -> Dataset:
    """FOLDER/domain/class/image as DomainBed has it; `classes` leaves out the images of all others.

    Args:
        folder: The folder of the data set.
        stack: Where images are put.
        domains: Their folders; `clipart|clip` is found under either name and called clipart.
        classes: The classes to read; by default all.
        lists: Ending of a text file -> the split of the images that it lists, where such files lie with the folders:
            `_train_kfold.txt` of the domain photo is photo_train_kfold.txt. Of several lists the first counts.
    """
    found = found_folders(folder, domains)
    trees = {name: _classes(path) for name, path in found.items()}
    present = natural({label for tree in trees.values() for label in tree})
    wanted = present if classes is None else list(classes)
    if classes is not None:
        absent = [label for label in wanted if label not in present]
        if absent:
            raise FairsiloError(
                f"{folder} has no folder of the class {absent[0]!r} in any domain; the collection is not complete"
            )
    made = {}
    for name, tree in trees.items():
        files = [(file, number) for number, label in enumerate(wanted) for file in tree.get(label, ())]
        if not files:
            raise FairsiloError(
                f"domain folder {found[name]} has no image in a folder of a class; lay it out as class/image"
            )
        split = _marks(folder, name, [file for file, _ in files], lists or {})
        made[name] = labelled(name, ((file, str(file), number) for file, number in files), stack, split)
    return Dataset(folder.name, tuple(wanted), made)


# where lists of splits lie, the last as PACS was released
LISTS = (".", "splits", "Train val splits and h5py files pre-read")


def _marks(folder: Path, domain: str, files: Sequence[Path], lists: Mapping[str, str]) -> list[int] | None:
    """The split of each image by the lists of its domain; None where there are no lists."""
    places = [above / place for above in (folder, folder.parent) for place in LISTS]
    found: dict[str, int] = {}
    texts = []
    for ending, split in lists.items():
        text = next((file for place in places if (file := place / f"{domain}{ending}").is_file()), None)
        if text is not None:
            texts.append(text)
            lines = text.read_text(encoding="utf-8").split("\n")
            # a line is a path and a class number; the last two parts of the path are class and file
            named = {"/".join(line.rpartition(" ")[0].split("/")[-2:]) for line in lines if line.strip()}
            found = dict.fromkeys(named, SPLITS.index(split)) | found
    if not texts:
        return None
    names = ["/".join(file.parts[-2:]) for file in files]
    for odd, words in ((set(names) - found.keys(), "do not name"), (found.keys() - set(names), "name")):
        if odd:
            whose = "which is there" if words == "do not name" else "which is not there"
            raise FairsiloError(f"the lists {', '.join(map(str, texts))} {words} {domain}/{min(odd)}, {whose}")
    return [found[name] for name in names]


def _classes(domain: Path) -> dict[str, list[Path]]:
    return {one.name: images_in(one) for one in visible(domain) if one.is_dir()}


def labelled(
    name: str,
    samples: Iterable[Sample],
    stack: Stack,
    split: Sequence[int] | None = None,
    group: Sequence[str] | None = None,
    attributes: Mapping[str, Sequence[str]] | None = None,
) -> Domain:
    """A domain of images with a class each."""
    targets, names = [], []
    with size_limit():
        for source, called, number in samples:
            stack.add(source, called)
            targets.append(number)
            names += ["/".join(source.parts[-2:])] if isinstance(source, Path) else []
    marks = [UNDECIDED] * len(targets) if split is None else list(split)
    numbers = None if group is None else torch.from_numpy(np.unique(np.array(group), return_inverse=True)[1])
    columns = {key: tuple(values) for key, values in (attributes or {}).items()}
    return Domain(
        name,
        stack.take(),
        torch.tensor(targets),
        torch.tensor(marks, dtype=torch.int8),
        numbers,
        attributes=columns,
        names=tuple(names) or None,
    )


# --------------------------------------------------------------------------------------------------------------- lists
def listed(folder: Path, stack: Stack, lists: Mapping[str, str], classes: Sequence[str]) -> Dataset:
    """Domains by a text file each, with a path and a class number a line (ImageCLEF-DA)."""
    made = {}
    for name, place in lists.items():
        file = folder / place
        if file.is_file():
            made[name] = labelled(name, _lines(file, folder, len(classes)), stack)
    return Dataset(folder.name, tuple(classes), made)


def _lines(file: Path, folder: Path, classes: int) -> list[Sample]:
    found: list[Sample] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        path, _, label = line.strip().rpartition(" ")
        if not line.strip():
            continue
        if not path or not label.isdigit() or int(label) >= classes:
            raise FairsiloError(
                f"line {number} of {file} is {line.strip()!r}, but must be a path and a class number below {classes}"
            )
        image = folder / path if (folder / path).is_file() else folder.parent / path
        if not image.is_file():
            raise FairsiloError(f"line {number} of {file} names {path}, which is not in {folder}")
        found.append((image, str(image), int(label)))
    if not found:
        raise FairsiloError(f"{file} names no image")
    return found


def table(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV file that must have these columns."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise FairsiloError(f"{file} cannot be read as CSV in UTF-8 ({problem})") from None
    for name in columns:
        if name not in (reader.fieldnames or ()):
            raise FairsiloError(f"{file} has no column {name!r}; it needs {', '.join(columns)}")
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise FairsiloError(f"row {number} of {file} has another number of fields than the header")
    if not rows:
        raise FairsiloError(f"{file} has no rows")
    return rows


# ------------------------------------------------------------------------------------------------------ FedBN's pickles
def digit_pickles(folder: Path, stack: Stack, domains: Mapping[str, str]) -> Dataset:
    """FOLDER/MNIST/partitions/train_part0.pkl to 9 and FOLDER/MNIST/test.pkl, and so on: (images, labels) each."""
    made = {}
    for name, path in found_folders(folder, list(domains.values())).items():
        parts = sorted((path / "partitions").glob("train_part*.pkl"), key=lambda file: (len(file.name), file.name))
        files = [*((file, TRAIN) for file in parts or [path / "train.pkl"]), (path / "test.pkl", TEST)]
        samples: list[Sample] = []
        split: list[int] = []
        for file, part in files:
            if not file.is_file():
                raise FairsiloError(f"{path} has no {file.name}; FedBN's digits have partitions/train_part*.pkl and it")
            read = _digits(file)
            samples += read
            split += [part] * len(read)
        called = next(key for key, place in domains.items() if place.split("|")[0] == name)
        made[called] = labelled(called, samples, stack, split)
    return Dataset(folder.name, tuple("0123456789"), made)


def _digits(file: Path) -> list[Sample]:
    images, labels = read_pair(file)
    pixels, numbers = np.asarray(images), np.asarray(labels).reshape(-1)
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or (pixels.ndim == 4 and pixels.shape[3] not in (1, 3)):
        raise FairsiloError(f"{file} has images of {pixels.dtype} and shape {pixels.shape}, but needs N x H x W uint8")
    if len(pixels) != len(numbers):
        raise FairsiloError(f"{file} has {len(pixels)} images and {len(numbers)} labels; there must be one for each")
    whole = numbers.astype(np.int64)
    if (whole != numbers).any() or whole.min(initial=0) < 0 or whole.max(initial=0) > 9:
        raise FairsiloError(f"{file} has labels from {numbers.min()} to {numbers.max()}, but must have digits 0 to 9")
    if pixels.ndim == 4 and pixels.shape[3] == 1:
        pixels = pixels[..., 0]
    return [(image, f"image {index} of {file}", int(whole[index])) for index, image in enumerate(pixels)]


def path_pickles(folder: Path, stack: Stack, domains: Sequence[str], classes: Sequence[str]) -> Dataset:
    """FOLDER/amazon_train.pkl and FOLDER/amazon_test.pkl, and so on: (paths, class names) each, as FedBN has them."""
    made = {}
    for name in domains:
        samples: list[Sample] = []
        split: list[int] = []
        for word, part in (("train", TRAIN), ("test", TEST)):
            file = folder / f"{name}_{word}.pkl"
            if file.is_file():
                read = _named(file, folder, classes)
                samples += read
                split += [part] * len(read)
        if samples:
            made[name] = labelled(name, samples, stack, split)
    return Dataset(folder.name, tuple(classes), made)


def _named(file: Path, folder: Path, classes: Sequence[str]) -> list[Sample]:
    found: list[Sample] = []
    paths, labels = read_pair(file)
    if len(paths) != len(labels):
        raise FairsiloError(f"{file} has {len(paths)} paths and {len(labels)} classes; there must be one for each")
    for path, label in zip(map(str, paths), map(str, labels), strict=True):
        if label not in classes:
            raise FairsiloError(f"{file} has the class {label!r}, but knows only {', '.join(classes)}")
        # paths begin with the folder's own name, as they are relative to the one above
        places = [folder / path, folder.parent / path]
        image = next((place for place in places if place.is_file()), None)
        if image is None:
            raise FairsiloError(f"{file} names {path}, which is neither in {folder} nor beside it")
        found.append((image, str(image), list(classes).index(label)))
    return found


# --------------------------------------------------------------------------------------------------------------- masks
def outlined(
    name: str,
    pairs: Iterable[tuple[Path, Sequence[Path]]],
    stack: Stack,
    split: Sequence[int] | None = None,
    group: Sequence[str] | None = None,
) -> Domain:
    """A domain of images with their masks: a pixel is in the second class where any of the masks is white."""
    masks = []
    with size_limit():
        for image, files in pairs:
            read = [mask_of(file) for file in files]
            if any(one.shape != read[0].shape for one in read):
                raise FairsiloError(f"the masks {', '.join(map(str, files))} of one image differ in size")
            union = np.maximum.reduce(read)
            stack.add(image, str(image), (union.shape[0], union.shape[1]))
            masks.append(stack.mask(union))
    if not masks:
        raise FairsiloError(f"domain {name!r} has no image with a mask")
    if any(one.shape != masks[0].shape for one in masks):
        raise FairsiloError(f"the masks of domain {name!r} differ in size; size=128 would resize all images and masks")
    marks = [UNDECIDED] * len(masks) if split is None else list(split)
    numbers = None if group is None else torch.from_numpy(np.unique(np.array(group), return_inverse=True)[1])
    targets = torch.from_numpy(np.stack(masks))
    return Domain(name, stack.take(), targets, torch.tensor(marks, dtype=torch.int8), numbers)


def mask_of(file: Path) -> NDArray[np.uint8]:
    """1 where the image is nearer to white than to black, 0 elsewhere."""
    bright: NDArray[np.bool_] = decode(file, f"mask {file}", None).max(axis=2) > 127
    return bright.astype(np.uint8)


def has_masks(folder: Path) -> bool:
    """Whether every folder in it has the folders images and masks, and there is one at all."""
    inside = [one for one in visible(folder) if one.is_dir()] if folder.is_dir() else []
    return bool(inside) and all({"images", "masks"} <= {one.name for one in visible(each)} for each in inside)


def mask_folders(folder: Path, stack: Stack, domains: Sequence[str] | None = None, inside: str = "") -> Dataset:
    """FOLDER/domain/images/NAME.png with FOLDER/domain/masks/NAME.png (or NAME_mask.png)."""
    names = [one.name for one in visible(folder) if (one / "images").is_dir() and (one / "masks").is_dir()]
    made = {}
    for name in names if domains is None else [one for one in domains if one in names]:
        made[name] = outlined(name, pairs_in(folder / name / "images", folder / name / "masks"), stack)
    return Dataset(folder.name, ("background", inside or folder.resolve().name), made, task="segment")


def pairs_in(images: Path, masks: Path) -> list[tuple[Path, list[Path]]]:
    """Every image with the mask of its name; both must be there."""
    by_name = {bare(file): file for file in visible(masks) if file.suffix.lower() in SUFFIXES}
    pairs = []
    for file in visible(images):
        if file.suffix.lower() not in SUFFIXES:
            continue
        if file.stem.lower() not in by_name:
            raise FairsiloError(f"image {file} has no mask of its name in {masks}")
        pairs.append((file, [by_name.pop(file.stem.lower())]))
    if by_name:
        raise FairsiloError(f"mask {next(iter(by_name.values()))} has no image of its name in {images}")
    return pairs


def bare(file: Path) -> str:
    """The name that an image and its mask share."""
    return file.stem.lower().removesuffix("_mask")
