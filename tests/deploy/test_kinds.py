"""Kinds of sites: data from a DICOM export or a database, a GPU or none."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import tiny
from fairsilo.core.answers import EXCHANGE
from fairsilo.core.messages import MODEL, Message, Request
from fairsilo.core.silo import Memory, Silo
from fairsilo.data.federation import Federation
from fairsilo.data.indexing import index_dicom, index_query
from fairsilo.deploy import wire
from fairsilo.deploy.brief import Brief
from fairsilo.deploy.settings import MachineSettings, read_site
from fairsilo.deploy.site import FAILED, Site
from fairsilo.engine.host import Host
from fairsilo.errors import FairsiloError
from tiny_dicom import write_dicom
from tiny_sites import TRAINING, Local, begun, counted, images, served, sites_in, write_site


def site_with(folder: Path, /, **changes: Any) -> Site:
    """The site scan with other data than its folder of images."""
    return Site(read_site(write_site(folder, "scan", **{"folder": None, **changes}), "scan"))


@pytest.mark.slow
def test_a_site_whose_data_are_a_dicom_export(tmp_path: Path) -> None:
    """Every image twice, as of one patient: the two are on the same side of every split."""
    pictures = sorted((images() / "scan").rglob("*.png"))
    for number, path in enumerate(pictures):
        grey = np.asarray(Image.open(path).convert("L"))
        for again in range(2):
            place = tmp_path / "export" / f"study{number}" / f"1.2.{number}.{again}"
            write_dicom(place, grey, bits=8, PatientID=f"P{number}", StudyID=path.parent.name)
    place = tmp_path / "sites" / "scan"
    found = index_dicom(tmp_path / "export", place / "index.csv", "anything", tag="StudyID")
    assert (found.rows, found.groups) == (2 * len(pictures), len(pictures))
    sites = sites_in(tmp_path / "sites", ("print", "sketch"))
    sites["scan"] = site_with(place, table="index.csv")
    run = begun(tmp_path / "server", "fedavg")
    served(run, Local(sites), TRAINING)
    assert counted(run) == [[*TRAINING]] * 2
    (silo,) = (one for one in json.loads((run / "run.json").read_text())["roster"]["silos"] if one["name"] == "scan")
    assert (silo["domain"], silo["train"] + silo["validation"] + silo["test"]) == ("scan", 2 * len(pictures))
    assert all(silo[split] % 2 == 0 for split in ("train", "validation", "test"))


def test_a_site_whose_images_are_named_by_a_query(tmp_path: Path) -> None:
    """And which reads them as a site with a folder of them does."""
    with sqlite3.connect(tmp_path / "hospital.db") as database:
        database.execute("CREATE TABLE images (file TEXT, diagnosis TEXT)")
        found = [(str(path), path.parent.name) for path in sorted((images() / "scan").rglob("*.png"))]
        database.executemany("INSERT INTO images VALUES (?, ?)", found)
    database.close()
    place = tmp_path / "sites" / "scan"
    query = "SELECT file AS path, diagnosis AS label FROM images ORDER BY file"
    index_query(str(tmp_path / "hospital.db"), query, place / "index.csv", "scan")
    told = [
        wire.note_in(site.answer("join", wire.noted(BRIEF.as_dict())))
        for site in (site_with(place, table="index.csv"), site_with(tmp_path / "folder", folder=str(images() / "scan")))
    ]
    assert told[0] == told[1]
    assert FAILED not in told[0]


BRIEF = Brief("0.1.0", tuple("0123456789"), 16, "squeeze", "auto", 0.15, 0.2, 0)


def test_sites_whose_numbers_come_from_a_database(tmp_path: Path) -> None:
    """Rows of numbers, one domain a site; the run names the classes."""
    sites = {}
    for name in ("north", "south"):
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            database.execute("CREATE TABLE visits (patient TEXT, outcome TEXT, pressure REAL, sugar REAL)")
            rows = [(f"P{n // 2}", ("well", "ill")[n // 2 % 2], 120 + n, 5 + n / 10) for n in range(40)]
            database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)
        database.close()
        place = tmp_path / "sites" / name
        query = 'SELECT outcome AS label, pressure, sugar, patient AS "group" FROM visits'
        index_query(str(tmp_path / f"{name}.db"), query, place / "visits.csv", name)
        path = write_site(place, name, folder=None, table="visits.csv")
        sites[name] = Site(read_site(path, name))
    data = {"classes": ["ill", "well"], "folder": "visits"}
    run = begun(tmp_path / "server", "fedavg", model="auto", data=data)
    served(run, Local(sites), ("north", "south"))
    assert counted(run) == [["north", "south"]] * 2


# -------------------------------------------------------------------------------------------------------------- devices
def test_a_site_with_a_gpu_and_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert MachineSettings(device="auto").place == ("cuda" if there else "cpu")
        assert MachineSettings(device="cpu").place == "cpu"
    with pytest.raises(FairsiloError, match="says device: cuda, and PyTorch finds no GPU here"):
        _ = MachineSettings(device="cuda").place


def test_sites_choose_their_device_and_one_without_its_gpu_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left out by one word; its own log has the sentence, and the others go on."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    sites = sites_in(tmp_path / "sites", ("print",), device="cpu") | sites_in(
        tmp_path / "sites", ("sketch",), device="auto"
    )
    sites["scan"] = site_with(tmp_path / "sites" / "scan", folder=str(images() / "scan"), device="cuda")
    told: list[str] = []
    run = begun(tmp_path / "server", "fedavg")
    served(run, Local(sites), TRAINING, listener=lambda event: told.append(event.text))
    assert counted(run) == [["print", "sketch"]] * 2
    assert "site 'scan' takes no part: it does not find the GPU that it is set to use" in told
    assert "PyTorch finds no GPU here" in caplog.text
    host = sites["sketch"].host
    assert host is not None
    assert host.blueprint.device == "cpu"


def test_what_a_silo_is_sent_is_put_beside_its_model(monkeypatch: pytest.MonkeyPatch, people: Federation) -> None:
    """A message arrives in ordinary memory; the model of a site with a GPU is not there (`test_gpu_site.py`)."""
    host = Host(tiny.plan("fedavg"), people)
    host.model = SimpleNamespace(parameters=torch.empty(0, device="meta"))  # type: ignore[assignment]
    seen: list[Tensor] = []

    def train(silo: Silo) -> Message:
        seen.append(silo.message.tensors[MODEL])
        return Message()

    monkeypatch.setitem(EXCHANGE, "train", train)
    host.answer("a", Request("train", 1, Message({MODEL: torch.zeros(3)})), Memory())
    assert [(one.device.type, len(one)) for one in seen] == [("meta", 3)]
