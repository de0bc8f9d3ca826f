"""Who may do what: strangers, impostors and jobs that are none of ours, against the real server."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from fairsilo.deploy.flare import attendance, kits
from fairsilo.deploy.flare.jobs import write_job
from fairsilo.deploy.flare.machines import Kept, Session, site_command
from fairsilo.errors import FairsiloError
from system import System

pytestmark = [pytest.mark.deploy, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def up(system: System) -> System:
    system.connected()
    return system


@pytest.fixture(scope="module")
def stranger(up: System, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site `scan` of a federation of somebody else's, which believes that our server is its own."""
    root = tmp_path_factory.mktemp("strangers")
    port = kits.Profile.read(up.folder).port
    fingerprint = kits.init(root / "federation", kits.Profile("trial", "localhost", port))
    request = kits.request(root / "scan", "trial", "scan")
    kits.install(root / "scan", kits.approve(root / "federation", request), fingerprint)
    return root


def address(up: System) -> tuple[str, int]:
    return "localhost", kits.Profile.read(up.folder).port


def answered(up: System, context: ssl.SSLContext) -> bytes:
    """What the server says over TLS to a request for its first page."""
    with (
        socket.create_connection(address(up), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        tls.settimeout(5)
        tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return tls.recv(100)


def context_of(authority: Path, own: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority / "startup" / "rootCA.pem"))
    if own is not None:
        context.load_cert_chain(own / "startup" / "client.crt", own / "startup" / "client.key")
    return context


def test_a_member_is_answered_and_a_stranger_is_not(up: System, stranger: Path) -> None:
    ours = up.kit("scan")
    assert attendance.reach(up.site("scan")) == "localhost"
    assert answered(up, context_of(ours, ours))  # the way is open, for a certificate of the federation
    for own in (stranger / "scan" / "kit", None):
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            assert answered(up, context_of(ours, own)) == b""
    with pytest.raises(FairsiloError, match="is not this federation's server: its certificate is not signed by"):
        attendance.reach(stranger / "scan")


def test_plaintext_is_not_answered(up: System) -> None:
    with socket.create_connection(address(up), 5) as plain:
        plain.settimeout(5)
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert plain.recv(100) == b""


def test_a_site_cannot_be_another_one(up: System, tmp_path: Path) -> None:
    """scan's certificate, with print's name, while print is away."""
    shutil.copytree(up.kit("scan"), tmp_path / "kit")
    command = [word.replace("uid=scan", "uid=print") for word in site_command(tmp_path)]
    described = tmp_path / "kit" / "startup" / "fed_client.json"
    described.write_text(described.read_text().replace('"fqsn": "scan"', '"fqsn": "print"'))
    up.away |= {"print", "scan"}
    up.sites["print"].stop()
    up.sites["scan"].stop()
    impostor = Kept(command, tmp_path / "kit", tmp_path / "log")
    try:
        begun = time.time()
        impostor.tend()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            found = up.session.system()
            assert found is not None
            assert found.heard.get("print", 0.0) < begun
            time.sleep(1)
    finally:
        impostor.stop()
        up.away -= {"print", "scan"}
        up.tend()


def test_a_sites_certificate_opens_no_session_of_an_administrator(up: System, tmp_path: Path) -> None:
    shutil.copytree(up.folder / "admin", tmp_path / "admin")
    startup = tmp_path / "admin" / "startup"
    for kind in ("crt", "key"):
        shutil.copy(up.kit("scan") / "startup" / f"client.{kind}", startup / f"client.{kind}")
    with Session(tmp_path) as session:
        assert session.system() is None
        assert session.submit(write_job(tmp_path / "job", "nothing")) is None


# ----------------------------------------------------------------------------------------------------------------- jobs
def outcome(up: System, job: Path, seconds: float = 90.0) -> str:
    """What becomes of a job that an administrator submits."""
    number = up.session.submit(job)
    if number is None:
        return "not taken"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        up.tend()
        status = up.session.status(number) or ""
        if status.startswith("FINISHED"):
            return status
        time.sleep(0.3)
    return "under way"


def changed(job: Path, name: str, **changes: Any) -> None:
    path = job / "app" / "config" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_job_that_names_another_class_does_not_run(up: System, tmp_path: Path) -> None:
    up.connected()
    job = write_job(tmp_path / "job", "none")
    mark = tmp_path / "was-here"
    executor = {"path": "subprocess.Popen", "args": {"args": ["touch", str(mark)]}}
    changed(job, "config_fed_client.json", executors=[{"tasks": ["*"], "executor": executor}])
    assert outcome(up, job) not in ("FINISHED:COMPLETED", "under way")
    assert not mark.exists()


def test_a_job_with_code_does_not_run(up: System, tmp_path: Path) -> None:
    up.connected()
    job = write_job(tmp_path / "job", "none")
    mark = tmp_path / "was-here"
    code = job / "app" / "custom" / "fairsilo_more.py"
    code.parent.mkdir()
    code.write_text(f"open({str(mark)!r}, 'w')\n")
    assert outcome(up, job) not in ("FINISHED:COMPLETED", "under way")
    assert not mark.exists()
