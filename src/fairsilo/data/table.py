"""Rows of numbers from a CSV file: a column to predict, columns to predict it from, a domain for each row.

`target` is a number (regression) or `label` a class (classification); `domain`, and where known `silo`, `split` and
`group`, are as in an index of images. Of the other columns those of numbers are what networks see, in the file's order,
and those of texts attributes; a column `attribute_NAME` is an attribute whatever it holds.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.data.folder import SPLIT_WORDS, parsed_csv
from fairsilo.data.reading import all_classes, check_domains
from fairsilo.errors import FairsiloError

ANSWERS = ("target", "label")
KNOWN = (*ANSWERS, "domain", "silo", "split", "group")
ATTRIBUTE = "attribute_"

Row = dict[str, str]


def is_table(path: Path) -> bool:
    """Whether a CSV file has rows of numbers rather than names of images: an answer, no path, a column of numbers."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        columns, rows = parsed_csv(path, path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, FairsiloError):
        return False  # the reader of indexes says what is wrong
    if "path" in columns or not rows or not any(name in columns for name in ANSWERS):
        return False
    return "target" in columns or any(_number(str(rows[0][name])) is not None for name in _others(columns))


def read_table(path: Path, least: int = 2) -> Dataset:
    """The rows of a CSV file by domain, of which there must be `least`.

    Raises:
        FairsiloError: A column or a value is missing, or is no number where one must be; the row is named.
    """
    path = Path(path)
    columns, found = parsed_csv(path, path.read_text(encoding="utf-8-sig"))
    rows = [{name: str(value).strip() for name, value in row.items()} for row in found]
    answers = [name for name in ANSWERS if name in columns]
    if len(answers) > 1:
        raise FairsiloError(f"Table {path} has a column target and a column label; a row has one answer.")
    if "domain" not in columns:
        raise FairsiloError(f"Table {path} has no column 'domain'; it says where each row comes from.")
    texts = [name for name in _others(columns) if name.startswith(ATTRIBUTE) or _is_text(rows, name)]
    inputs = [name for name in _others(columns) if name not in texts]
    if not inputs:
        raise FairsiloError(f"Table {path} has no column of numbers besides {', '.join(answers)}.")
    for number, row in enumerate(rows, start=1):
        _check(path, number, row, inputs, answers[0])
    by_domain: dict[str, list[Row]] = {name: [] for name in sorted({row["domain"] for row in rows})}
    for row in rows:
        by_domain[row["domain"]].append(row)
    check_domains(by_domain, f"Table {path}", least)
    labels = (
        {domain: {row["label"] for row in some} for domain, some in by_domain.items()} if "label" in columns else {}
    )
    classes = all_classes(labels) if labels else []
    groups = {name: place for place, name in enumerate(sorted({row.get("group", "") for row in rows}))}
    domains = {name: _domain(name, some, inputs, texts, classes, groups) for name, some in by_domain.items()}
    task = "classify" if labels else "regress"
    about = f"{len(rows)} rows of {', '.join(inputs)}"
    return Dataset(path.stem, tuple(classes), domains, about, task, source={"index": str(path)})


def _domain(
    name: str, rows: list[Row], inputs: list[str], texts: list[str], classes: list[str], groups: dict[str, int]
) -> Domain:
    first = rows[0]
    labels = [classes.index(row["label"]) for row in rows] if classes else []
    return Domain(
        name=name,
        inputs=torch.tensor([[float(row[column]) for column in inputs] for row in rows]),
        targets=torch.tensor(labels) if classes else torch.tensor([float(row["target"]) for row in rows]),
        split=torch.tensor(
            [SPLIT_WORDS.get(row.get("split", "").lower(), UNDECIDED) for row in rows], dtype=torch.int8
        ),
        group=torch.tensor([groups[row["group"]] for row in rows]) if "group" in first else None,
        silo=tuple(row["silo"] for row in rows) if "silo" in first else None,
        attributes={column.removeprefix(ATTRIBUTE): tuple(row[column] for row in rows) for column in texts},
    )


def _check(path: Path, number: int, row: Row, inputs: list[str], answer: str) -> None:
    for name in (answer, "domain", "silo", "group"):
        if name in row and not row[name]:
            raise FairsiloError(f"Row {number} of table {path} has no {name}; every row needs one.")
    for name in (*inputs, *(["target"] if answer == "target" else [])):
        if _number(row[name]) is None:
            raise FairsiloError(
                f"Row {number} of table {path} has {name} {row[name]!r}, but it must be a finite number."
            )
    if row.get("split", "").lower() not in SPLIT_WORDS:
        raise FairsiloError(
            f"Row {number} of table {path} has split {row['split']!r}, but it must be train, validation, val or test."
        )


def _others(columns: list[str]) -> list[str]:
    return [name for name in columns if name and name not in KNOWN]


def _is_text(rows: list[Row], name: str) -> bool:
    """Whether none of the values is a number: one that is not among numbers is a fault."""
    return all(_number(row[name]) is None for row in rows)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
