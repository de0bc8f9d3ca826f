"""Sites of a small federation of glyphs, and a channel to them inside this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fairsilo.api import run
from fairsilo.config import experiment
from fairsilo.core.messages import Failure
from fairsilo.deploy.remote import Asked
from fairsilo.deploy.serving import serve
from fairsilo.deploy.settings import read_site
from fairsilo.deploy.site import Site
from fairsilo.engine.events import Callback, silent
from fairsilo.runs.running import no_page, start_folder
from fairsilo.runs.setup import Objects

TRAINING, UNSEEN = ("print", "scan", "sketch"), "street"
SHARE = 30
SETTINGS: dict[str, Any] = {
    "model": "small-cnn",
    "data": {"name": "glyphs", "domains": [*TRAINING, UNSEEN], "held_out": UNSEEN, "share": str(SHARE)},
    "train": {"rounds": 2, "epochs": 1, "lr": 0.02, "batch_size": 16},
    "engine": {"name": "sequential"},
}


def write_site(folder: Path, name: str, **changes: Any) -> Path:
    """`site.yaml` of a site that holds the domain of glyphs it is named after."""
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"domain": name, "data": "glyphs"}
    settings |= {"role": "evaluate"} if name == UNSEEN else {"share": SHARE}
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump(settings | changes))
    return path


class Local:
    """Sites in this process: what is asked and answered goes through the same forms as on a wire."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.sites = dict(sites)
        self.calls: list[tuple[str, str]] = []

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        for key, (site, content) in reversed(asked.items()):  # in no particular order
            self.calls.append((step, site))
            if site in self.sites:
                yield key, self.sites[site].answer(step, content)
            else:
                yield key, Failure("lost", "its site is not connected")


def sites_in(folder: Path, names: tuple[str, ...] = (*TRAINING, UNSEEN), **changes: Any) -> dict[str, Site]:
    return {name: Site(read_site(write_site(folder / name, name, **changes), name)) for name in names}


def begun(folder: Path, method: str, **changes: Any) -> Path:
    """A run folder with its configuration."""
    settings = experiment({**SETTINGS, "method": method, **changes})
    folder.mkdir(parents=True, exist_ok=True)
    start_folder(folder, settings, Objects())
    return folder


def served(
    folder: Path, channel: Any, names: tuple[str, ...] = (*TRAINING, UNSEEN), listener: Callback = silent
) -> Any:
    return serve(folder, channel, names, listener, no_page)


def simulated(folder: Path, method: str, **changes: Any) -> Any:
    return run(method=method, out=folder, **{**SETTINGS, **changes}).summary
