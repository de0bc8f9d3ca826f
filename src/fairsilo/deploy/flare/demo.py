"""A whole federation on this machine, with real certificates: a server and its sites as processes of their own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from fairsilo.config import Experiment, experiment
from fairsilo.deploy.attempts import outcome_of
from fairsilo.deploy.flare import kits
from fairsilo.deploy.flare.administration import held, server_of
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


@dataclass(frozen=True)
class Here:
    """A federation whose server and sites are processes of this machine."""

    folder: Path  # the federation's
    supervisor: Supervisor
    sites: int

    def run(self, experiment: Experiment, name: str, stop: Callable[[], bool] = lambda: False) -> Path:
        """A run from its submission to its end; returns its folder.

        Raises:
            FairsiloError: It did not come to its end.
        """
        run = submit(self.folder, experiment, name)
        outcome = self.supervisor.see_through(run, self.sites, stop)
        if outcome != "finished":
            said = outcome_of(run).get("message") or outcome or "stopped"
            raise FairsiloError(f"the run did not end well ({said}); logs: {self.folder.parent}/*/logs")
        return run


@contextlib.contextmanager
def here(folder: Path, sites: Mapping[str, Mapping[str, object]], say: Callable[[str], object]) -> Iterator[Here]:
    """A server and sites with real certificates, for as long as the block runs.

    Args:
        folder: A new one for all of it.
        sites: Site -> what its site.yaml says.
        say: Told what happens.
    """
    federation, profile = folder / "federation", kits.Profile("demo", "localhost", _free_port())
    say(f"making certificates and kits for a server and {len(sites)} sites in {folder}")
    fingerprint = kits.init(federation, profile)

    def join(name: str) -> None:
        request = kits.request(folder / name, profile.name, name)
        kits.install(folder / name, kits.approve(federation, request), fingerprint)
        (folder / name / "site.yaml").write_text(yaml.safe_dump(dict(sites[name]), sort_keys=False), encoding="utf-8")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(join, sites))
    with contextlib.ExitStack() as running:
        running.enter_context(held(federation))
        kept = [running.enter_context(server_of(federation))]
        kept += [running.enter_context(site_of(folder / name)) for name in sites]
        session = running.enter_context(Session(federation))

        def tend() -> None:
            for process in kept:
                process.tend()

        say(f"server on localhost:{profile.port}; sites: {', '.join(sites)}")
        yield Here(federation, Supervisor(federation, session, tend, say), len(sites))


def demo(folder: Path, say: Callable[[str], object], stop: Callable[[], bool] = lambda: False) -> Path:
    """FFT-GP over three sites that train and one that only evaluates; returns the run's folder."""
    sites = {name: {"domain": name, "data": "glyphs", "share": SHARE} for name in TRAIN}
    sites[EVALUATE] = {"domain": EVALUATE, "data": "glyphs", "role": "evaluate"}
    with here(folder, sites, say) as federation:
        return federation.run(settings(), "fft-gp", stop)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
