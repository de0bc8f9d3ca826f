"""Certificates and startup kits, by FLARE's own tools: a site's private key is made at the site and never leaves it.

The federation's folder (at the server) and a site's folder:

    federation.yaml          site.yaml
    ca/                      request/        the key, the certificate request, and NAME.request.zip
    server/ admin/           kit/            what `install` makes of NAME.signed.zip
    approved/                state/
    runs/                    logs/
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from fairsilo.config import read_yaml
from fairsilo.errors import FairsiloError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,61}")
PROFILE, ADMIN = "federation.yaml", "admin@fairsilo.org"
RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate")  # all but code and shells
ALLOWED = ["fairsilo.deploy.flare."]  # the only classes that a job may name


@dataclass(frozen=True)
class Profile:
    """A federation: its name, and where its server listens."""

    name: str
    host: str
    port: int

    @classmethod
    def read(cls, folder: Path) -> Profile:
        path = folder / PROFILE
        if not path.exists():
            raise FairsiloError(f"{folder} is no federation's folder: it has no {PROFILE}; `fairsilo federation init`")
        content = read_yaml(path)
        try:
            return cls(str(content["name"]), str(content["host"]), int(content["port"]))
        except (KeyError, TypeError, ValueError) as problem:
            raise FairsiloError(f"{path} needs name, host and port") from problem


def checked_name(name: str, what: str) -> str:
    if not NAME.fullmatch(name):
        raise FairsiloError(f"{what} is {name!r}; it must be letters, digits and hyphens, at most 62 of them")
    return name


# ---------------------------------------------------------------------------------------------------------- federation
def init(folder: Path, profile: Profile) -> str:
    """A new federation: its certificate authority, the server's and the admin's kits; returns its fingerprint."""
    checked_name(profile.name, "the federation's name")
    if (folder / PROFILE).exists() or (folder.is_dir() and any(folder.iterdir())):
        raise FairsiloError(f"{folder} is not empty; a federation needs a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    work = folder / ".work"
    work.mkdir()
    _write_profile(work / "profile.yml", profile)
    _nvflare(folder, "cert", "init", "--profile", str(work / "profile.yml"), "-o", str(folder / "ca"))
    (folder / "ca" / "rootCA.key").chmod(0o600)
    address = {"fed_learn_port": profile.port, "admin_port": profile.port}
    people = (
        ("server", {"name": profile.host, "type": "server", "org": "server", **address}),
        ("admin", {"name": ADMIN, "type": "admin", "org": "server", "role": "lead"}),
    )
    for place, participant in people:
        _write_participant(work / f"{place}.yml", profile.name, participant)
        _nvflare(folder, "cert", "request", "-p", str(work / f"{place}.yml"), "--out", str(work / place))
        (request,) = (work / place).glob("*.request.zip")
        signed = _sign(folder, profile, request, work / f"{place}.signed.zip")
        _package(folder, signed, work / place, fingerprint(folder), folder / place)
    _lock_server(folder)
    (folder / "runs").mkdir()
    (folder / PROFILE).write_text(yaml.safe_dump(asdict(profile), sort_keys=False), encoding="utf-8")
    shutil.rmtree(work)
    return fingerprint(folder)


def approve(folder: Path, request: Path) -> Path:
    """Sign a site's request; returns what goes back to the site."""
    profile = Profile.read(folder)
    site = requested_name(request)
    target = folder / "approved" / f"{site}.signed.zip"
    if target.exists():
        raise FairsiloError(f"{site} was approved before; to sign it anew, first remove {target}")
    target.parent.mkdir(exist_ok=True)
    return _sign(folder, profile, request, target)


def requested_name(request: Path) -> str:
    """The name of the site that a request is from; a request is a small zip file, of which little is believed."""
    try:
        with zipfile.ZipFile(request) as content:
            if sum(one.file_size for one in content.infolist()) > 1_000_000:
                raise ValueError
            name = str(json.loads(content.read("request.json"))["name"])
            kind = str(yaml.safe_load(content.read("site.yaml"))["participants"][0]["type"])
    except (OSError, ValueError, KeyError, IndexError, TypeError, zipfile.BadZipFile, yaml.YAMLError) as problem:
        raise FairsiloError(f"{request} is no request of a site (NAME.request.zip)") from problem
    if kind != "client":
        raise FairsiloError(f"{request} asks for the rights of a {kind}; sites are clients")
    return checked_name(name, "the site's name")


def fingerprint(folder: Path) -> str:
    """Of the federation's certificate authority: a site compares it with what it was told by another way."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    authority = x509.load_pem_x509_certificate((folder / "ca" / "rootCA.pem").read_bytes())
    found = authority.fingerprint(SHA256())
    return "SHA256:" + ":".join(f"{byte:02X}" for byte in found)


# ---------------------------------------------------------------------------------------------------------------- site
def request(folder: Path, federation: str, site: str) -> Path:
    """Make a site's key and its request to join; returns the file that goes to the federation's administrator."""
    checked_name(site, "the site's name")
    checked_name(federation, "the federation's name")
    place = folder / "request"
    if place.exists():
        raise FairsiloError(f"{place} exists: this site has asked to join before; remove it to ask anew")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    described = folder / ".participant.yml"
    _write_participant(described, federation, {"name": site, "type": "client", "org": "site"})
    _nvflare(folder, "cert", "request", "-p", str(described), "--out", str(place))
    described.unlink()
    (place / f"{site}.key").chmod(0o600)
    return place / f"{site}.request.zip"


def install(folder: Path, signed: Path, expected: str) -> str:
    """Take the signed package, check whose it is, lock the kit down; returns the site's name."""
    if (folder / "kit").exists():
        raise FairsiloError(f"{folder / 'kit'} exists: this site has joined; remove it to join anew")
    _package(folder, signed, folder / "request", expected, folder / "kit")
    _lock_site(folder / "kit")
    return site_name(folder)


def site_name(folder: Path) -> str:
    path = folder / "kit" / "startup" / "fed_client.json"
    if not path.exists():
        raise FairsiloError(f"{folder} has not joined a federation: it has no kit; `fairsilo site join`")
    return str(json.loads(path.read_text(encoding="utf-8"))["client"]["fqsn"])


# ----------------------------------------------------------------------------------------------------------- lock-down
def _lock_site(kit: Path) -> None:
    """Only fairsilo's classes, no code in jobs, no log to the server."""
    resources = _resources(kit)
    resources |= {"class_allow_list": ALLOWED, "allow_log_streaming": False}
    resources["components"] = [one for one in resources["components"] if one["id"] != "site_log_streamer"]
    _write_json(kit / "local" / "resources.json", resources)
    _forbid_code(kit)


def _lock_server(folder: Path) -> None:
    """As a site; and FLARE's stores inside the federation's folder, not in one that all users share."""
    kit = folder / "server"
    resources = _resources(kit)
    resources |= {"class_allow_list": ALLOWED}
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(
        folder.resolve() / "flare" / "snapshots"
    )
    resources["servers"][0] |= {"heart_beat_timeout": 30}
    for one in resources["components"]:
        if one["id"] == "job_manager":
            one["args"]["uri_root"] = str(folder.resolve() / "flare" / "jobs")
    resources["components"] = [one for one in resources["components"] if one["id"] != "log_receiver"]
    _write_json(kit / "local" / "resources.json", resources)
    _forbid_code(kit)


def _resources(kit: Path) -> dict[str, Any]:
    return dict(json.loads((kit / "local" / "resources.json.default").read_text(encoding="utf-8")))


def _forbid_code(kit: Path) -> None:
    rules = json.loads((kit / "local" / "authorization.json.default").read_text(encoding="utf-8"))
    for role, allowed in rules["permissions"].items():
        rights = allowed if isinstance(allowed, dict) else dict.fromkeys(RIGHTS, allowed)
        rules["permissions"][role] = {**rights, "byoc": "none", "shell_commands": "none"}
    _write_json(kit / "local" / "authorization.json", rules)


# ------------------------------------------------------------------------------------------------------- FLARE's tools
def _sign(folder: Path, profile: Profile, request: Path, target: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=folder) as work:
        described = Path(work) / "profile.yml"
        _write_profile(described, profile)
        options = ["-c", str(folder / "ca"), "--profile", str(described), "--out", str(target)]
        _nvflare(folder, "cert", "approve", *options, str(request))
    return target


def _package(folder: Path, signed: Path, request: Path, expected: str, target: Path) -> None:
    if not signed.exists():
        raise FairsiloError(f"{signed} does not exist")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        _nvflare(folder, "package", str(signed), "--request-dir", str(request), "--fingerprint", expected, "-w", work)
        (made,) = (one for one in Path(work).glob("*/prod_*/*") if (one / "startup").is_dir())
        shutil.move(made, target)
    target.chmod(0o700)


def _nvflare(folder: Path, *words: str) -> str:
    """FLARE's command line; what it keeps for itself goes into the folder, not into the user's home."""
    home = folder / "flare"
    home.mkdir(exist_ok=True)
    command = [sys.executable, "-c", "import sys; from nvflare.cli import main; sys.exit(main())", *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HOME": str(home)}, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise FairsiloError(f"NVIDIA FLARE refused ({words[0]} {words[1]}): {said[:400] or 'it gave no reason'}")
    return done.stdout


def _write_profile(path: Path, profile: Profile) -> None:
    server = {"host": profile.host, "fed_learn_port": profile.port, "admin_port": profile.port}
    content = {"name": profile.name, "scheme": "http", "connection_security": "mtls", "server": server}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")


def _write_participant(path: Path, federation: str, participant: dict[str, Any]) -> None:
    content = {"name": federation, "description": federation, "participants": [participant]}
    path.write_text(yaml.safe_dump(content), encoding="utf-8")


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
