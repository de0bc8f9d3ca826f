"""An index from a DICOM export or a query: what goes in, what is left out, and that a patient is in one split."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fairsilo.cli import app
from fairsilo.data import load
from fairsilo.data.federation import federate
from fairsilo.data.indexing import index_dicom, index_query
from fairsilo.errors import FairsiloError
from tiny_dicom import write_dicom


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def export(folder: Path, patients: int, images: int) -> None:
    """As a PACS writes it: a folder for each study, files without an ending; each pixel is the patient's number."""
    for number in range(patients):
        for image in range(images):
            write_dicom(
                folder / f"STUDY{number:03d}" / f"1.2.840.{number}.{image}",
                np.full((4, 4), number),
                bits=8,
                PatientID=f"P{number}",
                AccessionNumber=f"A{number}",
                PatientSex="FM"[number % 2],
                ImageLaterality="LR"[image % 2],
            )


def test_images_find_their_label_by_a_table(tmp_path: Path) -> None:
    export(tmp_path / "export", 3, 2)
    write_dicom(tmp_path / "export" / "film", np.zeros((4, 4)), NumberOfFrames=2, AccessionNumber="A0")
    (tmp_path / "export" / "README").write_text("of the export")
    (tmp_path / "labels.csv").write_text("label,AccessionNumber\nill,A0\nwell,A1\n")
    found = index_dicom(tmp_path / "export", tmp_path / "index.csv", "north", labels=tmp_path / "labels.csv")
    assert (found.rows, found.groups, dict(found.labels)) == (4, 2, {"ill": 2, "well": 2})
    assert found.left_out == {"no label": 2, "no single image": 1, "no DICOM file": 1}
    first = rows(tmp_path / "index.csv")[0]
    assert (first["label"], first["domain"], first["group"], first["sex"]) == ("ill", "north", "P0", "F")
    assert Path(first["path"]).is_file()


def test_an_element_may_be_the_label(tmp_path: Path) -> None:
    export(tmp_path / "export", 2, 2)
    found = index_dicom(tmp_path / "export", tmp_path / "index.csv", "north", tag="ImageLaterality")
    assert dict(found.labels) == {"L": 2, "R": 2}


@pytest.mark.parametrize("identified", [True, False])
def test_a_patient_is_never_in_two_splits(identified: bool, tmp_path: Path) -> None:
    """Where names were taken out, the study stands for the patient."""
    for number in range(20):
        who = {"PatientID": f"P{number}"} if identified else {"StudyInstanceUID": f"1.2.{number}"}
        for image in range(3):
            write_dicom(
                tmp_path / "export" / f"{number}-{image}.dcm",
                np.full((4, 4), number),
                bits=8,
                ImageLaterality="LR"[number % 2],
                **who,
            )
    index_dicom(tmp_path / "export", tmp_path / "index.csv", "north", tag="ImageLaterality")
    (silo,) = federate(load(index=str(tmp_path / "index.csv"), least=1), held_out="-").silos
    seen = [
        set(split.take(range(len(split)))[0][:, 0, 0, 0].tolist()) for split in (silo.train, silo.validation, silo.test)
    ]
    assert all(seen)
    assert sum(map(len, seen)) == len(set().union(*seen)) == 20


@pytest.mark.parametrize(
    ("table", "tag", "why"),
    [
        (None, None, "give one of them"),
        ("AccessionNumber,label\nA0,ill\n", "ImageLaterality", "give one of them"),
        ("Accession,label\nA0,ill\n", None, "needs the column label, and one of SOPInstanceUID"),
        ("AccessionNumber,label\nA0,ill\nA0,well\n", None, "two labels for one AccessionNumber"),
        ("AccessionNumber,label\nA9,ill\n", None, "has no image for an index: 2 with no label"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(table: str | None, tag: str | None, why: str, tmp_path: Path) -> None:
    export(tmp_path / "export", 1, 2)
    if table is not None:
        (tmp_path / "labels.csv").write_text(table)
    labels = tmp_path / "labels.csv" if table is not None else None
    with pytest.raises(FairsiloError, match=why):
        index_dicom(tmp_path / "export", tmp_path / "index.csv", "north", labels=labels, tag=tag)
    assert not (tmp_path / "index.csv").exists()


# ------------------------------------------------------------------------------------------------------------------ SQL
def database(path: Path) -> Path:
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE visits (patient TEXT, ill INTEGER, pressure REAL, scan BLOB)")
        made.executemany("INSERT INTO visits VALUES (?, ?, ?, x'00')", [(f"P{n}", n % 2, 120.5 + n) for n in range(4)])
    made.close()
    return path


QUERY = """SELECT CASE ill WHEN 1 THEN 'ill' ELSE 'well' END AS label, pressure, patient AS "group" FROM visits"""


def test_a_query_becomes_a_table(tmp_path: Path) -> None:
    found = index_query(str(database(tmp_path / "hospital.db")), QUERY, tmp_path / "table.csv", "north")
    assert (found.rows, found.groups, dict(found.labels)) == (4, 4, {"ill": 2, "well": 2})
    read = load(index=str(tmp_path / "table.csv"), least=1)
    assert read.domains["north"].samples.inputs[:, 0].tolist() == [120.5, 121.5, 122.5, 123.5]
    assert read.domains["north"].group is not None


def connect() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE visits (patient TEXT, ill INTEGER, pressure REAL)")
    made.execute("INSERT INTO visits VALUES ('P0', 1, 120)")
    return made


def test_a_function_may_open_another_database(tmp_path: Path) -> None:
    assert index_query("test_indexing:connect", QUERY, tmp_path / "table.csv", "north").rows == 1


@pytest.mark.parametrize(
    ("where", "query", "domain", "why"),
    [
        ("nowhere.db", QUERY, "north", "is no SQLite file, and no package:function"),
        ("hospital.db", "SELECT absent FROM visits", "north", "refuses the query: no such column: absent"),
        ("hospital.db", "DELETE FROM visits", "north", "refuses the query: attempt to write a readonly database"),
        ("hospital.db", QUERY + " WHERE 0", "north", "gives no rows"),
        ("hospital.db", QUERY, None, "the query has no column domain"),
        ("hospital.db", "SELECT ill, pressure FROM visits", "north", "the query has no column label"),
        ("hospital.db", "SELECT ill AS label, scan FROM visits", "north", "column scan holds bytes"),
        ("hospital.db", "SELECT ill AS label, 'x' AS domain FROM visits", "north", "has a column domain already"),
    ],
)
def test_a_wrong_query_is_told_in_a_sentence(
    where: str, query: str, domain: str | None, why: str, tmp_path: Path
) -> None:
    database(tmp_path / "hospital.db")
    with pytest.raises(FairsiloError, match=why):
        index_query(str(tmp_path / where), query, tmp_path / "table.csv", domain)
    assert not (tmp_path / "table.csv").exists()
    assert not (tmp_path / "nowhere.db").exists()


def test_the_commands_say_what_went_in_and_what_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    export(tmp_path / "export", 3, 2)
    (tmp_path / "export" / "README").write_text("of the export")
    (tmp_path / "labels.csv").write_text("label,PatientID\nill,P0\nwell,P1\n")
    database(tmp_path / "hospital.db")
    (tmp_path / "visits.sql").write_text(QUERY)
    said = CliRunner().invoke(app, "index dicom export --labels labels.csv").output
    assert "index.csv: 4 samples of 2 groups; ill 2, well 2" in said
    assert "left out: 2 with no label" in said
    assert "left out: 1, no DICOM file" in said
    assert rows(tmp_path / "index.csv")[0]["domain"] == "export"
    said = CliRunner().invoke(app, "index sql hospital.db --query visits.sql --domain north --out t.csv").output
    assert "t.csv: 4 samples of 4 groups; ill 2, well 2" in said
