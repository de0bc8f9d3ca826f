"""A site's samples, read as the run wants them and divided as a simulation would divide them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

from fairsilo.core.samples import SiloData
from fairsilo.data import load
from fairsilo.data.dataset import Dataset, Domain, in_order, undecided
from fairsilo.data.federation import divide
from fairsilo.data.newcomer import read_newcomer, relabelled
from fairsilo.deploy.brief import Brief
from fairsilo.deploy.settings import EVALUATES, SiloSettings
from fairsilo.errors import FairsiloError, nearest
from fairsilo.tasks.registry import task_of


def read_silo(silo: SiloSettings, brief: Brief, columns: Collection[str] = ()) -> tuple[SiloData, str]:
    """The silo's samples in their splits, and the task they are for.

    Splits are drawn by the brief's seed and the domain's name: the same samples at the same domain are divided alike
    here and in a simulation. Of what else is known of samples, only the columns are kept that the site tells of: what
    is not there cannot be asked for.
    """
    held, task_name = _held(silo, brief)
    kept = {name: getattr(held, name).with_columns(columns) for name in ("train", "validation", "test")}
    return dataclasses.replace(held, **kept), task_name


def classes_at(silo: SiloSettings) -> tuple[str, ...]:
    """The classes that a silo's own data have, for looking at them before any run says which there are."""
    if silo.data or silo.table:
        return load(name=silo.data, root=silo.root).classes if silo.data else load(index=silo.table, least=1).classes
    if silo.folder and Path(silo.folder).is_dir():
        inside = sorted(path.name for path in Path(silo.folder).iterdir() if path.is_dir())
        if inside and not {"images", "masks"} <= set(inside):
            return tuple(inside)
    raise FairsiloError(
        f"which classes silo {silo.name!r} has, its data do not say; give a run's file, or data.classes="
    )


def _held(silo: SiloSettings, brief: Brief) -> tuple[SiloData, str]:
    domain, task_name = _domain(silo, brief)
    domain = dataclasses.replace(domain, name=silo.domain, silo=None)
    task = task_of(task_name, len(brief.classes))
    fault = task.fault(domain.targets)
    if fault:
        raise FairsiloError(f"silo {silo.name!r} {fault}")
    if silo.role == EVALUATES:
        everything = domain.samples
        nothing = everything.subset([])
        return SiloData(silo.name, silo.domain, nothing, nothing, everything), task_name
    test = brief.test if silo.test is None else silo.test
    validation = brief.validation if silo.validation is None else silo.validation
    if brief.split != "auto":
        domain = in_order(domain, test) if brief.split == "order" else undecided(domain)
    (held,) = divide(domain, task, 1, validation, test, brief.seed, silo.share)
    return dataclasses.replace(held, name=silo.name), task_name


def _domain(silo: SiloSettings, brief: Brief) -> tuple[Domain, str]:
    if silo.data or silo.table:
        found = (
            load(name=silo.data, size=brief.size, seed=brief.seed, fit=brief.fit, root=silo.root)
            if silo.data
            else load(index=silo.table, size=brief.size, fit=brief.fit, least=1)
        )
        return _chosen(relabelled(found, brief.classes), silo), found.task
    source = str(silo.folder or silo.packed)
    domains = read_newcomer(source, brief.classes, brief.size, brief.fit)
    masks = next(iter(domains.values())).targets.ndim == 3
    found = Dataset(Path(source).name, brief.classes, domains, task="segment" if masks else "classify")
    return _chosen(found, silo), found.task


def _chosen(found: Dataset, silo: SiloSettings) -> Domain:
    """The domain that the silo has; where there is a single one, that one, whatever its name."""
    if silo.domain in found.domains:
        return found.domains[silo.domain]
    if len(found.domains) > 1:
        raise FairsiloError(
            f"{found.name} has several domains and none is called {silo.domain!r}{nearest(silo.domain, found.domains)}"
        )
    return next(iter(found.domains.values()))
