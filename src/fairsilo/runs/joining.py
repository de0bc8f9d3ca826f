"""The data of silos that are added to a finished run: of one that joins, and of one that has none here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from fairsilo.core.samples import SiloData, Split
from fairsilo.data.dataset import UNDECIDED, Domain
from fairsilo.data.federation import divide
from fairsilo.errors import FairsiloError

if TYPE_CHECKING:
    from fairsilo.runs.trained import Trained


def newcomer(trained: Trained, name: str, domain: Domain | Split, validation: float, test: float) -> SiloData:
    """What `Trained.personalise` trains, validates and tests with.

    Raises:
        FairsiloError: The name is taken, a share is none, or the method needs validation data that there are none of.
    """
    if isinstance(domain, Split):
        undecided = torch.full((len(domain),), UNDECIDED, dtype=torch.int8)
        domain = Domain(name, domain.inputs, domain.targets, undecided, attributes=domain.attributes)
    if name in trained.silos:
        raise FairsiloError(f"{trained.folder} has a silo {name!r} already; choose another name with --name")
    kept = trained.run_folder.model_path(("personal", "last", name))
    if kept.exists():
        raise FairsiloError(f"{name!r} has joined already, and {kept} is its model; choose another name with --name")
    for key, share in (("--validation", validation), ("--test", test)):
        if not 0 <= share < 1:
            raise FairsiloError(f"{key} is {share:g}; it must be a share from 0 to below 1")
    joining, seed = dataclasses.replace(domain, name=name), trained.experiment.data.seed
    (data,) = divide(joining, trained.plan.task, 1, validation, test, seed)
    measuring = [part.name for part in trained.plan.method.parts if "validation" in part.needs]
    if measuring and not len(data.validation):
        raise FairsiloError(f"{measuring[0]} measures models on validation data, and {name!r} has none")
    return data


def nobody(name: str) -> SiloData:
    """A silo whose data are not here."""
    empty = Split(torch.empty(0), torch.empty(0))
    return SiloData(name, name, empty, empty, empty)
