"""`fairsilo federation` and `fairsilo site` with wrong input: one sentence, nothing half done."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

pytest.importorskip("nvflare", reason="needs the package nvflare: pip install 'fairsilo[flare]'")

from fairsilo import cli
from fairsilo.deploy.flare import attendance, kits
from fairsilo.deploy.flare.administration import refuse_taken
from fairsilo.errors import FairsiloError


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["fairsilo", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("federation status", "federation is no federation's folder"),
        ("federation start", "federation is no federation's folder"),
        ("federation stop", "federation is no federation's folder"),
        ("federation invite north", "federation is no federation's folder"),
        ("federation approve x.zip", "federation is no federation's folder"),
        ("federation remove north", "federation is no federation's folder"),
        ("federation renew", "federation is no federation's folder"),
        (
            "federation init a_b --host localhost",
            "the federation's name is 'a_b'; it must be letters, digits and hyphens",
        ),
        ("site start", "site has not joined a federation"),
        ("site unit", "site has not joined a federation"),
        ("site renew", "site has not joined a federation"),
        ("site join --signed x.zip --fingerprint SHA256:00", "site has made no request: `fairsilo site join NAME"),
        ("site join", "to ask for membership: fairsilo site join NAME --federation FEDERATION"),
        ("site join north", "to ask for membership"),
        ("site join --signed x.zip", "to become a member"),
        ("site join ../x --federation trial", "the site's name is '../x'"),
    ],
)
def test_one_sentence(
    words: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert why in refused(monkeypatch, capsys, *words.split())
    assert list(tmp_path.iterdir()) == []


def test_without_flare_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nvflare", None)
    assert "pip install 'fairsilo[flare]'" in refused(monkeypatch, capsys, "federation", "status")


def request_of(path: Path, kind: str = "client", name: str = "north") -> Path:
    with zipfile.ZipFile(path, "w") as content:
        content.writestr("request.json", json.dumps({"name": name}))
        content.writestr("site.yaml", yaml.safe_dump({"participants": [{"type": kind}]}))
    return path


def test_a_request_is_a_sites_and_small(tmp_path: Path) -> None:
    assert kits.requested_name(request_of(tmp_path / "good.zip")) == "north"
    with pytest.raises(FairsiloError, match="asks for the rights of a admin; sites are clients"):
        kits.requested_name(request_of(tmp_path / "admin.zip", "admin"))
    with pytest.raises(FairsiloError, match=r"the site's name is '\.\./\.\./etc'"):
        kits.requested_name(request_of(tmp_path / "path.zip", name="../../etc"))
    (tmp_path / "text.zip").write_text("no zip")
    with zipfile.ZipFile(tmp_path / "large.zip", "w", zipfile.ZIP_DEFLATED) as content:
        content.writestr("request.json", " " * 2_000_000)
    for name in ("text", "large", "absent"):
        with pytest.raises(FairsiloError, match="is no request of a site"):
            kits.requested_name(tmp_path / f"{name}.zip")


def test_a_template_and_a_unit_are_written(tmp_path: Path) -> None:
    path = attendance.write_template(tmp_path, "north")
    assert yaml.safe_load(path.read_text())["domain"] == "north"
    path.write_text("domain: mine\n")
    attendance.write_template(tmp_path, "north")
    assert path.read_text() == "domain: mine\n"  # a file that is there stays
    unit = attendance.unit(tmp_path, "nobody")
    assert f"site start --folder {tmp_path}" in unit
    assert "User=nobody" in unit


def test_a_port_that_somebody_listens_on_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        profile = kits.Profile("trial", "localhost", taken.getsockname()[1])
        with pytest.raises(FairsiloError, match=r"cannot be listened on \(Address already in use\)"):
            refuse_taken(profile)
    refuse_taken(profile)


def test_a_site_is_started_once(tmp_path: Path) -> None:
    started = attendance.alone
    with (
        started(tmp_path),
        pytest.raises(FairsiloError, match="runs already; stop that process first"),
        started(tmp_path),
    ):
        pass
    with started(tmp_path):
        pass


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Expected SHA256:00; actual SHA256:11 Code: ROOTCA_FINGERPRINT_MISMATCH", "not signed by the federation with"),
        ("--request-dir is missing local request material", "answers another request than the one that was made here"),
        ("something else", r"NVIDIA FLARE refused \(package x\): something else"),
        ("no name in '/home/me/trial/.work-a1b2/profile.yml'", r"\(package x\): no name in 'profile\.yml'$"),
    ],
)
def test_what_flare_refuses_is_said_in_our_words(
    said: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.CompletedProcess([], 1, stdout="", stderr=said)
    monkeypatch.setattr(kits.subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(FairsiloError, match=why) as problem:
        kits._nvflare(tmp_path, "package", "x")
    assert "actual" not in str(problem.value)


def test_a_submission_without_a_server_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "federation").mkdir()
    (tmp_path / "federation" / kits.PROFILE).write_text("name: trial\nhost: localhost\nport: 8102\n")
    (tmp_path / "first.yaml").write_text("method: fedavg\ndata: {classes: [a, b]}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fairsilo", "federation", "submit", "first.yaml"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    assert "the server does not run: `fairsilo federation start` starts it" in capsys.readouterr().out
    (tmp_path / "first.yaml").write_text("method: fedavg\n")
    assert "set data.classes" in refused(monkeypatch, capsys, "federation", "submit", "first.yaml")
