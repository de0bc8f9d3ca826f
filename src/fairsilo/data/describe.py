"""What data look like, in numbers and sentences: which classes a site lacks, and what there is too little of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairsilo.core.samples import SiloData, Split
from fairsilo.core.task import Task
from fairsilo.data import INDEX_SUFFIXES, all_datasets, has_name, load
from fairsilo.data.dataset import SPLITS, UNDECIDED, Dataset, Domain
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError, nearest
from fairsilo.plugins import is_reference
from fairsilo.tasks.registry import task_of

FEW = 10  # samples in a test set, below which a result says little


def find(source: str) -> Dataset:
    """The data set of a name, a folder of images, an index or a folder of packed files."""
    path = Path(source)
    if has_name(source) or not path.exists():
        if not has_name(source) and not is_reference(source):
            raise FairsiloError(f"{source!r} is no data set and no folder{nearest(source, all_datasets())}")
        return load(name=source)
    if path.is_dir() and any(path.glob("*.npz")):
        return load(packed=source)
    return load(index=source) if path.suffix.lower() in INDEX_SUFFIXES else load(folder=source)


def describe(dataset: Dataset) -> dict[str, Any]:
    """Classes, samples of each domain by split, and what is remarkable about them."""
    task = task_of(dataset.task, len(dataset.classes))
    domains, notes = {}, []
    for domain in dataset.domains.values():
        counts = {split: int((domain.split == number).sum()) for number, split in enumerate(SPLITS)}
        undecided = int((domain.split == UNDECIDED).sum())
        domains[domain.name] = counts | ({"undecided": undecided} if undecided else {})
        notes += _about(domain, task, dataset.classes)
    about = {"name": dataset.name, "about": dataset.about, "classes": list(dataset.classes)}
    return {**about, "domains": domains, "notes": notes}


def _about(domain: Domain, task: Task, classes: tuple[str, ...]) -> list[str]:
    missing = absent(domain.targets, task, classes)
    found = [f"domain {domain.name!r} has no sample of {_listed(missing)}"] if missing else []
    if len(domain) < FEW:
        found.append(f"domain {domain.name!r} has {_samples(len(domain))} in all")
    return found


def notes_of(federation: Federation) -> list[str]:
    """What a user should know of the silos before reading a result: classes that one lacks, splits with too little."""
    task = task_of(federation.task, len(federation.classes))
    found = []
    for silo in federation.silos:
        found += _lacking(silo, "train", "training", task, federation.classes)
        empty = [name for name in ("validation", "test") if not len(silo.split(name))]
        if empty:
            rest = "no model is measured there" if len(empty) == 2 else "no model is measured on it"
            trained = f"has {_samples(len(silo.train), 'training ')} and none for {' and '.join(empty)}"
            found.append(f"silo {silo.name!r} {trained}; {rest}")
    for silo in (*federation.silos, *federation.unseen):
        found += _lacking(silo, "test", "test", task, federation.classes)
        if 0 < len(silo.test) < FEW:
            found.append(f"silo {silo.name!r} is tested on {_samples(len(silo.test))}: a metric there says little")
    return found


def _lacking(silo: SiloData, split: str, word: str, task: Task, classes: tuple[str, ...]) -> list[str]:
    samples: Split = silo.split(split)
    missing = absent(samples.targets, task, classes) if len(samples) else []
    if not missing:
        return []
    rest = "; balanced accuracy there is the mean over the other classes" if split == "test" else ""
    return [f"silo {silo.name!r} has no {word} sample of {_listed(missing)}{rest}"]


def absent(targets: Any, task: Task, classes: tuple[str, ...]) -> list[str]:
    """Names of the classes that no sample shows; none for tasks without classes."""
    counts = task.occurrences(targets)
    return [] if counts is None else [name for name, n in zip(classes, counts.tolist(), strict=True) if not n]


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more classes" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _samples(count: int, kind: str = "") -> str:
    return f"{count} {kind}sample{'' if count == 1 else 's'}"
