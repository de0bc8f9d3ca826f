"""`site.yaml`: what a site says about itself to its own machine. Nothing of it is sent but silos' names and domains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo.config import read_yaml
from fairsilo.errors import FairsiloError, near
from fairsilo.fields import check_fields, setting

TRAINS, EVALUATES = "train", "evaluate"
SOURCES = ("data", "folder", "packed", "table")


@dataclass(frozen=True)
class SiloSettings:
    """One silo of a site: where its samples are, and what it takes part in."""

    name: str = setting("", "of the silo, in results; by default the site's")
    domain: str = setting("", "where the samples come from, such as a scanner; by default the silo's name")
    role: str = setting(
        TRAINS, "train, or evaluate only: an unseen silo, which trains nothing", choices=(TRAINS, EVALUATES)
    )
    folder: str | None = setting(None, "images as FOLDER/class/*.png, with masks FOLDER/images and FOLDER/masks")
    packed: str | None = setting(None, "a folder with one .npz file")
    table: str | None = setting(None, "an index of images, a table of numbers (CSV), or texts by role (JSON)")
    data: str | None = setting(None, "a data set that `fairsilo datasets` lists, of which the silo has the domain")
    root: str | None = setting(None, "where such data sets are looked for")
    share: float | None = setting(
        None, "of the training samples it takes part with: up to 1 a share, above 1 a number", low=0, open_low=True
    )
    validation: float | None = setting(None, "share kept for validation; by default the run's", low=0, high=0.9)
    test: float | None = setting(None, "share kept for testing; by default the run's", low=0, high=0.9)

    def __post_init__(self) -> None:
        check_fields(self)
        given = [key for key in SOURCES if getattr(self, key)]
        if len(given) != 1:
            listed = " and ".join(given) or "none"
            raise FairsiloError(f"a silo needs one of {', '.join(SOURCES)}, and {listed} is given")


@dataclass(frozen=True)
class MachineSettings:
    """How a site's machine is used."""

    device: str = setting("cpu", "where it trains; auto: on a GPU where there is one", choices=("cpu", "cuda", "auto"))
    threads: int = setting(1, "that a step of training may use", low=1)
    state: str = setting("state", "folder for what its silos keep between rounds, beside this file")
    trust: tuple[str, ...] | None = setting(None, "packages whose code a run may name, as package:name; else none")
    require: tuple[str, ...] | None = setting(
        None, "parts without which it takes no part in a run, such as secure-aggregation"
    )
    groups: tuple[str, ...] | None = setting(
        None, "columns of its samples, such as sex, by whose values a run may measure test results; else none"
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def place(self) -> str:
        """The device that this machine has, as PyTorch calls it.

        Raises:
            FairsiloError: It is to be a GPU, and there is none.
        """
        import torch  # not for reading settings alone

        if self.device != "cpu" and torch.cuda.is_available():
            return "cuda"
        if self.device == "cuda":
            raise FairsiloError(
                "site.yaml says device: cuda, and PyTorch finds no GPU here; say cpu, or auto for a GPU if there is one"
            )
        return "cpu"


@dataclass(frozen=True)
class SiteSettings:
    """A site: its silos and its machine."""

    silos: tuple[SiloSettings, ...]
    machine: MachineSettings


def read_site(path: Path, site: str) -> SiteSettings:
    """The settings of a site from its file; a single silo's may stand at the top.

    Args:
        path: `site.yaml`; paths inside are relative to its folder.
        site: The site's name, which a silo has where it gives none.

    Raises:
        FairsiloError: It cannot be read, or says something unknown.
    """
    content = read_yaml(path)
    general, own = ({item.name for item in dataclasses.fields(one)} for one in (MachineSettings, SiloSettings))
    known = general | own | {"silos"}
    for key in content:
        if key not in known:
            raise FairsiloError(f"{path} has the unknown setting {key!r}{near(key, known)}")
    top = {key: value for key, value in content.items() if key in own}
    listed = content.get("silos")
    if listed is not None and top:
        raise FairsiloError(f"{path} has both silos and {sorted(top)[0]}; a silo's settings go into its entry")
    if listed is not None and not (isinstance(listed, list) and all(isinstance(one, dict) for one in listed)):
        raise FairsiloError(f"{path}: silos is a list of settings, one entry for each silo")
    silos = tuple(_silo(one, own, path, site) for one in (listed or [top]))
    names = [one.name for one in silos]
    if len(set(names)) < len(names):
        raise FairsiloError(f"{path} has two silos of one name; give each a name of its own")
    try:
        machine = MachineSettings(**{key: value for key, value in content.items() if key in general})
    except FairsiloError as problem:
        raise FairsiloError(f"{path}: {problem}") from problem
    return SiteSettings(silos, dataclasses.replace(machine, state=str(path.parent / machine.state)))


def _silo(given: Mapping[str, Any], known: set[str], path: Path, site: str) -> SiloSettings:
    for key in given:
        if key not in known:
            raise FairsiloError(f"{path} has the unknown setting {key!r} of a silo{near(key, known)}")
    try:
        made = SiloSettings(**given)
    except FairsiloError as problem:
        raise FairsiloError(f"{path}: {problem}") from problem
    name = made.name or site
    found = dataclasses.replace(made, name=name, domain=made.domain or name)
    for key in ("folder", "packed", "table", "root"):
        if getattr(found, key):
            object.__setattr__(found, key, str(path.parent / getattr(found, key)))
    return found
