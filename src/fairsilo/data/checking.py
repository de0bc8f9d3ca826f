"""Everything that is wrong with a folder, an index or packed files, found at once instead of one fault per attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairsilo.data.folder import LAYOUT, LITTER, REQUIRED, SUFFIXES, parsed_index, read_row, visible
from fairsilo.data.layouts import bare, has_masks, mask_of
from fairsilo.data.packed import check_arrays, load_arrays
from fairsilo.data.reading import Source, decode, size_limit
from fairsilo.errors import FairsiloError


@dataclass
class Findings:
    """What was looked at, what must be mended before the data can be used, and what is worth knowing."""

    samples: int = 0
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    counts: dict[str, Counter[str]] = field(default_factory=dict)  # domain -> class -> samples

    def attempt(self, action: Callable[[], Any]) -> Any:
        """What an action returns; what it refuses is noted, and None returned."""
        try:
            return action()
        except FairsiloError as problem:
            self.problems.append(str(problem))
            return None

    def look_at(self, source: Source, name: str, domain: str, label: str, shape: tuple[int, int] | None = None) -> None:
        pixels = self.attempt(lambda: decode(source, name, None, shape=shape))
        if pixels is not None:
            self.samples += 1
            self.sizes[(pixels.shape[1], pixels.shape[0])] += 1
            self.counts.setdefault(domain, Counter())[label] += 1


def check_data(path: Path) -> Findings:
    """Look at every file of PATH/domain/class/image, of an index, or of a folder of packed files."""
    found = Findings()
    if not path.exists():
        raise FairsiloError(f"{path} does not exist; give a folder, an index or a folder of packed files")
    with size_limit():
        if path.is_file():
            _index(path, found)
        elif any(path.glob("*.npz")):
            _packed(path, found)
        elif has_masks(path):
            _masked(path, found)
        else:
            _folder(path, found)
    _together(path, found)
    return found


def _folder(path: Path, found: Findings) -> None:
    domains = _inside(path, found)
    for domain in domains:
        found.counts.setdefault(domain.name, Counter())
        labels = _inside(domain, found)
        if not labels:
            found.problems.append(f"Domain folder {domain} has no class folders; {LAYOUT}.")
        for label in labels:
            _class(domain.name, label, found)


def _inside(folder: Path, found: Findings) -> list[Path]:
    """The folders in a folder; an image that lies beside them is a problem, what is hidden a remark."""
    folders = []
    for entry in sorted(folder.iterdir()):
        if _hidden(entry):
            found.remarks.append(f"{entry} is hidden and passed over")
        elif entry.is_dir():
            folders.append(entry)
        elif entry.suffix.lower() in SUFFIXES:
            found.problems.append(f"Image {entry} lies outside a class folder; {LAYOUT}.")
        else:
            found.remarks.append(f"{entry} is no image and passed over")
    return folders


def _class(domain: str, folder: Path, found: Findings) -> None:
    files = [entry for entry in sorted(folder.iterdir()) if not _hidden(entry)]
    found.remarks += [f"{entry} is hidden and passed over" for entry in sorted(folder.iterdir()) if _hidden(entry)]
    if not files:
        found.problems.append(f"Class folder {folder} is empty; put images into it, or remove it where there are none.")
    for file in files:
        if file.is_dir():
            found.problems.append(f"Class folder {folder} holds the folder {file.name!r}, but may hold only images.")
        elif file.suffix.lower() not in SUFFIXES:
            found.problems.append(f"File {file} among the images is not an image; remove it.")
        else:
            found.look_at(file, str(file), domain, folder.name)


def _masked(path: Path, found: Findings) -> None:
    """Images without a mask, masks without an image, and pairs of different sizes."""
    for domain in visible(path):
        if not domain.is_dir():
            continue
        images, masks = (
            {bare(file): file for file in visible(domain / kind) if file.suffix.lower() in SUFFIXES}
            for kind in ("images", "masks")
        )
        found.counts.setdefault(domain.name, Counter())
        for one, others, what in ((images, masks, "mask"), (masks, images, "image")):
            alone = [file for name, file in one.items() if name not in others]
            found.problems += [f"{file} has no {what} of its name." for file in alone]
        for name in sorted(images.keys() & masks.keys()):
            mask = found.attempt(lambda file=masks[name]: mask_of(file))  # type: ignore[misc]
            if mask is not None:
                shape = (mask.shape[0], mask.shape[1])
                found.look_at(images[name], str(images[name]), domain.name, path.resolve().name, shape)


def _index(path: Path, found: Findings) -> None:
    parsed = found.attempt(lambda: parsed_index(path))
    if parsed is None:
        return
    columns, rows = parsed
    for number, row in enumerate(rows, start=1):
        _indexed(path, number, row, columns, found)


def _indexed(path: Path, number: int, row: dict[str, object], columns: list[str], found: Findings) -> None:
    clean = found.attempt(lambda: read_row(path, number, row, columns))
    if clean is None:
        return
    file = path.parent / clean[REQUIRED[0]]
    if file.is_file():
        found.look_at(file, str(file), clean["domain"], clean["label"])
    else:
        found.problems.append(f"Image {file} named in row {number} of index {path} does not exist.")


def _packed(folder: Path, found: Findings) -> None:
    classes: dict[str, tuple[str, ...]] = {}
    for file in sorted(folder.glob("*.npz")):
        if _hidden(file):
            found.remarks.append(f"{file} is hidden and passed over")
            continue
        found.counts.setdefault(file.stem, Counter())
        arrays = found.attempt(lambda file=file: load_arrays(file))  # type: ignore[misc]
        if arrays is None:
            continue
        before = len(found.problems)
        found.attempt(lambda file=file, arrays=arrays: check_arrays(file, arrays))  # type: ignore[misc]
        if len(found.problems) > before:
            continue
        names = tuple(map(str, arrays.get("classes", ("background", folder.resolve().name))))
        classes[file.stem] = names
        images, offsets = arrays["images"].tobytes(), arrays["offsets"].tolist()
        shape = (int(arrays["mask_shape"][0]), int(arrays["mask_shape"][1])) if "mask_shape" in arrays else None
        for index in range(len(offsets) - 1):
            label = names[int(arrays["label"][index])] if "label" in arrays else names[1]
            name = f"Image {index} of packed file {file}"
            found.look_at(images[offsets[index] : offsets[index + 1]], name, file.stem, label, shape)
    if len(set(classes.values())) > 1:
        listed = "; ".join(f"{name}: {', '.join(one)}" for name, one in classes.items())
        found.problems.append(f"The domains of {folder} differ in their classes ({listed}).")


def _together(path: Path, found: Findings) -> None:
    """What only all domains together show."""
    if len(found.counts) < 2:
        found.problems.append(f"{path} has {len(found.counts)} domains, but at least 2 are needed.")
    if len(found.sizes) > 1:
        listed = ", ".join(f"{count} of {width} x {height}" for (width, height), count in found.sizes.most_common(3))
        found.remarks.append(f"images differ in size ({listed}); data.size=64 makes all of them 64 x 64")
    oblong = sum(count for (width, height), count in found.sizes.items() if width != height)
    if oblong:
        found.remarks.append(f"{oblong} images are not square; data.fit says how data.size makes them so")
    every = sorted({label for counts in found.counts.values() for label in counts})
    for label in every:
        having = [domain for domain, counts in found.counts.items() if counts[label]]
        if len(having) == 1 and len(found.counts) > 1:
            found.remarks.append(f"class {label!r} is in domain {having[0]!r} alone, which then cannot be held out")
    for domain, counts in found.counts.items():
        found.remarks += _lacking(domain, counts, every)


def _lacking(domain: str, counts: Counter[str], every: Iterable[str]) -> list[str]:
    missing = [label for label in every if not counts[label]]
    said = [f"domain {domain!r} has no sample of {', '.join(map(repr, missing))}"] if missing and counts else []
    total = sum(counts.values())
    if total < 10:
        said.append(f"domain {domain!r} has {total} {'sample' if total == 1 else 'samples'} in all")
    return said


def _hidden(entry: Path) -> bool:
    return entry.name.startswith(".") or entry.name.lower() in LITTER
