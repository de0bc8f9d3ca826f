"""A file that `fairsilo run` takes, `federation submit` takes too: a baseline beside the method, results by group."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fairsilo import __version__
from fairsilo.deploy import wire
from fairsilo.deploy.brief import Brief
from fairsilo.deploy.grouping import FILE, Told
from fairsilo.deploy.settings import read_site
from fairsilo.deploy.site import Site
from fairsilo.engine.events import Event
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import finished
from tiny_sites import (
    SIZE,
    TRAIN,
    TRAINING,
    UNSEEN,
    Local,
    begun,
    counted,
    images,
    served,
    settings,
    simulated,
    sites_in,
    write_site,
)

EVERYBODY = (*TRAINING, UNSEEN)


# ----------------------------------------------------------------------------------------------------------- a baseline
@pytest.mark.slow
def test_a_baseline_is_trained_after_the_method_as_in_a_simulation(tmp_path: Path) -> None:
    simulated(tmp_path / "here", "ditto", baseline="scaffold")
    run = begun(tmp_path / "there", "ditto", baseline="scaffold")
    served(run, Local(sites_in(tmp_path / "sites")))
    for inside in ("", "baseline"):
        ours, theirs = ((tmp_path / one / inside / "metrics.jsonl").read_text() for one in ("here", "there"))
        assert ours == theirs
    assert finished(run)


class CutError(BaseException):
    """The server's process ends, as by a kill."""


@pytest.mark.slow
def test_a_run_cut_off_in_its_baseline_goes_on_there(tmp_path: Path) -> None:
    """What is finished is not done again."""
    run = begun(tmp_path / "there", "fedavg", baseline="scaffold")
    methods: list[str] = []

    def told(event: Event) -> None:
        methods.extend([event.text] if event.kind == "method" else [])
        if methods == ["fedavg", "scaffold"] and (event.kind, event.round) == ("trained", 2):
            raise CutError

    channel = Local(sites_in(tmp_path / "sites"))
    with pytest.raises(CutError):
        served(run, channel, listener=told)
    channel.close()
    assert not finished(run)
    served(run, Local(sites_in(tmp_path / "sites")), listener=told)
    assert methods == ["fedavg", "scaffold", "scaffold"]
    assert finished(run)
    assert counted(run) == counted(run / "baseline") == [[*TRAINING]] * 2
    simulated(tmp_path / "here", "scaffold")
    assert (run / "baseline" / "metrics.jsonl").read_text() == (tmp_path / "here" / "metrics.jsonl").read_text()


# ------------------------------------------------------------------------------------------------- synthetic images
@pytest.mark.slow
def test_synthetic_images_are_made_at_the_server(tmp_path: Path) -> None:
    """By the silos' domains and sizes alone, so that FedAG runs over sites as in a simulation."""
    data = {**settings()["data"], "size": 32, "synthetic": "glyphs"}
    changes: dict[str, Any] = {"model": "small-cnn", "data": data, "train": {**TRAIN, "rounds": 1}}
    how = "fedag(server_epochs=1)"
    simulated(tmp_path / "here", how, **changes)
    run = begun(tmp_path / "there", how, **changes)
    served(run, Local(sites_in(tmp_path / "sites")))
    assert (run / "metrics.jsonl").read_text() == (tmp_path / "here" / "metrics.jsonl").read_text()


# ------------------------------------------------------------------------------------------------------------- groups
GROUPS: dict[str, Any] = {"evaluate": {"groups": "sex"}}


def write_index(path: Path, domains: tuple[str, ...]) -> Path:
    """Images of some domains with the sex of somebody; a few of each domain are of nobody known."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "domain", "sex", "name"])
        for domain in domains:
            for number, image in enumerate(sorted((images() / domain).rglob("*.png"))):
                sex = ("female", "male", "female", "")[number % 4] if number % 40 else "rare"
                table.writerow([image, image.parent.name, domain, sex, f"person {number % 3}"])
    return path


def site_with(folder: Path, site: str, groups: list[str] | None = None) -> Site:
    index = write_index(folder / site / "index.csv", (site,))
    path = write_site(folder / site, site, folder=None, table=str(index), groups=groups)
    return Site(read_site(path, site))


def by_group(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines()]


def data_of(tmp_path: Path) -> dict[str, Any]:
    index = write_index(tmp_path / "all.csv", EVERYBODY)
    return {"data": {"folder": str(index), "held_out": UNSEEN, "size": SIZE, "classes": list("0123456789")}}


def test_results_by_group_are_those_of_a_simulation(tmp_path: Path) -> None:
    changes = {**data_of(tmp_path), **GROUPS}
    wanted = simulated(tmp_path / "here", "ditto", **changes)
    run = begun(tmp_path / "there", "ditto", **changes)
    found = served(run, Local({site: site_with(tmp_path / "sites", site, ["sex"]) for site in EVERYBODY}))
    assert found["groups"] == wanted["groups"]
    assert by_group(run) == by_group(tmp_path / "here")
    assert set(by_group(run)[0]["groups"]) == {"female", "male", "unknown"}
    kept = json.loads((run / FILE).read_text())
    assert "rare" not in json.dumps(kept)  # too few test samples anywhere, whatever a site allows


def test_a_site_tells_of_columns_that_its_file_allows_alone(tmp_path: Path) -> None:
    """One that does not is measured as a whole and named; what it does not tell of is not even read."""
    sites = {site: site_with(tmp_path / "sites", site, ["sex"] if site == "print" else None) for site in EVERYBODY}
    run = begun(tmp_path / "there", "fedavg", **data_of(tmp_path), **GROUPS)
    served(run, Local(sites))
    assert "silos 'scan', 'sketch', 'street' tell of no column 'sex'" in (run / "run.json").read_text()
    assert all(row["groups"]["female"]["silos"] == 1 for row in by_group(run))
    assert {site: set(one.data[site].test.attributes) for site, one in sites.items()} == {
        "print": {"sex"},
        "scan": set(),
        "sketch": set(),
        "street": set(),
    }


def test_a_server_that_asks_for_another_column_is_told_nothing(tmp_path: Path) -> None:
    site = site_with(tmp_path / "sites", "print", ["sex"])
    brief = Brief(__version__, tuple("0123456789"), SIZE, "pad", "auto", 0.1, 0.2, 0, ("name", "sex"))
    said = wire.note_in(site.answer("join", wire.noted(brief.as_dict())))
    assert set(said["silos"][0]["groups"]) == {"sex"}
    assert "person" not in json.dumps(said)


def test_a_column_of_which_nobody_tells_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    run = begun(tmp_path / "there", "fedavg", **data_of(tmp_path), **GROUPS)
    sites = {site: site_with(tmp_path / "sites", site) for site in EVERYBODY}
    with pytest.raises(FairsiloError, match=r"of which no site tells.*site.yaml says groups: \[sex\]"):
        served(run, Local(sites))


@pytest.mark.parametrize(
    "told",
    [
        {"values": {"sex": tuple(map(str, range(51)))}},
        {"target": (10**5, 10**5)},
        {"dtype": "load"},
    ],
)
def test_what_a_site_tells_of_groups_is_bounded(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whoever reads a site's answer knows this kind alone
        Told(**told)
