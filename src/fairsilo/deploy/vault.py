"""What is a site's alone: randomness for its silos' noise and keys, its signature, and records that nobody undoes."""

from __future__ import annotations

import datetime
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo.core.disk import replacing
from fairsilo.errors import FairsiloError


@dataclass(frozen=True)
class Credentials:
    """Where a site's certificate lies, its private key and the federation's authority; all of them PEM files."""

    certificate: Path
    key: Path
    authority: Path
    role: str = "client"  # that certificates of sites name; the server's and an administrator's name others

    def sign(self, text: bytes) -> bytes:
        """A signature and the certificate that it can be checked with."""
        hashes, padding, serialization, x509 = _cryptography()
        key = serialization.load_pem_private_key(self.key.read_bytes(), password=None)
        signature = bytes(key.sign(text, padding.PKCS1v15(), hashes.SHA256()))
        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        return (
            len(signature).to_bytes(2, "big") + signature + bytes(certificate.public_bytes(serialization.Encoding.DER))
        )

    def signer(self, text: bytes, proof: bytes) -> str:
        """The site that signed a text; empty where no site of this federation did."""
        hashes, padding, _, x509 = _cryptography()
        length = int.from_bytes(proof[:2], "big")
        try:
            certificate = x509.load_der_x509_certificate(proof[2 + length :])
            authority = x509.load_pem_x509_certificate(self.authority.read_bytes())
            certificate.verify_directly_issued_by(authority)
            certificate.public_key().verify(proof[2 : 2 + length], text, padding.PKCS1v15(), hashes.SHA256())
        except Exception:  # noqa: BLE001
            return ""  # whatever is wrong with what another machine sent, it proves nothing
        now = datetime.datetime.now(datetime.UTC)
        valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
        roles, names = (
            [str(one.value) for one in certificate.subject.get_attributes_for_oid(getattr(x509.oid.NameOID, oid))]
            for oid in ("UNSTRUCTURED_NAME", "COMMON_NAME")
        )
        return names[0] if valid and roles == [self.role] and len(names) == 1 else ""


class SiteVault:
    """The vault of one silo for one run.

    Args:
        folder: The site's own, for all runs.
        run: The run.
        silo: The silo.
        credentials: The site's; without them it signs nothing.
    """

    def __init__(self, folder: Path, run: str, silo: str, credentials: Credentials | None) -> None:
        self.credentials = credentials
        self.folder = folder / run / _hash(silo)

    def randomness(self, purpose: str, length: int) -> bytes:
        return os.urandom(length)

    def sign(self, text: bytes) -> bytes:
        if self.credentials is None:
            raise FairsiloError("this site has no certificate to sign with")
        return self.credentials.sign(text)

    def verify(self, silo: str, text: bytes, proof: bytes) -> bool:
        """Whether a site of the federation signed it, the same one for this silo as in every round of the run."""
        site = self.credentials.signer(text, proof) if self.credentials else ""
        return bool(site) and self.settle(f"site of {silo}", site)

    def settle(self, what: str, value: str) -> bool:
        found = self.folder / "settled" / _hash(what)
        if not found.exists():
            _write(found, value)
        return found.read_text(encoding="utf-8") == value

    def record(self, what: str, line: str) -> list[str]:
        path = self.folder / "records" / _hash(what)
        lines = [*(path.read_text(encoding="utf-8").splitlines() if path.exists() else ()), line]
        _write(path, "\n".join(lines))
        return lines


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _cryptography() -> tuple[Any, Any, Any, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding

    return hashes, padding, serialization, x509
