"""What a site does with what it is asked, and what it never says."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from fairsilo.deploy import wire
from fairsilo.deploy.brief import Brief, refuse_unnamed
from fairsilo.deploy.reading import classes_at
from fairsilo.deploy.remote import Asked
from fairsilo.deploy.serving import TooFewError
from fairsilo.deploy.settings import SiloSettings, read_site
from fairsilo.deploy.site import FAILED, Site
from fairsilo.engine.events import Event
from fairsilo.errors import FairsiloError, QuorumError
from tiny_sites import TRAIN, TRAINING, UNSEEN, Local, begun, images, served, settings, sites_in, write_site

MARKER = "patient-4711"
BRIEF = Brief("0.1.0", tuple("0123456789"), 16, "squeeze", "auto", 0.15, 0.2, 0)


def asked(site: Site, step: str, **content: Any) -> dict[str, Any]:
    return wire.note_in(site.answer(step, wire.noted(content)))


def site_with(place: Path, /, **changes: Any) -> Site:
    return Site(read_site(write_site(place, "scan", **changes), "scan"))


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


# -------------------------------------------------------------------------------------------------------------- joining
def test_a_silo_says_its_name_domain_counts_and_shape(tmp_path: Path) -> None:
    found = asked(site_with(tmp_path), "join", **BRIEF.as_dict())
    (silo,) = found["silos"]
    assert found["version"] == BRIEF.version
    assert silo.keys() == {
        "name", "domain", "train", "validation", "test", "tested", "trained", "evaluates", "task", "shape", "dtype",
        "target", "target_dtype", "groups",
    }  # fmt: skip
    assert (silo["name"], silo["domain"], silo["evaluates"], silo["task"]) == ("scan", "scan", False, "classify")
    assert sum(silo["trained"]) == silo["train"]
    assert (silo["shape"], silo["dtype"]) == ([3, 16, 16], "uint8")


def test_another_version_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = asked(site_with(tmp_path), "join", **{**BRIEF.as_dict(), "version": "9.9"})
    assert found == {FAILED: "version"}
    assert "the server has fairsilo 9.9, and this site 0.1.0" in caplog.text


def test_labels_are_mapped_by_name(tmp_path: Path) -> None:
    """In another order, and without a sample of one class."""
    shutil.copytree(images() / "scan", tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "3")
    site = site_with(tmp_path, folder="data")
    order = tuple("9876543210")
    (silo,) = asked(site, "join", **{**BRIEF.as_dict(), "classes": order})["silos"]
    assert silo["trained"][order.index("3")] == 0
    assert all(silo["trained"][order.index(name)] > 0 for name in "012456789")


def test_an_unknown_label_is_refused_and_not_named_to_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(images() / "scan", tmp_path / "data")
    (tmp_path / "data" / "3").rename(tmp_path / "data" / MARKER)
    found = asked(site_with(tmp_path, folder="data"), "join", **BRIEF.as_dict())
    assert found == {FAILED: "data"}
    assert MARKER in caplog.text


def test_steps_out_of_order_are_refused(tmp_path: Path) -> None:
    site = site_with(tmp_path)
    assert asked(site, "begin", run="abc", plan="{}") == {FAILED: "form"}
    assert asked(site, "commit", ends=[]) == {FAILED: "form"}
    assert asked(site, "restore", round=1) == {FAILED: "form"}
    assert asked(site, "ask") == {FAILED: "form"}
    assert asked(site, "delete") == {FAILED: "form"}
    asked(site, "join", **BRIEF.as_dict())
    assert asked(site, "begin", run="../../etc", plan="{}") == {FAILED: "form"}
    assert asked(site, "begin", run="abc", plan="{}") == {FAILED: "form"}
    assert wire.note_in(site.answer("join", 3)) == {FAILED: "form"}
    assert asked(site, "join") == {FAILED: "form"}


# ---------------------------------------------------------------------------------------------------------------- trust
@pytest.mark.parametrize("named", [{"model": "test_site:net"}, {"method": "test_site:Part"}])
def test_code_is_imported_only_from_packages_that_the_site_trusts(
    named: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = site_with(tmp_path)
    asked(site, "join", **BRIEF.as_dict())
    plan = {"method": "fedavg", "model": "small-cnn", "task": ["classify", 10, "accuracy", {}], **named}
    assert asked(site, "begin", run="abc", plan=json.dumps(plan)) == {FAILED: "code"}
    assert "to allow it, add the package to trust in site.yaml" in caplog.text


# ------------------------------------------------------------------------------------------------------- nothing leaks
def test_nothing_of_an_exception_or_a_path_reaches_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The silo's folder, its files and what its training raises all bear a mark, which the server's side must not."""
    shutil.copytree(images() / "scan", tmp_path / "sites" / MARKER)
    for number, path in enumerate(sorted((tmp_path / "sites" / MARKER).rglob("*.png"))):
        path.rename(path.with_name(f"{MARKER}-{number}.png"))
    sites = sites_in(tmp_path / "sites")
    sites["scan"] = site_with(tmp_path / "sites" / "scan", folder=str(tmp_path / "sites" / MARKER))
    some = {"train": {**TRAIN, "quorum": 0.5}}
    run = begun(tmp_path / "server", "fedavg", **some)
    told: list[Event] = []
    channel = Checking(sites)
    served(run, channel, listener=told.append)
    assert MARKER in caplog.text  # the site's own log has it
    assert MARKER.encode() not in everything_in(run)
    assert not any(MARKER in event.text for event in told)
    failures = [one for row in rows(run) for one in row["failures"] if one["silo"] == "scan"]
    assert {one["detail"] for one in failures} == {"its step failed; the site's own log says more"}


def test_training_that_diverges_at_a_site_is_told_as_such(tmp_path: Path) -> None:
    run = begun(tmp_path / "server", "fedavg", **{"train": {**TRAIN, "lr": 1e30}})
    with pytest.raises(QuorumError, match=r"Training diverged at print, scan, sketch: .* \(train\.lr is 1e\+30 now\)"):
        served(run, Local(sites_in(tmp_path / "sites")))


class Checking(Local):
    """Breaks one site's data after it has joined, and looks at all that comes back."""

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        host = self.sites["scan"].host
        if step == "ask" and host is not None:
            host.data = Broken()  # type: ignore[assignment]
        for key, answer in super().call(step, asked, seconds):
            assert MARKER not in repr(answer)
            yield key, answer


class Broken:
    """Data that raise when they are looked at."""

    def __getitem__(self, name: str) -> None:
        raise ValueError(f"{MARKER} of {name} cannot be opened")


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def test_own_models_and_private_tensors_stay_at_the_site(tmp_path: Path) -> None:
    """The server's folder has no model of a silo; the site's has, and goes on from it."""
    run = begun(tmp_path / "server", "ditto")
    served(run, Local(sites_in(tmp_path / "sites")))
    assert sorted(path.name for path in (run / "models").iterdir()) == ["global.safetensors"]
    kept = sorted(path.name for path in (tmp_path / "sites" / "scan" / "state").rglob("own.safetensors"))
    assert kept == ["own.safetensors"] * 2  # best and last


# ----------------------------------------------------------------------------------------------------- kinds of sites
def test_two_silos_at_one_site(tmp_path: Path) -> None:
    sites = sites_in(tmp_path / "sites", ("print", UNSEEN))
    folder = tmp_path / "sites" / "both"
    folder.mkdir()
    two = [{"name": name, "domain": name, "folder": str(images() / name)} for name in ("scan", "sketch")]
    (folder / "site.yaml").write_text(yaml.safe_dump({"silos": two}))
    sites["both"] = Site(read_site(folder / "site.yaml", "both"))
    run = begun(tmp_path / "server", "scaffold")
    served(run, Local(sites), ("print", "both", UNSEEN))
    assert [row["counted"] for row in rows(run)] == [[*TRAINING]] * 2
    assert json.loads((run / "sites.json").read_text()) == {
        "print": "print",
        "scan": "both",
        "sketch": "both",
        "street": UNSEEN,
    }


def test_a_site_of_another_shape_is_named_before_the_first_round(tmp_path: Path) -> None:
    other = settings()["data"] | {"size": None}
    shutil.copytree(images() / "scan", tmp_path / "data")
    for path in (tmp_path / "data").rglob("*.png"):
        Image.open(path).resize((12, 12)).save(path)
    sites = sites_in(tmp_path / "sites")
    sites["scan"] = site_with(tmp_path / "sites" / "scan", folder=str(tmp_path / "data"))
    with pytest.raises(FairsiloError, match="silo 'scan' has samples of shape 3x12x12, and silo 'print' of 3x16x16"):
        served(begun(tmp_path / "server", "fedavg", data=other), Local(sites))


def test_two_silos_of_one_name_are_refused(tmp_path: Path) -> None:
    sites = sites_in(tmp_path / "sites")
    sites["print"] = Site(read_site(write_site(tmp_path / "sites" / "print", "print", name="scan"), "print"))
    with pytest.raises(FairsiloError, match="two silos are called 'scan'"):
        served(begun(tmp_path / "server", "fedavg"), Local(sites))


def test_a_silo_whose_data_changed_in_the_middle_is_left_out(tmp_path: Path) -> None:
    """It cannot end the run of the others."""
    run = begun(tmp_path / "server", "fedavg", train={**TRAIN, "quorum": 0.5})
    channel = Local(sites_in(tmp_path / "sites"))

    class CutError(BaseException):
        pass

    def cut(event: Event) -> None:
        if event.kind == "saved" and event.round == 1:
            raise CutError

    with pytest.raises(CutError):
        served(run, channel, listener=cut)
    channel.close()
    sites = sites_in(tmp_path / "sites")
    sites["scan"] = site_with(tmp_path / "sites" / "scan", share=20)
    told: list[Event] = []
    served(run, Local(sites), listener=told.append)
    assert [row["counted"] for row in rows(run)] == [[*TRAINING], ["print", "sketch"]]
    assert any("silo 'scan' takes no part: its domain or its samples" in event.text for event in told)


# ------------------------------------------------------------------------------------------------------------ site.yaml
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "a silo needs one of data, folder, packed, table, and none is given"),
        ({"folder": "x", "packed": "y"}, "and folder and packed is given"),
        ({"folder": "x", "rol": "train"}, "unknown setting 'rol'; did you mean 'role'"),
        ({"folder": "x", "role": "watch"}, "role is 'watch'; it must be one of train, evaluate"),
        ({"folder": "x", "threads": 0}, "threads is 0"),
        ({"silos": [{"folder": "x"}], "folder": "y"}, "both silos and folder"),
        ({"silos": "x"}, "silos is a list of settings"),
        ({"silos": [{"folder": "x"}, {"folder": "y"}]}, "two silos of one name"),
        ({"silos": [{"folder": "x", "colour": 1}]}, "unknown setting 'colour' of a silo"),
    ],
)
def test_a_wrong_file_is_told_in_a_sentence(content: dict[str, Any], why: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(FairsiloError, match=why):
        read_site(tmp_path / "site.yaml", "scan")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    found = read_site(write_site(tmp_path, "scan", folder="data", state="kept"), "scan")
    assert found.silos[0].folder == str(tmp_path / "data")
    assert found.machine.state == str(tmp_path / "kept")


def test_a_brief_survives_what_a_newer_version_adds() -> None:
    assert Brief.from_dict({**BRIEF.as_dict(), "more": 1}) == BRIEF
    assert dataclasses.asdict(BRIEF)["classes"] == tuple("0123456789")


def test_classes_must_be_named(tmp_path: Path) -> None:
    data = settings()["data"] | {"classes": None}
    with pytest.raises(FairsiloError, match="the settings do not name the classes; set data"):
        served(begun(tmp_path / "server", "fedavg", data=data), Local(sites_in(tmp_path / "sites")))


def test_a_run_that_nobody_can_take_part_in_fails_with_the_reasons(tmp_path: Path) -> None:
    """It would wait for ever, and what was submitted after it too."""
    run = begun(tmp_path / "server", "fedavg", data=settings()["data"] | {"classes": ["benign", "evil"]})
    why = r"no site that is there can take part \(print: it cannot read its data as the run wants them; scan: "
    with pytest.raises(FairsiloError, match=why):
        served(run, Local(sites_in(tmp_path / "sites")))


def test_where_nobody_is_there_a_run_waits(tmp_path: Path) -> None:
    run = begun(tmp_path / "server", "fedavg")
    with pytest.raises(TooFewError, match="no site is there that trains"):
        served(run, Local({}), ())


@pytest.mark.parametrize(
    ("content", "changes", "named"),
    [
        ({}, [], False),
        ({"method": "fedavg", "data": {"size": 64}}, [], False),
        ({"data": {"classes": ["a", "b"]}}, [], True),
        ({"data": {"name": "pacs"}}, [], True),
        ({"data.classes": "a,b"}, [], True),
        ({}, ["data.classes=a,b"], True),
        ({}, ["rounds=3"], False),
    ],
)
def test_a_file_names_its_classes_or_its_data_set(content: dict[str, Any], changes: list[str], named: bool) -> None:
    """The default data are a simulation's: sites would be asked for digits."""
    if named:
        refuse_unnamed(content, changes)
        return
    with pytest.raises(FairsiloError, match="the settings do not name the classes; set data"):
        refuse_unnamed(content, changes)


def test_classes_that_a_sites_own_data_have(tmp_path: Path) -> None:
    assert classes_at(SiloSettings(folder=str(images() / "scan"))) == tuple("0123456789")
    assert classes_at(SiloSettings(data="glyphs")) == tuple("0123456789")
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    with pytest.raises(FairsiloError, match="which classes silo 'eyes' has, its data do not say"):
        classes_at(SiloSettings(name="eyes", folder=str(tmp_path)))
