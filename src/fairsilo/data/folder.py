"""A user's own images: a folder PATH/domain/class/image, or an index file in CSV or JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

import torch

from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset, Domain
from fairsilo.data.dicom import SUFFIX as DICOM
from fairsilo.data.dicom import facts_of
from fairsilo.data.reading import Stack, all_classes, check_domains, size_limit
from fairsilo.errors import FairsiloError, nearest

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".dcm")
SPLIT_WORDS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "test": TEST, "": UNDECIDED}
REQUIRED = ("path", "label", "domain")
OPTIONAL = ("silo", "split", "group")
LAYOUT = "lay it out as domain/class/image"
# Left behind by file browsers rather than by the user; hidden by convention, though not by name.
LITTER = {"thumbs.db", "desktop.ini"}

Row = dict[str, str]


def read_folder(path: Path, size: int | None = None, fit: str = "squeeze") -> Dataset:
    """Read PATH/domain/class/image; class folders hold images only, deeper folders are refused.

    Files other than images beside the domain or class folders (a README, a licence) are passed over; splits
    are left undecided; where a size is given, `fit` says how images that are not square become square. A domain may
    lack a class.
    """
    return folder_dataset(Path(path), Stack(size, fit))


def folder_dataset(path: Path, stack: Stack) -> Dataset:
    """As `read_folder`, with images put on a stack."""
    tree = _tree(path)
    check_domains(tree, f"Data folder {path}")
    classes = all_classes({domain: set(found) for domain, found in tree.items()})
    domains = {}
    with size_limit():
        for domain, found in tree.items():
            targets: list[int] = []
            files: list[Path] = []
            for label, name in enumerate(classes):
                for file in found.get(name, ()):
                    stack.add(file, str(file))
                    targets.append(label)
                    files.append(file)
            split = torch.full((len(targets),), UNDECIDED, dtype=torch.int8)
            group, attributes = headers_of(files)
            names = tuple(f"{file.parent.name}/{file.name}" for file in files)
            domains[domain] = Domain(
                domain, stack.take(), torch.tensor(targets), split, group, attributes=attributes, names=names
            )
    return Dataset(path.resolve().name, tuple(classes), domains, source={"folder": str(path)})


def headers_of(files: Sequence[Path]) -> tuple[torch.Tensor | None, dict[str, tuple[str, ...]]]:
    """What DICOM files say of themselves: images of one patient stay in one split, sex and scanner are attributes."""
    if not all(file.suffix.lower() == DICOM for file in files):
        return None, {}
    patients, columns = facts_of(files)
    numbers = {name: number for number, name in enumerate(sorted(set(patients)))}
    return torch.tensor([numbers[one] for one in patients]), {key: tuple(one) for key, one in columns.items()}


def _tree(path: Path) -> dict[str, dict[str, list[Path]]]:
    """Domain -> class -> image files, all sorted by name."""
    if not path.is_dir():
        problem = "is a file, not a folder" if path.exists() else "does not exist"
        raise FairsiloError(f"Data folder {path} {problem}; give a folder and {LAYOUT}.")
    tree = {domain.name: {label.name: images_in(label) for label in _folders(domain)} for domain in _folders(path)}
    for domain, found in tree.items():
        if not found:
            raise FairsiloError(f"Domain folder {path / domain} has no class folders; {LAYOUT}.")
    if not tree and any(path.glob("*.npz")):
        raise FairsiloError(f"Data folder {path} holds packed .npz files; read it as packed, not as a folder.")
    return tree


def visible(folder: Path) -> list[Path]:
    entries = (entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return sorted((entry for entry in entries if entry.name.lower() not in LITTER), key=lambda entry: entry.name)


def _folders(folder: Path) -> list[Path]:
    entries = visible(folder)
    for entry in entries:
        if not entry.is_dir() and entry.suffix.lower() in SUFFIXES:
            raise FairsiloError(f"Image {entry} lies outside a class folder; {LAYOUT}.")
    return [entry for entry in entries if entry.is_dir()]


def images_in(folder: Path) -> list[Path]:
    files = visible(folder)
    for file in files:
        if file.is_dir():
            raise FairsiloError(
                f"Class folder {folder} holds the folder {file.name!r}, but may hold only images; {LAYOUT}."
            )
        if file.suffix.lower() not in SUFFIXES:
            raise FairsiloError(
                f"File {file} among the images is not an image; remove it or use one of {' '.join(SUFFIXES)}."
            )
    if not files:
        raise FairsiloError(f"Class folder {folder} is empty; put images into it, or remove it where there are none.")
    return files


def read_index(path: Path, size: int | None = None, fit: str = "squeeze", least: int = 2) -> Dataset:
    """Read an index of images: path (relative to the index), label, domain; silo, split and group if known.

    Rows of one group (a patient, an original) stay in one split; a row without a split is left undecided. Columns
    that are none of these are attributes of the samples. There must be `least` domains.
    """
    return index_dataset(Path(path), Stack(size, fit), least)


def index_dataset(path: Path, stack: Stack, least: int = 2) -> Dataset:
    """As `read_index`, with images put on a stack."""
    rows = _rows(path)
    by_domain: dict[str, list[Row]] = {name: [] for name in sorted({row["domain"] for row in rows})}
    for row in rows:
        by_domain[row["domain"]].append(row)
    check_domains(by_domain, f"Index {path}", least)
    found = {domain: {row["label"] for row in members} for domain, members in by_domain.items()}
    classes = all_classes(found)
    groups = {name: number for number, name in enumerate(sorted({row.get("group", "") for row in rows}))}
    with size_limit():
        domains = {
            domain: _indexed(path, domain, members, classes, groups, stack) for domain, members in by_domain.items()
        }
    return Dataset(path.stem, tuple(classes), domains, source={"index": str(path)})


def _indexed(
    index: Path, name: str, rows: list[Row], classes: list[str], groups: dict[str, int], stack: Stack
) -> Domain:
    for row in rows:
        file = index.parent / row["path"]
        if not file.is_file():
            raise FairsiloError(f"Image {file} named in index {index} does not exist; give a path relative to it.")
        stack.add(file, str(file))
    return Domain(
        name=name,
        inputs=stack.take(),
        targets=torch.tensor([classes.index(row["label"]) for row in rows]),
        split=torch.tensor([SPLIT_WORDS[row.get("split", "")] for row in rows], dtype=torch.int8),
        group=torch.tensor([groups[row["group"]] for row in rows]) if "group" in rows[0] else None,
        silo=tuple(row["silo"] for row in rows) if "silo" in rows[0] else None,
        attributes={
            column: tuple(row[column] for row in rows) for column in rows[0] if column not in (*REQUIRED, *OPTIONAL)
        },
        names=tuple(row["path"] for row in rows),
    )


def _rows(path: Path) -> list[Row]:
    """The rows of the index as text, checked one by one."""
    columns, rows = parsed_index(path)
    return [read_row(path, number, row, columns) for number, row in enumerate(rows, start=1)]


def parsed_index(path: Path) -> tuple[list[str], list[dict[str, object]]]:
    """The columns of an index, those that are known first, and its rows, not checked yet."""
    if not path.is_file():
        raise FairsiloError(f"Index {path} does not exist; give a CSV or JSON file with {', '.join(REQUIRED)}.")
    readers = {".csv": parsed_csv, ".json": _json}
    if path.suffix.lower() not in readers:
        raise FairsiloError(f"Index {path} ends in {path.suffix!r}, but must be a .csv or a .json file.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FairsiloError(f"Index {path} cannot be read as UTF-8 text ({error}).") from None
    columns, rows = readers[path.suffix.lower()](path, text)
    for name in REQUIRED:
        if name not in columns:
            raise FairsiloError(f"Index {path} has no column {name!r}{_instead(name, columns)}.")
    if not rows:
        raise FairsiloError(f"Index {path} has no rows; name at least one image per class and domain.")
    known = [name for name in (*REQUIRED, *OPTIONAL) if name in columns]
    return [*known, *(name for name in columns if name and name not in known)], rows


def _instead(name: str, columns: Iterable[str]) -> str:
    spare = [column for column in columns if column not in (*REQUIRED, *OPTIONAL)]
    hint = nearest(name, spare).removesuffix("?")
    return hint or f"; it needs {', '.join(REQUIRED)}"


def read_row(path: Path, number: int, row: dict[str, object], columns: Sequence[str]) -> Row:
    """One row with exactly the wanted columns, stripped; only the split and attributes may be empty."""
    clean = {}
    for name in columns:
        value = row.get(name)
        if isinstance(value, list | dict | bool):
            raise FairsiloError(f"Row {number} of index {path} has {name} {value!r}, but it must be text.")
        clean[name] = "" if value is None else str(value).strip()
        if not clean[name] and name != "split" and name in (*REQUIRED, *OPTIONAL):
            raise FairsiloError(f"Row {number} of index {path} has no {name}; every row needs one.")
    word = clean.get("split", "")
    if word.lower() not in SPLIT_WORDS:
        raise FairsiloError(
            f"Row {number} of index {path} has split {word!r}, but it must be train, validation, val or test."
        )
    return {**clean, "split": word.lower()}


def parsed_csv(path: Path, text: str) -> tuple[list[str], list[dict[str, object]]]:
    try:
        lines = [line for line in csv.reader(StringIO(text, newline=""), strict=True) if line]
    except csv.Error as error:
        raise FairsiloError(f"Index {path} is not valid CSV ({error}).") from None
    columns = [name.strip() for name in lines[0]] if lines else []
    for number, line in enumerate(lines[1:], start=1):
        if len(line) != len(columns):
            raise FairsiloError(
                f"Row {number} of index {path} has {len(line)} fields, but the header has {len(columns)}."
            )
    return columns, [dict(zip(columns, line, strict=True)) for line in lines[1:]]


def _json(path: Path, text: str) -> tuple[list[str], list[dict[str, object]]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FairsiloError(f"Index {path} is not valid JSON ({error}).") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise FairsiloError(f"Index {path} must be a JSON list of objects with {', '.join(REQUIRED)}.")
    # A column counts as present when any row has it, so that a row that lacks it is named.
    return list(dict.fromkeys(name for row in rows for name in row)), rows
