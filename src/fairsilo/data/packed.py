"""Packed data: one .npz per domain with the encoded image files end to end, quick to copy and to read.

Arrays: `images` (uint8, the PNG, WebP or JPEG files end to end), `offsets` (int64, image i is
`images[offsets[i]:offsets[i + 1]]`), `label`, `classes`; optionally `split` (0 train, 1 test, 2 validation,
3 undecided), `subject` (samples of one subject stay in one split) and `silo`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.reading import Stack, check_domains, check_known, size_limit
from fairsilo.errors import FairsiloError

# Position is the number in the file: the format had only train and test, the others were added after them.
SPLIT_CODES = (TRAIN, TEST, VALIDATION, UNDECIDED)
REQUIRED = ("images", "offsets", "label", "classes")
READ = (*REQUIRED, "split", "subject", "silo")
# What NumPy and zipfile raise on damaged archives; TypeError when the file holds a single bare array.
_DAMAGE = (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error)

Arrays = dict[str, NDArray[Any]]


def read_packed(folder: Path, size: int | None = None, domains: Sequence[str] | None = None) -> Dataset:
    """Read every .npz of the folder, or only the named domains, each file one domain."""
    folder = Path(folder)
    files = _files(folder, domains)
    stack = Stack(size)
    found: dict[str, Domain] = {}
    classes: list[str] = []
    with size_limit():
        for file in files:
            domain, names = read_domain(file, stack)
            classes = classes or names
            if names != classes:
                raise FairsiloError(
                    f"Domain {file.stem!r} in {folder} has classes {', '.join(names)}, but {files[0].stem!r} "
                    f"has {', '.join(classes)}; every domain must have the same classes in the same order."
                )
            found[file.stem] = domain
    return Dataset(folder.resolve().name, tuple(classes), found, source={"packed": str(folder)})


def read_domain(file: Path, stack: Stack) -> tuple[Domain, list[str]]:
    """One file: its samples, and the names of the classes that their numbers stand for."""
    arrays = _load(file)
    _check(file, arrays)
    return _domain(file, arrays, stack), [str(name) for name in arrays["classes"]]


def _files(folder: Path, domains: Sequence[str] | None) -> list[Path]:
    if not folder.is_dir():
        problem = "is a file, not a folder" if folder.exists() else "does not exist"
        raise FairsiloError(f"Packed data folder {folder} {problem}; give a folder with one .npz per domain.")
    files = {file.stem: file for file in sorted(folder.glob("*.npz")) if not file.name.startswith(".")}
    if domains is not None:
        check_known(domains, files, f"packed data folder {folder}")
        files = {name: file for name, file in files.items() if name in domains}
    check_domains(files, f"Packed data folder {folder}")
    return list(files.values())


def _load(file: Path) -> Arrays:
    """The arrays that are known; never unpickles, so that a file cannot run code."""
    try:
        # Opened here, since NumPy leaves a file open whose archive turns out to be broken.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            names = set(archive.files)
            if "label" not in names and "mask_bits" in names:
                raise FairsiloError(
                    f"Packed file {file} has masks instead of labels, but segmentation is not supported yet."
                )
            for name in REQUIRED:
                if name not in names:
                    raise FairsiloError(f"Packed file {file} has no array {name!r}; it needs {', '.join(REQUIRED)}.")
            return {name: archive[name] for name in READ if name in names}
    except _DAMAGE as error:
        raise FairsiloError(f"Packed file {file} is not an intact .npz archive ({error}).") from None


def _check(file: Path, arrays: Arrays) -> None:
    """The arrays must fit together before any image is cut out of them."""
    fault = next(_faults(arrays), None)
    if fault is not None:
        raise FairsiloError(f"Packed file {file} does not fit together: {fault}.")


def _faults(arrays: Arrays) -> Iterator[str]:
    """What is wrong, most basic first; only the first is used, so later checks may rely on earlier ones."""
    images, offsets, label, classes = (arrays[name] for name in REQUIRED)
    if images.dtype != np.uint8 or images.ndim != 1:
        yield "images must be one row of uint8"
    for name in ("offsets", "label", "split"):
        if name in arrays and arrays[name].dtype.kind not in "iu":
            yield f"{name} must be whole numbers, not {arrays[name].dtype}"
    if classes.ndim != 1 or len(classes) == 0 or len(set(classes.tolist())) < len(classes):
        yield "classes must be one row of distinct names"
    if label.ndim != 1 or len(label) == 0:
        yield "label must be one row with at least one number"
    lengths = {"offsets": len(label) + 1, "split": len(label), "subject": len(label), "silo": len(label)}
    for name, length in lengths.items():
        if name in arrays and arrays[name].shape != (length,):
            yield f"{name} must have {length} entries for {len(label)} labels, not {arrays[name].size}"
    if offsets[0] != 0 or offsets[-1] != len(images) or (offsets[1:] <= offsets[:-1]).any():
        yield f"offsets must begin at 0, increase and end at {len(images)}, the length of images"
    if label.min() < 0 or label.max() >= len(classes):
        yield f"label must lie between 0 and {len(classes) - 1}, but has {label.min()} to {label.max()}"
    if "split" in arrays and not np.isin(arrays["split"], range(len(SPLIT_CODES))).all():
        yield f"split must be 0 train, 1 test, 2 validation or 3 undecided, but has {arrays['split'].max()}"


def _domain(file: Path, arrays: Arrays, stack: Stack) -> Domain:
    images, offsets = arrays["images"].tobytes(), arrays["offsets"].tolist()
    for index in range(len(arrays["label"])):
        stack.add(images[offsets[index] : offsets[index + 1]], f"Image {index} of packed file {file}")
    codes = arrays.get("split", np.full(len(arrays["label"]), SPLIT_CODES.index(UNDECIDED)))
    return Domain(
        name=file.stem,
        inputs=stack.take(),
        targets=torch.from_numpy(arrays["label"].astype(np.int64)),
        split=torch.from_numpy(np.array(SPLIT_CODES, np.int8)[codes]),
        group=_groups(arrays["subject"]) if "subject" in arrays else None,
        silo=tuple(str(name) for name in arrays["silo"]) if "silo" in arrays else None,
    )


def _groups(subject: NDArray[Any]) -> torch.Tensor:
    """Subjects as numbers: their own where they are numbers, else their place among the sorted names."""
    if subject.dtype.kind not in "iu":
        subject = np.unique(subject, return_inverse=True)[1]
    return torch.from_numpy(subject.astype(np.int64))


def write_packed(dataset: Dataset, folder: Path) -> None:
    """Write one .npz per domain, images as PNG; a file appears only when it is complete."""
    folder = Path(folder)
    for name, domain in dataset.domains.items():
        if Path(name).name != name or name.startswith("."):
            raise FairsiloError(f"Domain {name!r} cannot be a file name; rename it without slashes or leading dots.")
        if dataset.task != "classify" or domain.inputs.shape[1] not in (1, 3):
            raise FairsiloError(
                f"Domain {name!r} cannot be packed, since only grey or RGB images with one label each can."
            )
    folder.mkdir(parents=True, exist_ok=True)
    stray = sorted({file.stem for file in folder.glob("*.npz")} - set(dataset.domains))
    if stray:
        raise FairsiloError(
            f"Folder {folder} already holds {stray[0]}.npz, which would be read as one more domain; "
            "choose an empty folder."
        )
    for name, domain in dataset.domains.items():
        partial = folder / f".{name}.partial"
        with partial.open("wb") as stream:
            np.savez(stream, **_pack(domain, dataset.classes))
        partial.replace(folder / f"{name}.npz")


def _pack(domain: Domain, classes: tuple[str, ...]) -> dict[str, Any]:
    files = [_png(image) for image in domain.inputs.permute(0, 2, 3, 1).contiguous().numpy()]
    arrays: dict[str, Any] = {
        "images": np.frombuffer(b"".join(files), np.uint8),
        "offsets": np.cumsum([0, *map(len, files)], dtype=np.int64),
        "label": domain.targets.numpy(),
        "split": np.array([SPLIT_CODES.index(split) for split in domain.split.tolist()], np.uint8),
        "classes": np.array(classes),
    }
    if domain.group is not None:
        arrays["subject"] = domain.group.numpy()
    if domain.silo is not None:
        arrays["silo"] = np.array(domain.silo)
    return arrays


def _png(image: NDArray[np.uint8]) -> bytes:
    stream = BytesIO()
    Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image).save(stream, "PNG")
    return stream.getvalue()
