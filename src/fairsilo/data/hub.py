"""Data sets as the Hugging Face Hub has them: parquet with the columns image, label and domain (extra `hub`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairsilo.data.about import needs_package
from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, VALIDATION, Dataset
from fairsilo.data.layouts import Sample, labelled
from fairsilo.data.reading import Stack, natural
from fairsilo.errors import FairsiloError

# file names on the Hub begin with the split: data/train-00000-of-00003.parquet
SPLITS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "test": TEST}
COLUMNS = ("image", "label", "domain")

Row = dict[str, Any]


def read_parquet(folder: Path, stack: Stack) -> Dataset:
    """Every parquet file of a folder and of its folder `data`; a single split named train leaves samples undecided."""
    needs_package("pyarrow", "hub", f"reading parquet files in {folder}")
    import pyarrow.parquet

    tables: list[tuple[int, Any, str]] = []
    for file in parquet_files(folder):
        try:
            table = pyarrow.parquet.read_table(file)  # type: ignore[no-untyped-call]
        except (pyarrow.lib.ArrowException, OSError) as problem:
            raise FairsiloError(f"{file} is no intact parquet file ({problem})") from None
        tables.append((SPLITS.get(file.name.partition("-")[0].partition(".")[0].lower(), UNDECIDED), table, str(file)))
    return _dataset(folder.name, tables, stack)


def parquet_files(folder: Path) -> list[Path]:
    """The parquet files of a folder, or of its folder `data`."""
    return sorted(folder.glob("*.parquet")) or sorted((folder / "data").glob("*.parquet"))


def read_hub(name: str, stack: Stack) -> Dataset:
    """A data set of the Hub, downloaded by `datasets` since somebody asked for it."""
    needs_package("datasets", "hub", f"reading {name} from the Hugging Face Hub")
    from datasets import Image, load_dataset
    from datasets.table import embed_table_storage

    tables: list[tuple[int, Any, str]] = []
    try:
        for split, part in load_dataset(name).items():
            if "image" in part.column_names:
                part = part.cast_column("image", Image(decode=False))
            # a repository of image files has tables of their paths: take the files in
            table = embed_table_storage(part.data.table)
            tables.append((SPLITS.get(str(split), UNDECIDED), table, f"{name} ({split})"))
    except Exception as problem:  # the Hub may not be reached, or have no such data set
        raise FairsiloError(f"{name} cannot be had from the Hugging Face Hub: {problem}") from problem
    return _dataset(name, tables, stack)


def _dataset(name: str, tables: Iterable[tuple[int, Any, str]], stack: Stack) -> Dataset:
    rows: dict[str, list[tuple[int, Row, str]]] = {}
    classes: tuple[str, ...] = ()
    splits = set()
    for split, table, source in sorted(tables, key=lambda one: one[0]):  # the same order from files as from the Hub
        for column in COLUMNS:
            if column not in table.column_names:
                raise FairsiloError(f"{source} has no column {column!r}; it needs {', '.join(COLUMNS)}")
        features = _features(table.schema.metadata)
        classes = classes or tuple(features.get("label", ()))
        names = features.get("domain", ())
        splits.add(split)
        for number, row in enumerate(table.select(list(COLUMNS)).to_pylist()):
            domain = names[row["domain"]] if names and isinstance(row["domain"], int) else str(row["domain"])
            rows.setdefault(domain, []).append((split, row, f"row {number} of {source}"))
    if not rows:
        raise FairsiloError(f"{name} has no rows")
    if not classes:
        every = {str(row["label"]) for members in rows.values() for _, row, _ in members}
        classes = tuple(natural(every))
    made = {}
    for domain in sorted(rows):
        samples = [_sample(row, where, classes) for _, row, where in rows[domain]]
        marks = [UNDECIDED if len(splits) == 1 else split for split, _, _ in rows[domain]]
        made[domain] = labelled(domain, samples, stack, marks)
    return Dataset(name, classes, made)


def _features(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """Column -> names of its classes, as `datasets` writes them into a table."""
    if not metadata or b"huggingface" not in metadata:
        return {}
    features = json.loads(metadata[b"huggingface"]).get("info", {}).get("features", {})
    return {key: one["names"] for key, one in features.items() if isinstance(one, dict) and "names" in one}


def _sample(row: Row, where: str, classes: tuple[str, ...]) -> Sample:
    image, label = row["image"], row["label"]
    content = image.get("bytes") if isinstance(image, dict) else image
    if not isinstance(content, bytes):
        raise FairsiloError(f"{where} has no image in it; columns of the Hub's images hold their bytes")
    if isinstance(label, int) and not isinstance(label, bool) and str(label) not in classes:
        if not 0 <= label < len(classes):
            raise FairsiloError(f"{where} has label {label}, and there are {len(classes)} classes, numbered from 0")
        return content, where, label
    if str(label) not in classes:
        raise FairsiloError(f"{where} has label {label!r}, which is none of {', '.join(classes)}")
    return content, where, classes.index(str(label))
