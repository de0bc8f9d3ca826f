"""Certificates and startup kits, by FLARE's own tools: a site's private key is made at the site and never leaves it.

The federation's folder (at the server) and a site's folder:

    federation.yaml          site.yaml
    ca/                      request/        the key, the certificate request, and NAME.request.zip
    server/ admin/           renewal/        the same for a new certificate, until the site has it
    approved/ removed/       kit/            what `install` makes of NAME.signed.zip
    runs/ logs/              state/ logs/
    flare/                   flare/          what FLARE keeps for itself
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
from fairsilo.errors import FairsiloError, near

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,61}")
PROFILE, ADMIN = "federation.yaml", "admin@fairsilo.org"
OWN = ("server", "admin")  # kits that are made where the authority is
RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate")  # all but code and shells
ALLOWED = ["fairsilo.deploy.flare."]  # the only classes that a job may name
APPROVED, REMOVED, SIGNED = "approved", "removed", ".signed.zip"  # packages of sites that are members, and that were
REFUSALS = {  # what FLARE says in words of its own -> what a site's engineer can do
    "ROOTCA_FINGERPRINT": "the package was not signed by the federation with this fingerprint; ask its administrator "
    "for the fingerprint by another way, such as the telephone, and do not join where the two differ",
    "missing local request material": "the package answers another request than the one that was made here: "
    "is it another site's, or did this site ask anew since?",
}
WORK = ".work-"  # temporary folders begin so
GATE = {"id": "gate", "path": "fairsilo.deploy.flare.gate.Gate", "args": {}}


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
    with tempfile.TemporaryDirectory(dir=folder, prefix=WORK) as work:
        described = Path(work) / "profile.yml"
        _write_profile(described, profile)
        _nvflare(folder, "cert", "init", "--profile", str(described), "-o", str(folder / "ca"))
    (folder / "ca" / "rootCA.key").chmod(0o600)
    for place in OWN:
        _make_own(folder, profile, place, folder / place)
    lock_server(folder)
    (folder / "runs").mkdir()
    (folder / PROFILE).write_text(yaml.safe_dump(asdict(profile), sort_keys=False), encoding="utf-8")
    return fingerprint(folder)


def renew(folder: Path) -> None:
    """New keys and certificates of the server and the administrator; who was logged in has to log in again."""
    profile = Profile.read(folder)
    for place in OWN:
        with tempfile.TemporaryDirectory(dir=folder, prefix=WORK) as work:
            _make_own(folder, profile, place, Path(work) / place)
            shutil.rmtree(folder / place / "startup")
            (Path(work) / place / "startup").rename(folder / place / "startup")


def _make_own(folder: Path, profile: Profile, place: str, target: Path) -> None:
    """A kit of the server's or the administrator's, whose request is signed at once."""
    address = {"fed_learn_port": profile.port, "admin_port": profile.port}
    people: dict[str, dict[str, Any]] = {
        "server": {"name": profile.host, "type": "server", "org": "server", **address},
        "admin": {"name": ADMIN, "type": "admin", "org": "server", "role": "lead"},
    }
    with tempfile.TemporaryDirectory(dir=folder, prefix=WORK) as work:
        described, asked = Path(work) / "participant.yml", Path(work) / "request"
        _write_participant(described, profile.name, people[place])
        _nvflare(folder, "cert", "request", "-p", str(described), "--out", str(asked))
        (request,) = asked.glob("*.request.zip")
        signed = _sign(folder, profile, request, Path(work) / f"{place}{SIGNED}")
        _package(folder, signed, asked, fingerprint(folder), target)


def members(folder: Path) -> dict[str, Path]:
    """Sites that may connect, with the package that was signed last for each."""
    return _packages(folder / APPROVED)


def removed(folder: Path) -> dict[str, Path]:
    """Sites that were members."""
    return {site: path for site, path in _packages(folder / REMOVED).items() if site not in members(folder)}


def _packages(place: Path) -> dict[str, Path]:
    return {path.name.removesuffix(SIGNED): path for path in sorted(place.glob(f"*{SIGNED}"))}


def approve(folder: Path, request: Path, renews: bool = False) -> Path:
    """Sign a site's request; returns what goes back to the site.

    Args:
        folder: The federation's.
        request: As the site sent it.
        renews: It takes the place of the certificate that the site has.
    """
    profile = Profile.read(folder)
    site = requested_name(request)
    if renews != (site in members(folder)):
        raise FairsiloError(
            f"{site} is no member, so that there is nothing to renew; leave --renew out"
            if renews
            else f"{site} is a member; --renew signs this request in the place of the certificate that it has"
        )
    target = folder / APPROVED / f"{site}{SIGNED}"
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=WORK) as work:
        _sign(folder, profile, request, Path(work) / target.name).replace(target)
    (folder / REMOVED / target.name).unlink(missing_ok=True)
    return target


def remove(folder: Path, site: str) -> None:
    """A site is no member any more; the gate tells FLARE when anybody gives a sign of life."""
    Profile.read(folder)
    found = members(folder)
    if site not in found:
        raise FairsiloError(f"{site!r} is no member{near(site, found)}")
    (folder / REMOVED).mkdir(exist_ok=True)
    found[site].replace(folder / REMOVED / found[site].name)


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
    return _ask(folder, folder / "request", federation, site)


def renewal(folder: Path) -> Path:
    """As `request`, for a member: a new key, beside the one that is in use until the new package is taken."""
    site, content = site_name(folder), _described(folder)
    return _ask(folder, folder / "renewal", str(content["servers"][0]["name"]), site)


def _ask(folder: Path, place: Path, federation: str, site: str) -> Path:
    if place.exists():
        raise FairsiloError(f"{place} exists: this site has asked before; remove it to ask anew")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    described = folder / ".participant.yml"
    _write_participant(described, federation, {"name": site, "type": "client", "org": "site"})
    _nvflare(folder, "cert", "request", "-p", str(described), "--out", str(place))
    described.unlink()
    (place / f"{site}.key").chmod(0o600)
    return place / f"{site}.request.zip"


def install(folder: Path, signed: Path, expected: str) -> str:
    """Take the signed package, check whose it is, lock the kit down; returns the site's name.

    The answer to a renewal takes the place of the kit, and the old key is deleted. The site must not run meanwhile.
    """
    kit, asked, renewed = (folder / name for name in ("kit", "request", "renewal"))
    if not asked.exists() and not renewed.exists():
        raise FairsiloError(f"{folder} has made no request: `fairsilo site join NAME --federation FEDERATION`")
    if kit.exists() and not renewed.exists():
        raise FairsiloError(f"{kit} exists: this site has joined; `fairsilo site renew` asks for a new certificate")
    with tempfile.TemporaryDirectory(dir=folder, prefix=WORK) as work:
        made = Path(work) / "kit"
        _package(folder, signed, renewed if renewed.exists() else asked, expected, made)
        _lock_site(made)
        shutil.rmtree(kit, ignore_errors=True)
        made.rename(kit)
    if renewed.exists():
        shutil.rmtree(asked, ignore_errors=True)
        renewed.rename(asked)
    return site_name(folder)


def site_name(folder: Path) -> str:
    return str(_described(folder)["client"]["fqsn"])


def _described(folder: Path) -> dict[str, Any]:
    path = folder / "kit" / "startup" / "fed_client.json"
    if not path.exists():
        raise FairsiloError(f"{folder} has not joined a federation: it has no kit; `fairsilo site join`")
    return dict(json.loads(path.read_text(encoding="utf-8")))


# ----------------------------------------------------------------------------------------------------------- lock-down
def _lock_site(kit: Path) -> None:
    """Only fairsilo's classes, no code in jobs, no log to the server."""
    resources = _resources(kit)
    resources |= {"class_allow_list": ALLOWED, "allow_log_streaming": False}
    resources["components"] = [one for one in resources["components"] if one["id"] != "site_log_streamer"]
    _write_json(kit / "local" / "resources.json", resources)
    _forbid_code(kit)


def lock_server(folder: Path) -> None:
    """As a site; a gate; and FLARE's stores inside the federation's folder, not in one that all users share.

    FLARE wants whole paths of them: this is done at every start, so that a folder may be moved, or restored elsewhere.
    """
    kit = folder / "server"
    (folder / "flare").mkdir(exist_ok=True)
    resources = _resources(kit)
    resources |= {"class_allow_list": ALLOWED}
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(
        folder.resolve() / "flare" / "snapshots"
    )
    resources["servers"][0] |= {"heart_beat_timeout": 30}
    for one in resources["components"]:
        if one["id"] == "job_manager":
            one["args"]["uri_root"] = str(folder.resolve() / "flare" / "jobs")
    kept = [one for one in resources["components"] if one["id"] != "log_receiver"]
    resources["components"] = [*kept, GATE]
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
    with tempfile.TemporaryDirectory(dir=folder, prefix=WORK) as work:
        described = Path(work) / "profile.yml"
        _write_profile(described, profile)
        options = ["-c", str(folder / "ca"), "--profile", str(described), "--out", str(target)]
        _nvflare(folder, "cert", "approve", *options, str(request))
    return target


def _package(folder: Path, signed: Path, request: Path, expected: str, target: Path) -> None:
    if not signed.exists():
        raise FairsiloError(f"{signed} does not exist")
    with tempfile.TemporaryDirectory(dir=folder, prefix=WORK) as work:
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
        known = next((sentence for piece, sentence in REFUSALS.items() if piece in said), "")
        if known:
            raise FairsiloError(known)
        refused = f"NVIDIA FLARE refused ({words[0]} {words[1]}): {said or 'it gave no reason'}"
        ours = rf"[^\s'\"]*/{re.escape(WORK)}[^/\s'\"]*/?"  # gone by now, and nothing that an engineer has seen
        raise FairsiloError(re.sub(ours, "", refused)[:500])
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
