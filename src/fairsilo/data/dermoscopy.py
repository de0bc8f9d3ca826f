"""Dermoscopy by site: FLamby's table of Fed-ISIC2019, and HAM10000's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from fairsilo.data.dataset import TEST, TRAIN, Dataset
from fairsilo.data.layouts import Sample, labelled, table
from fairsilo.data.reading import Stack
from fairsilo.errors import FairsiloError

AGES = (30, 45, 60, 75)  # where one group of ages ends and the next begins


def isic(
    folder: Path,
    stack: Stack,
    tables: Sequence[str],
    images: Sequence[str],
    domains: Sequence[str],
    classes: Sequence[str],
) -> Dataset:
    """Columns `image`, `target`, `center` and `fold` (train, test), as FLamby writes them."""
    file = next(folder / name for name in tables if (folder / name).is_file())
    rows = table(file, ("image", "target", "center", "fold"))
    for number, row in enumerate(rows, start=1):
        for column, known in (("target", len(classes)), ("center", len(domains))):
            if not row[column].isdigit() or int(row[column]) >= known:
                raise FairsiloError(f"row {number} of {file} has {column} {row[column]!r}, not one of 0 to {known - 1}")
        if row["fold"] not in ("train", "test"):
            raise FairsiloError(f"row {number} of {file} has fold {row['fold']!r}, but must have train or test")
    made = {}
    for center, name in enumerate(domains):
        members = [row for row in rows if int(row["center"]) == center]
        if members:
            samples = [_sample(folder, images, row["image"], int(row["target"]), file) for row in members]
            split = [TRAIN if row["fold"] == "train" else TEST for row in members]
            made[name] = labelled(name, samples, stack, split)
    return Dataset(folder.name, tuple(classes), made)


def ham(
    folder: Path,
    stack: Stack,
    tables: Sequence[str],
    images: Sequence[str],
    domains: Sequence[str],
    classes: Sequence[str],
) -> Dataset:
    """Columns `image_id`, `lesion_id`, `dx` and `dataset`; sex, age and site of the body become attributes."""
    file = next(folder / name for name in tables if (folder / name).is_file())
    rows = table(file, ("image_id", "lesion_id", "dx", "dataset"))
    for number, row in enumerate(rows, start=1):
        for column, known in (("dx", classes), ("dataset", domains)):
            if row[column] not in known:
                raise FairsiloError(
                    f"row {number} of {file} has {column} {row[column]!r}, not one of {', '.join(known)}"
                )
    made = {}
    for name in domains:
        members = [row for row in rows if row["dataset"] == name]
        if not members:
            continue
        samples = [_sample(folder, images, row["image_id"], list(classes).index(row["dx"]), file) for row in members]
        attributes: dict[str, list[str]] = {}
        for column in ("sex", "localization"):
            if column in rows[0]:
                attributes[column] = [row[column] or "unknown" for row in members]
        if "age" in rows[0]:
            attributes["age"] = [age_group(row["age"]) for row in members]
        made[name] = labelled(name, samples, stack, group=[row["lesion_id"] for row in members], attributes=attributes)
    return Dataset(folder.name, tuple(classes), made)


def age_group(age: str) -> str:
    """Ages as groups such as 45-59, since a group of one year says little."""
    try:
        years = float(age)
    except ValueError:
        return "unknown"
    if math.isnan(years):
        return "unknown"
    ends = (0, *AGES)
    low = max(end for end in ends if end <= max(years, 0))
    later = [end for end in ends if end > years]
    return f"{low}-{later[0] - 1}" if later else f"{low} and older"


def _sample(folder: Path, places: Sequence[str], image: str, number: int, table: Path) -> Sample:
    for place in places:
        for suffix in (".jpg", ".png", ".jpeg"):
            file = folder / place / f"{image}{suffix}"
            if file.is_file():
                return file, str(file), number
    raise FairsiloError(f"{table} names the image {image}, which is in none of {', '.join(places)} of {folder}")
