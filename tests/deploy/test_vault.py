"""A site's secrets: noise that the server cannot know, signatures that prove a site, and steps that are taken once."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from fairsilo.deploy.settings import read_site
from fairsilo.deploy.site import Site
from fairsilo.deploy.vault import Credentials, SiteVault
from fairsilo.errors import FairsiloError
from fairsilo.methods.accounting import epsilon_of
from test_serving import CutError, cut_at, results
from tiny_sites import TRAINING, UNSEEN, Local, begun, served, simulated, write_site

PEM = serialization.Encoding.PEM
SAME = {"model": "small-cnn(norm=group)"}


class Authority:
    """Signs certificates, as a federation's administrator does."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.key = folder, rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        self.root = folder / "root.pem"
        self.root.write_bytes(self._signed(self.name, self.key.public_key(), 1).public_bytes(PEM))

    def _signed(self, name: x509.Name, key: rsa.RSAPublicKey, days: int) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self.name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=9))
        return builder.not_valid_after(now + datetime.timedelta(days=days)).sign(self.key, hashes.SHA256())

    def credentials(self, site: str, role: str = "client", days: int = 1) -> Credentials:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        certificate, private = self.folder / f"{site}.crt", self.folder / f"{site}.key"
        attributes = [(NameOID.COMMON_NAME, site), (NameOID.UNSTRUCTURED_NAME, role)]
        name = x509.Name([x509.NameAttribute(*one) for one in attributes])
        certificate.write_bytes(self._signed(name, key.public_key(), days).public_bytes(PEM))
        plain = serialization.NoEncryption()
        private.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain))
        return Credentials(certificate, private, self.root)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("federation") / "ours")


# ------------------------------------------------------------------------------------------------------- signatures
def test_a_signature_names_its_site(authority: Authority) -> None:
    one, other = authority.credentials("one"), authority.credentials("other")
    assert other.signer(b"text", one.sign(b"text")) == "one"
    assert other.signer(b"other text", one.sign(b"text")) == ""


def test_what_no_site_signed_proves_nothing(authority: Authority, tmp_path: Path) -> None:
    here = authority.credentials("here")
    foreign = Authority(tmp_path / "ours")
    for wrong in (
        foreign.credentials("one"),
        authority.credentials("server", role="server"),
        authority.credentials("admin", role="lead"),
        authority.credentials("late", days=-1),
    ):
        assert here.signer(b"text", wrong.sign(b"text")) == ""
    good, length = here.sign(b"text"), 258
    stranger = foreign.credentials("here").sign(b"text")
    for wrong in (b"", b"\0", good[:-1], good[:300], bytes(400), stranger[:length] + good[length:]):
        assert here.signer(b"text", wrong) == ""


def test_a_silo_stays_with_the_site_that_first_spoke_for_it(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.credentials("one"), authority.credentials("other")
    vault = SiteVault(tmp_path, "run", "a", other)
    assert vault.verify("b", b"x", one.sign(b"x"))
    assert vault.verify("b", b"y", one.sign(b"y"))
    assert not vault.verify("b", b"z", other.sign(b"z"))
    assert SiteVault(tmp_path, "later", "a", other).verify("b", b"z", other.sign(b"z"))
    without = SiteVault(tmp_path, "run", "a", None)
    assert not without.verify("b", b"x", one.sign(b"x"))
    with pytest.raises(FairsiloError, match="no certificate to sign with"):
        without.sign(b"x")


# ------------------------------------------------------------------------------------------------------- secrets
def test_randomness_is_new_each_time_and_what_is_settled_and_written_down_stays(tmp_path: Path) -> None:
    vault = SiteVault(tmp_path, "run", "a", None)
    assert len({vault.randomness("p", 40) for _ in range(3)}) == 3
    assert vault.settle("list", "abc")
    assert vault.settle("list", "abc")
    again = SiteVault(tmp_path, "run", "a", None)
    assert not again.settle("list", "ab")
    assert again.settle("another list", "ab")
    assert again.record("dp", "1") == ["1"]
    assert again.record("dp", "1") == ["1", "1"]
    assert SiteVault(tmp_path, "run", "a", None).record("dp", "2") == ["1", "1", "2"]
    assert SiteVault(tmp_path, "run", "b", None).record("dp", "1") == ["1"]
    assert SiteVault(tmp_path, "later", "a", None).record("dp", "1") == ["1"]


# ------------------------------------------------------------------------------------------------------- runs
def rounds(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def signing_sites(folder: Path, authority: Authority) -> dict[str, Site]:
    names = (*TRAINING, UNSEEN)
    return {n: Site(read_site(write_site(folder / n, n), n), authority.credentials(n)) for n in names}


def test_secure_sums_over_sites_are_those_of_a_simulation(authority: Authority, tmp_path: Path) -> None:
    how = "scaffold | secure-aggregation"
    wanted = simulated(tmp_path / "here", how)
    found = served(begun(tmp_path / "there", how), Local(signing_sites(tmp_path / "sites", authority)))
    assert results(tmp_path / "there") == results(tmp_path / "here")
    assert found == wanted


@pytest.mark.slow
def test_a_server_that_is_cut_off_in_the_middle_of_a_secure_sum(authority: Authority, tmp_path: Path) -> None:
    """The round is done again with new keys: the old ones are never used for a second list."""
    how = "fedavg | secure-aggregation"
    simulated(tmp_path / "here", how)
    folder, sites = begun(tmp_path / "there", how), signing_sites(tmp_path / "sites", authority)
    with pytest.raises(CutError):
        served(folder, Local(sites), listener=cut_at("trained", 2))
    served(folder, Local(sites))
    assert results(folder) == results(tmp_path / "here")


def test_a_site_with_a_foreign_certificate_stops_secure_sums(authority: Authority, tmp_path: Path) -> None:
    sites = signing_sites(tmp_path / "sites", authority)
    foreign = Authority(tmp_path / "foreign").credentials("scan")
    sites["scan"].credentials = Credentials(foreign.certificate, foreign.key, authority.root)
    with pytest.raises(FairsiloError, match=r"[01] silos shared out their keys"):
        served(begun(tmp_path / "there", "fedavg | secure-aggregation"), Local(sites))


def test_noise_at_sites_is_no_function_of_what_the_server_knows(tmp_path: Path) -> None:
    """A step that is repeated, as after a kill of the server, is the kept answer, and costs nothing again."""
    how = "dp-updates(clip=1, noise=0.01)"
    simulated(tmp_path / "here", how, **SAME)
    sites = {n: Site(read_site(write_site(tmp_path / n, n), n)) for n in (*TRAINING, UNSEEN)}
    folder = begun(tmp_path / "run", how, **SAME)
    with pytest.raises(CutError):
        served(folder, Local(sites), listener=cut_at("trained", 2))
    served(folder, Local(sites))
    assert results(folder) != results(tmp_path / "here")
    spent = [record["shown"]["dp-updates.epsilon"] for record in rounds(folder)]
    wanted = [epsilon_of([(0.005, 1.0, number)], 1e-5) for number in (1, 2)]
    assert [{f"{value:.9g}" for value in one.values()} for one in spent] == [{f"{value:.9g}"} for value in wanted]


@pytest.mark.slow
def test_a_site_takes_no_part_without_what_it_requires(authority: Authority, tmp_path: Path) -> None:
    """Its word is for the server, its sentence for its own log."""
    sites = signing_sites(tmp_path / "sites", authority)
    path = write_site(tmp_path / "sites" / "scan", "scan", require=["secure-aggregation"])
    sites["scan"] = Site(read_site(path, "scan"), authority.credentials("scan"))
    said: list[str] = []
    folder = begun(tmp_path / "plain", "fedavg")
    served(folder, Local(sites), listener=lambda event: said.append(event.text))
    assert "site 'scan' takes no part: the run's method lacks what it requires" in said
    assert rounds(folder)[-1]["counted"] == ["print", "sketch"]
    masked = begun(tmp_path / "masked", "fedavg | secure-aggregation")
    served(masked, Local(sites))
    assert rounds(masked)[-1]["counted"] == ["print", "scan", "sketch"]
