"""A whole federation on this machine, with real certificates: a server and its sites as processes of their own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from fairsilo.config import Experiment, experiment
from fairsilo.deploy.flare import kits
from fairsilo.deploy.flare.administration import server_of
from fairsilo.deploy.flare.attendance import site_of
from fairsilo.deploy.flare.machines import Session
from fairsilo.deploy.flare.supervisor import Supervisor, submit
from fairsilo.errors import FairsiloError

TRAIN, EVALUATE = ("print", "scan", "sketch"), "street"  # domains of the embedded data, one at each site
SHARE = 300


def settings() -> Experiment:
    """FFT-GP on the embedded digits, six short rounds."""
    return experiment(
        {
            "method": "fft-gp(warmup=1)",
            "model": "small-cnn",
            "data": {"name": "glyphs"},
            "train": {"rounds": 6, "epochs": 3, "lr": 0.02, "batch_size": 16},
        }
    )


def demo(folder: Path, say: Callable[[str], object], stop: Callable[[], bool] = lambda: False) -> Path:
    """Make the federation, start it, run FFT-GP over it, stop it; returns the run's folder.

    Raises:
        FairsiloError: The run did not come to its end.
    """
    federation, names = folder / "federation", (*TRAIN, EVALUATE)
    say(f"making certificates and kits for a server and {len(names)} sites in {folder}")
    profile = kits.Profile("demo", "localhost", _free_port())
    fingerprint = kits.init(federation, profile)

    def join(name: str) -> None:
        request = kits.request(folder / name, profile.name, name)
        kits.install(folder / name, kits.approve(federation, request), fingerprint)
        role = {"role": "evaluate"} if name == EVALUATE else {"share": SHARE}
        described = {"domain": name, "data": "glyphs", **role}
        (folder / name / "site.yaml").write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(join, names))
    run = submit(federation, settings(), "fft-gp")
    with contextlib.ExitStack() as running:
        server = running.enter_context(server_of(federation))
        sites = [running.enter_context(site_of(folder / name)) for name in names]
        session = running.enter_context(Session(federation))

        def tend() -> None:
            for process in (server, *sites):
                process.tend()

        say(f"server on localhost:{profile.port}; sites: {', '.join(names)} ({EVALUATE} only evaluates)")
        outcome = Supervisor(federation, session, tend, say).see_through(run, len(names), stop)
    if outcome != "finished":
        raise FairsiloError(f"the run did not end well ({outcome or 'stopped'}); logs: {folder}/*/logs")
    return run


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
