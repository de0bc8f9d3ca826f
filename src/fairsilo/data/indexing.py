"""An index from what hospitals have: a folder of DICOM files as a PACS exports it, or a query to a database.

An index is the CSV file that `data/folder.py` reads, a table of numbers the one of `data/table.py`. Both name the group
of a sample, so that a patient is never in two splits.
"""

from __future__ import annotations

import contextlib
import csv
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairsilo.core.disk import replacing
from fairsilo.data.dicom import COLUMNS, header_of, is_dicom, patient_in
from fairsilo.data.folder import parsed_csv, visible
from fairsilo.errors import FairsiloError, nearest
from fairsilo.plugins import called, imported, is_reference

# what a table of labels may name images by, the most exact first
KEYS = ("SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "AccessionNumber", "PatientID")


@dataclass
class Indexed:
    """What went into an index.

    Attributes:
        rows: How many.
        groups: How many patients, or whatever else samples belong to.
        labels: Label -> rows.
        left_out: Why files were left out -> how many.
    """

    rows: int = 0
    groups: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)


# ---------------------------------------------------------------------------------------------------------------- DICOM
def index_dicom(folder: Path, out: Path, domain: str, *, labels: Path | None = None, tag: str | None = None) -> Indexed:
    """Write an index of the single images below a folder: path, label, domain, patient, and sex and scanner as given.

    Args:
        folder: The export, with folders inside as they come.
        out: The index.
        domain: What the images' domain is called.
        labels: A CSV file with the column `label` and one of `KEYS`, by which an image finds its label.
        tag: Instead, the keyword of the element that is the label, such as `ImageLaterality`.

    Raises:
        FairsiloError: The labels cannot be read, or no image is left.
    """
    if (labels is None) == (tag is None):
        raise FairsiloError("labels come from a table (--labels) or from an element (--tag); give one of them")
    if not folder.is_dir():
        raise FairsiloError(f"{folder} is no folder")
    key, known = _labels(labels) if labels else (str(tag), None)
    found, rows = Indexed(), list[dict[str, str]]()
    for file in _files(folder):
        if not is_dicom(file):
            found.left_out["no DICOM file"] += 1
            continue
        header = header_of(file)
        value = str(header.get(key, "") or "")
        label = value if known is None else known.get(value, "")
        if "Rows" not in header or int(header.get("NumberOfFrames", 1) or 1) > 1:
            found.left_out["no single image"] += 1
        elif not label:
            found.left_out["no label"] += 1
        else:
            more = {name: str(header.get(keyword, "") or "unknown") for name, keyword in COLUMNS.items()}
            place = str(file.resolve())
            rows.append({"path": place, "label": label, "domain": domain, "group": patient_in(header) or place} | more)
    if not rows:
        why = ", ".join(f"{count} with {reason}" for reason, count in found.left_out.items()) or "no file at all"
        raise FairsiloError(f"{folder} has no image for an index: {why}")
    _write(out, list(rows[0]), (row.values() for row in rows))
    return _counted(found, rows)


def _files(folder: Path) -> Iterable[Path]:
    """All files below a folder, in the order of their names."""
    for entry in visible(folder):
        if entry.is_dir():
            yield from _files(entry)
        else:
            yield entry


def _labels(path: Path) -> tuple[str, dict[str, str]]:
    """By what images find their label, and which."""
    if not path.is_file():
        raise FairsiloError(f"{path} does not exist; give a CSV file with the column label")
    columns, rows = parsed_csv(path, path.read_text(encoding="utf-8-sig"))
    key = next((name for name in KEYS if name in columns), None)
    if key is None or "label" not in columns:
        raise FairsiloError(f"{path} needs the column label, and one of {', '.join(KEYS)}")
    found: dict[str, str] = {}
    for row in rows:
        name, label = (str(row[column]).strip() for column in (key, "label"))
        if found.setdefault(name, label) != label:
            raise FairsiloError(f"{path} has two labels for one {key}")
    return key, found


# ------------------------------------------------------------------------------------------------------------------ SQL
def index_query(database: str, query: str, out: Path, domain: str | None = None) -> Indexed:
    """Write what a query gives as an index of images or a table of numbers; its columns are named as theirs are.

    Args:
        database: A SQLite file, or `package:function` that returns an open connection (DB-API 2.0) to any other.
        query: A SELECT statement.
        out: The index or table.
        domain: What the samples' domain is called; by default the query has a column of that name.

    Raises:
        FairsiloError: The database cannot be opened, refuses the query, or gives no rows.
    """
    with contextlib.closing(_connection(database)) as connection:
        cursor = connection.cursor()
        try:
            cursor.execute(query)
            columns = [str(one[0]) for one in cursor.description or ()]
            rows = cursor.fetchall()
        except Exception as problem:  # every driver has errors of its own
            raise FairsiloError(f"{database} refuses the query: {problem}") from problem
    if not rows:
        raise FairsiloError(f"the query to {database} gives no rows")
    if domain is not None:
        if "domain" in columns:
            raise FairsiloError("the query has a column domain already; leave --domain out")
        columns, rows = [*columns, "domain"], [(*row, domain) for row in rows]
    for name in ("domain", *(["label"] if "target" not in columns else [])):
        if name not in columns:
            raise FairsiloError(f"the query has no column {name}{nearest(name, columns)}")
    for place, name in enumerate(columns):
        if any(isinstance(row[place], bytes | memoryview) for row in rows):
            raise FairsiloError(f"the query's column {name} holds bytes; give the paths of image files instead")
    _write(out, columns, (["" if value is None else value for value in row] for row in rows))
    return _counted(Indexed(), [dict(zip(columns, map(str, row), strict=True)) for row in rows])


def _connection(database: str) -> Any:
    path = Path(database)
    if path.is_file():
        return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    if not is_reference(database):
        raise FairsiloError(f"{database} is no SQLite file, and no package:function that returns a connection")
    return called(imported(database, "connection"), (), f"connection {database!r}", "no argument")


# -------------------------------------------------------------------------------------------------------------- writing
def _write(out: Path, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _counted(found: Indexed, rows: Sequence[Mapping[str, str]]) -> Indexed:
    found.rows = len(rows)
    found.groups = len({row["group"] for row in rows}) if "group" in rows[0] else 0
    found.labels = Counter(row["label"] for row in rows) if "label" in rows[0] else Counter()
    return found
