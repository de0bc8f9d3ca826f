"""A site's day: joining, checking that everything is in place, and taking part."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from filelock import FileLock, Timeout

from fairsilo.config import Experiment
from fairsilo.core.messages import MODEL
from fairsilo.core.roster import Member, Roster
from fairsilo.deploy.brief import Brief
from fairsilo.deploy.flare.kits import install, site_name
from fairsilo.deploy.flare.machines import Kept, job_processes, site_command
from fairsilo.deploy.reading import classes_at, read_silo
from fairsilo.deploy.settings import EVALUATES, SiteSettings, read_site
from fairsilo.errors import FairsiloError
from fairsilo.runs.setup import model_of, plan_of, resolved, sends_of

TEMPLATE = """# What this site is. This file stays here; of it only the silo's name and domain are sent.
# `fairsilo site check` tells whether all of it works.
domain: {site}          # where the samples come from, such as a scanner or a plant
folder: data            # images as data/CLASS/*.png, beside this file; or packed:, table:, data:
role: train             # or: evaluate, for a site that only measures the global model
device: cpu             # or: cuda; auto: on a GPU where there is one
state: state            # what this silo keeps between rounds, its own model among it
# share: 0.5            # take part with some of the training samples
# trust: [my_package]   # packages whose code a run may name as package:name
# groups: [sex, age]    # columns of the data by whose values a run may measure test results, in groups of 5 or more
"""


def write_template(folder: Path, site: str) -> Path:
    path = folder / "site.yaml"
    if not path.exists():
        path.write_text(TEMPLATE.format(site=site), encoding="utf-8")
    return path


def take(folder: Path, signed: Path, fingerprint: str) -> str:
    """Become a member by a signed package, or take a new certificate; returns the site's name."""
    if job_processes(folder / "kit"):
        raise FairsiloError(f"the site of {folder} runs; stop it before it takes a new certificate")
    return install(folder, signed, fingerprint)


def site_of(folder: Path) -> Kept:
    return Kept(site_command(folder), folder / "kit", folder / "logs" / "site.log")


def start(folder: Path, say: Callable[[str], object], stop: Callable[[], bool] = lambda: False) -> None:
    """Keep the site connected until told to stop; what is wrong with `site.yaml` is said before."""
    name = site_name(folder)
    read_site(folder / "site.yaml", name)
    with alone(folder), site_of(folder) as site:
        host, port = server_of(folder)
        say(f"site {name} takes part through {host}:{port}; its log: {site.log}")
        while not stop():
            site.tend()
            time.sleep(0.3)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two processes with one certificate would put each other out."""
    lock = FileLock(folder / ".start.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FairsiloError(f"the site of {folder} runs already; stop that process first") from None
    try:
        yield
    finally:
        lock.release()


def unit(folder: Path, user: str) -> str:
    """A systemd unit that keeps the site taking part."""
    command = f"{shlex.quote(sys.executable)} -m fairsilo.cli site start --folder {shlex.quote(str(folder.resolve()))}"
    return (
        "[Unit]\nDescription=fairsilo site\nAfter=network-online.target\nWants=network-online.target\n\n"
        f"[Service]\nUser={user}\nExecStart={command}\nRestart=always\nRestartSec=10\nKillMode=control-group\n"
        "NoNewPrivileges=true\nPrivateTmp=true\n\n[Install]\nWantedBy=multi-user.target\n"
    )


# --------------------------------------------------------------------------------------------------------------- check
def server_of(folder: Path) -> tuple[str, int]:
    """Where the federation's server listens, as the kit says."""
    content = json.loads((folder / "kit" / "startup" / "fed_client.json").read_text(encoding="utf-8"))
    host, _, port = str(content["servers"][0]["service"]["target"]).rpartition(":")
    return host, int(port)


def reach(folder: Path, seconds: float = 10.0) -> str:
    """A TLS connection with the site's certificate to the federation's server; returns the name in its certificate.

    Raises:
        FairsiloError: There is no such server, or one of somebody else's.
    """
    host, port = server_of(folder)
    startup = folder / "kit" / "startup"
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    try:
        with (
            socket.create_connection((host, port), seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            found = secured.getpeercert(binary_form=True)
    except ssl.SSLError as problem:
        raise FairsiloError(
            f"{host}:{port} is not this federation's server: its certificate is not signed by the federation"
        ) from problem
    except OSError as problem:
        raise FairsiloError(f"{host}:{port} cannot be reached: {problem.strerror or problem}") from problem
    assert found is not None  # a server without a certificate is refused above
    certificate = x509.load_der_x509_certificate(found)
    return str(certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def classes_here(folder: Path) -> tuple[str, ...]:
    """The classes that the data of the site's silos have."""
    settings = read_site(folder / "site.yaml", site_name(folder))
    return tuple(dict.fromkeys(name for silo in settings.silos for name in classes_at(silo)))


class Read(NamedTuple):
    """What a site's check found of a silo."""

    member: Member
    task: str
    shape: tuple[int, ...]
    dtype: str
    columns: frozenset[str]  # that its test samples have, of those that the file allows


def about_groups(experiment: Experiment, settings: SiteSettings, found: list[Read]) -> list[str]:
    """Columns that a run asks for and the file does not allow, and those that it allows and the data do not have."""
    allowed, lines = settings.machine.groups or (), []
    for column in experiment.evaluate.columns:
        if column not in allowed:
            lines.append(
                f"the run asks for results by {column!r}: groups in site.yaml does not allow it, none are told"
            )
    there = {name for one in found for name in one.columns}
    lines += [
        f"site.yaml allows results by {name!r}, a column that the data do not have"
        for name in allowed
        if name not in there
    ]
    return lines


def read_all(folder: Path, experiment: Experiment) -> tuple[SiteSettings, list[Read]]:
    """Read the silos' samples as a run would; what each would say of itself."""
    settings = read_site(folder / "site.yaml", site_name(folder))
    brief = Brief.of(experiment)
    found = []
    for one in settings.silos:
        silo, task = read_silo(one, brief, settings.machine.groups or ())
        sample = silo.test if one.role == EVALUATES else silo.train
        dtype = str(sample.dtype).removeprefix("torch.")
        found.append(Read(silo.member(), task, sample.shape, dtype, frozenset(silo.test.attributes)))
    return settings, found


def fits(experiment: Experiment, settings: SiteSettings, found: list[Read]) -> str:
    """Build the model and try a sample of the site's shape; returns what the site would send, in words."""
    members = tuple(one.member for one in found)
    trains = tuple(m for m, one in zip(members, settings.silos, strict=True) if one.role != EVALUATES)
    _, task, shape, dtype, _ = found[0]
    stand_in = Member("somebody", "elsewhere", 1, 1, 1)
    roster = Roster("site", Brief.of(experiment).classes, shape, dtype, trains or (stand_in,), (), task)
    model = model_of(experiment.model, experiment.method, roster)
    plan = plan_of(resolved(experiment, roster), roster)
    plan.check(roster, experiment.data.server is not None, experiment.data.synthetic is not None)
    size = plan.layout.wire.size * plan.layout.wire.dtype.itemsize
    allowed = ", ".join(name for name in experiment.evaluate.columns if name in (settings.machine.groups or ()))
    told = dataclasses.replace(experiment, evaluate=dataclasses.replace(experiment.evaluate, groups=allowed or None))
    more = "; ".join(sends_of(told, plan.method))
    beside = f"; besides: {more}" if more else ""
    return f"{model}: a change of the {MODEL} each round ({size:,} bytes), its loss and its results{beside}"
