"""Who is a member, and by which certificate: what the federation's folder says, and what the server makes of it."""

from __future__ import annotations

import datetime
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

pytest.importorskip("nvflare", reason="needs the package nvflare: pip install 'fairsilo[flare]'")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_exception import NotAuthenticated

from fairsilo.deploy.flare import kits
from fairsilo.deploy.flare.gate import Approved, Gate
from fairsilo.errors import FairsiloError
from test_commands import request_of


def certificate(name: str) -> x509.Certificate:
    """A new one; who signs it is not looked at here."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime(2026, 1, 1)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    built = x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key())
    dated = built.serial_number(x509.random_serial_number()).not_valid_before(now)
    return dated.not_valid_after(now + datetime.timedelta(9)).sign(key, hashes.SHA256())


def pem(given: x509.Certificate) -> bytes:
    return given.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A federation without members, whose authority signs by hand."""
    (tmp_path / "federation.yaml").write_text("name: trial\nhost: localhost\nport: 8102\n")
    (tmp_path / "admin" / "startup").mkdir(parents=True)

    def sign(folder: Path, profile: kits.Profile, request: Path, target: Path) -> Path:
        name = kits.requested_name(request)
        with zipfile.ZipFile(target, "w") as content:
            content.writestr(f"{name}.crt", pem(certificate(name)))
        return target

    monkeypatch.setattr(kits, "_sign", sign)
    return tmp_path


def in_package(path: Path) -> x509.Certificate:
    with zipfile.ZipFile(path) as content:
        return x509.load_pem_x509_certificate(content.read("north.crt"))


class Server:
    """What the gate uses of FLARE's server."""

    def __init__(self, folder: Path) -> None:
        self.verifier: Any = SimpleNamespace(verify_common_name=lambda **given: self.seen.append(given))
        self.seen: list[dict[str, Any]] = []
        self.disabled_clients: set[str] = set()
        self.client_manager, self.cred_keeper, self.server, self.id_verifier = self, self, self, self.verifier
        self.context: Any = SimpleNamespace(
            get_engine=lambda: self,
            get_workspace=lambda: SimpleNamespace(get_root_dir=lambda: str(folder / "server")),
        )

    def get_id_verifier(self, context: object) -> object:
        return self.id_verifier

    def disable_clients(self, names: list[str]) -> None:
        self.disabled_clients |= set(names)

    def enable_clients(self, names: list[str]) -> None:
        self.disabled_clients -= set(names)

    def comes(self, event: str = EventType.CLIENT_REGISTER_RECEIVED) -> None:
        Gate().handle_event(event, self.context)

    def lets_in(self, name: str, shown: x509.Certificate) -> bool:
        """Whether somebody may log in under a name with a certificate that FLARE finds good."""
        self.comes()
        if name in self.disabled_clients:
            return False
        try:
            self.id_verifier.verify_common_name(asserted_cn=name, asserter_cert=shown, nonce="1")
        except NotAuthenticated:
            return False
        assert self.seen.pop() == {"asserted_cn": name, "asserter_cert": shown, "nonce": "1"}
        return True


def test_a_member_is_let_in_by_the_certificate_approved_last(folder: Path, tmp_path: Path) -> None:
    server, request = Server(folder), request_of(tmp_path / "north.request.zip")
    first = in_package(kits.approve(folder, request))
    assert server.lets_in("north", first)
    assert not server.lets_in("north", certificate("north"))  # signed by the authority, approved by nobody
    assert not server.lets_in("south", certificate("south"))
    second = in_package(kits.approve(folder, request, renews=True))
    assert server.lets_in("north", second)
    assert not server.lets_in("north", first)


def test_a_removed_site_is_let_in_when_it_is_approved_anew(folder: Path, tmp_path: Path) -> None:
    server, request = Server(folder), request_of(tmp_path / "north.request.zip")
    first = in_package(kits.approve(folder, request))
    kits.remove(folder, "north")
    server.comes(EventType.CLIENT_HEARTBEAT_RECEIVED)  # while it is connected, it need not log in
    assert server.disabled_clients == {"north"}
    assert not server.lets_in("north", first)
    assert (list(kits.members(folder)), list(kits.removed(folder))) == ([], ["north"])
    with pytest.raises(FairsiloError, match="'nroth' is no member"):
        kits.remove(folder, "nroth")
    with pytest.raises(FairsiloError, match="north is no member, so that there is nothing to renew"):
        kits.approve(folder, request, renews=True)
    second = in_package(kits.approve(folder, request))
    assert server.lets_in("north", second)
    assert not server.lets_in("north", first)
    (folder / "removed" / "north.signed.zip").touch()  # as by a kill in the middle of it
    assert (list(kits.members(folder)), list(kits.removed(folder))) == (["north"], [])


def test_a_member_is_not_signed_twice_by_mistake(folder: Path, tmp_path: Path) -> None:
    request = request_of(tmp_path / "north.request.zip")
    kits.approve(folder, request)
    with pytest.raises(FairsiloError, match="north is a member; --renew signs this request in the place of"):
        kits.approve(folder, request)


def test_the_administrator_is_let_in_by_the_certificate_of_its_kit(folder: Path) -> None:
    server, own = Server(folder), certificate(kits.ADMIN)
    (folder / "admin" / "startup" / "client.crt").write_bytes(pem(own))
    assert server.lets_in(kits.ADMIN, own)
    assert not server.lets_in(kits.ADMIN, certificate(kits.ADMIN))


def test_what_flare_refuses_is_refused(folder: Path, tmp_path: Path) -> None:
    shown = in_package(kits.approve(folder, request_of(tmp_path / "north.request.zip")))

    def refuses(**given: object) -> None:
        raise ValueError("the signature is wrong")

    with pytest.raises(ValueError, match="the signature is wrong"):
        Approved(SimpleNamespace(verify_common_name=refuses), folder).verify_common_name("north", shown)


def test_where_the_gate_cannot_work_nobody_is_let_in(folder: Path) -> None:
    server = Server(folder)
    del server.cred_keeper
    with pytest.raises(NotAuthenticated, match="the server cannot tell who is a member"):
        server.comes()
    server.comes(EventType.START_RUN)  # none of its business
