"""Packed data: one .npz per domain with the encoded image files end to end, quick to copy and to read.

Arrays: `images` (uint8, the PNG, WebP or JPEG files end to end), `offsets` (int64, image i is
`images[offsets[i]:offsets[i + 1]]`), `label`, `classes`; optionally `split` (0 train, 1 test, 2 validation,
3 undecided), `subject` (samples of one subject stay in one split), `silo`, `name` (of the file, as class/file), and any
`attribute_NAME` (a value per sample). For segmentation `mask_bits` and `mask_shape` instead of `label`: mask i has the
first H * W bits of row i, and `classes` may be left out (background, and the name of the folder).
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
MASKED = ("images", "offsets", "mask_bits", "mask_shape")
READ = (*REQUIRED, *MASKED, "split", "subject", "silo", "name")
ATTRIBUTE = "attribute_"
# What NumPy and zipfile raise on damaged archives; TypeError when the file holds a single bare array.
_DAMAGE = (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error)

Arrays = dict[str, NDArray[Any]]


def read_packed(
    folder: Path, size: int | None = None, domains: Sequence[str] | None = None, fit: str = "squeeze"
) -> Dataset:
    """Read every .npz of the folder, or only the named domains, each file one domain."""
    return packed_dataset(Path(folder), Stack(size, fit), domains)


def packed_dataset(folder: Path, stack: Stack, domains: Sequence[str] | None = None) -> Dataset:
    """As `read_packed`, with images put on a stack."""
    files = _files(folder, domains)
    tasks: dict[str, str] = {}
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
            tasks[file.stem] = "classify" if domain.targets.ndim == 1 else "segment"
    for name, task in tasks.items():
        if task != tasks[files[0].stem]:
            raise FairsiloError(
                f"Domain {name!r} in {folder} is data to {task}, but {files[0].stem!r} to {tasks[files[0].stem]}; "
                "all domains must have labels, or all of them masks."
            )
    task = tasks[files[0].stem]
    return Dataset(folder.resolve().name, tuple(classes), found, task=task, source={"packed": str(folder)})


def those_of(folder: Path, stack: Stack, names: Sequence[str]) -> Dataset:
    """The domains of these names that a folder has, in this order."""
    present = [name for name in names if (folder / f"{name}.npz").is_file()]
    dataset = packed_dataset(folder, stack, present)
    return replace(dataset, domains={name: dataset.domains[name] for name in present})


def read_domain(file: Path, stack: Stack) -> tuple[Domain, list[str]]:
    """One file: its samples, and the names of the classes that their numbers stand for."""
    arrays = load_arrays(file)
    check_arrays(file, arrays)
    unnamed = ("background", file.resolve().parent.name)
    return _domain(file, arrays, stack), [str(name) for name in arrays.get("classes", unnamed)]


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


def load_arrays(file: Path) -> Arrays:
    """The arrays that are known; never unpickles, so that a file cannot run code."""
    try:
        # Opened here, since NumPy leaves a file open whose archive turns out to be broken.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            names = set(archive.files)
            wanted = MASKED if "label" not in names and "mask_bits" in names else REQUIRED
            for name in wanted:
                if name not in names:
                    raise FairsiloError(f"Packed file {file} has no array {name!r}; it needs {', '.join(wanted)}.")
            return {name: archive[name] for name in names if name in READ or name.startswith(ATTRIBUTE)}
    except _DAMAGE as error:
        raise FairsiloError(f"Packed file {file} is not an intact .npz archive ({error}).") from None


def check_arrays(file: Path, arrays: Arrays) -> None:
    """The arrays must fit together before any image is cut out of them."""
    fault = next(_faults(arrays), None)
    if fault is not None:
        raise FairsiloError(f"Packed file {file} does not fit together: {fault}.")


def _faults(arrays: Arrays) -> Iterator[str]:
    """What is wrong, most basic first; only the first is used, so later checks may rely on earlier ones."""
    images, offsets = arrays["images"], arrays["offsets"]
    kind = "labels" if "label" in arrays else "masks"
    if images.dtype != np.uint8 or images.ndim != 1:
        yield "images must be one row of uint8"
    for name in ("offsets", "label", "split", "mask_shape"):
        if name in arrays and arrays[name].dtype.kind not in "iu":
            yield f"{name} must be whole numbers, not {arrays[name].dtype}"
    yield from _class_faults(arrays.get("classes"))
    yield from _label_faults(arrays["label"]) if kind == "labels" else _mask_faults(arrays)
    count = len(arrays["label"] if kind == "labels" else arrays["mask_bits"])
    columns = ("split", "subject", "silo", "name", *(name for name in arrays if name.startswith(ATTRIBUTE)))
    for name, length in {"offsets": count + 1, **dict.fromkeys(columns, count)}.items():
        if name in arrays and arrays[name].shape != (length,):
            yield f"{name} must have {length} entries for {count} {kind}, not {arrays[name].size}"
    if offsets[0] != 0 or offsets[-1] != len(images) or (offsets[1:] <= offsets[:-1]).any():
        yield f"offsets must begin at 0, increase and end at {len(images)}, the length of images"
    if kind == "labels" and (arrays["label"].min() < 0 or arrays["label"].max() >= len(arrays["classes"])):
        low, high = arrays["label"].min(), arrays["label"].max()
        yield f"label must lie between 0 and {len(arrays['classes']) - 1}, but has {low} to {high}"
    if kind == "masks" and len(arrays.get("classes", "ab")) != 2:
        yield f"masks of one bit have 2 classes, but classes has {len(arrays['classes'])} names"
    if "split" in arrays and not np.isin(arrays["split"], range(len(SPLIT_CODES))).all():
        yield f"split must be 0 train, 1 test, 2 validation or 3 undecided, but has {arrays['split'].max()}"


def _class_faults(classes: NDArray[Any] | None) -> Iterator[str]:
    if classes is None:
        return
    if classes.ndim != 1 or len(classes) == 0 or len(set(classes.tolist())) < len(classes):
        yield "classes must be one row of distinct names"


def _label_faults(label: NDArray[Any]) -> Iterator[str]:
    if label.ndim != 1 or len(label) == 0:
        yield "label must be one row with at least one number"


def _mask_faults(arrays: Arrays) -> Iterator[str]:
    bits, shape = arrays["mask_bits"], arrays["mask_shape"]
    if shape.shape != (2,) or (shape < 1).any():
        yield "mask_shape must be height and width"
    if bits.dtype != np.uint8 or bits.ndim != 2 or len(bits) == 0:
        yield "mask_bits must be rows of uint8, one for each mask"
    needed = -(-int(shape[0]) * int(shape[1]) // 8)
    if bits.shape[1] != needed:
        height, width = shape.tolist()
        yield f"mask_bits must have {needed} bytes a mask of {width} x {height}, not {bits.shape[1]}"


def _domain(file: Path, arrays: Arrays, stack: Stack) -> Domain:
    images, offsets = arrays["images"].tobytes(), arrays["offsets"].tolist()
    count = len(offsets) - 1
    shape = (int(arrays["mask_shape"][0]), int(arrays["mask_shape"][1])) if "mask_shape" in arrays else None
    for index in range(count):
        stack.add(images[offsets[index] : offsets[index + 1]], f"Image {index} of packed file {file}", shape)
    codes = arrays.get("split", np.full(count, SPLIT_CODES.index(UNDECIDED)))
    named = {name.removeprefix(ATTRIBUTE): values for name, values in arrays.items() if name.startswith(ATTRIBUTE)}
    return Domain(
        name=file.stem,
        inputs=stack.take(),
        targets=torch.from_numpy(arrays["label"].astype(np.int64)) if shape is None else _masks(arrays, shape, stack),
        split=torch.from_numpy(np.array(SPLIT_CODES, np.int8)[codes]),
        group=_groups(arrays["subject"]) if "subject" in arrays else None,
        silo=tuple(str(name) for name in arrays["silo"]) if "silo" in arrays else None,
        attributes={name: tuple(map(str, values)) for name, values in sorted(named.items())},
        names=tuple(map(str, arrays["name"])) if "name" in arrays else None,
    )


def _masks(arrays: Arrays, shape: tuple[int, int], stack: Stack) -> torch.Tensor:
    bits = np.unpackbits(arrays["mask_bits"], axis=1)[:, : shape[0] * shape[1]]
    return torch.from_numpy(np.stack([stack.mask(mask) for mask in bits.reshape(-1, *shape)]))


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
        shape, pairs = domain.samples.shape, dataset.task == "segment" and len(dataset.classes) == 2
        if not (dataset.task == "classify" or pairs) or len(shape) != 3 or shape[0] not in (1, 3):
            raise FairsiloError(
                f"Domain {name!r} cannot be packed, since only grey or RGB images can, with one label each or with "
                "masks of two classes."
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
    blocks = (inputs for inputs, _ in domain.samples.blocks())
    files = [_png(image) for block in blocks for image in block.permute(0, 2, 3, 1).contiguous().numpy()]
    arrays: dict[str, Any] = {
        "images": np.frombuffer(b"".join(files), np.uint8),
        "offsets": np.cumsum([0, *map(len, files)], dtype=np.int64),
        **_pack_targets(domain.targets),
        "split": np.array([SPLIT_CODES.index(split) for split in domain.split.tolist()], np.uint8),
        "classes": np.array(classes),
    }
    if domain.group is not None:
        arrays["subject"] = domain.group.numpy()
    if domain.silo is not None:
        arrays["silo"] = np.array(domain.silo)
    if domain.names is not None:
        arrays["name"] = np.array(domain.names)
    return arrays | {f"{ATTRIBUTE}{name}": np.array(values) for name, values in domain.attributes.items()}


def _pack_targets(targets: torch.Tensor) -> dict[str, NDArray[Any]]:
    if targets.ndim == 1:
        return {"label": targets.numpy()}
    bits = np.packbits(targets.flatten(1).numpy().astype(bool), axis=1)
    return {"mask_bits": bits, "mask_shape": np.array(targets.shape[1:], np.int64)}


def _png(image: NDArray[np.uint8]) -> bytes:
    stream = BytesIO()
    Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image).save(stream, "PNG")
    return stream.getvalue()
