"""What is known of a public data set and what of it is on this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairsilo.data import datasets
from fairsilo.data.about import PREPARED, Layout
from fairsilo.errors import FairsiloError

if TYPE_CHECKING:
    from fairsilo.data.dataset import Dataset


def report(name: str, root: str | None = None) -> dict[str, Any]:
    """What is known of a data set, where it is looked for, and what is found there."""
    facts, where = datasets.about(name), datasets.root_of(root)
    known: dict[str, Any] = {
        "name": name,
        "title": facts.title,
        "about": facts.shows,
        "task": facts.task,
        "classes": list(facts.classes),
        "expected": dict(facts.domains),
        "licence": facts.licence,
        "size": facts.size,
        "citation": facts.citation,
        "obtain": facts.obtain,
        "protocols": list(facts.protocols),
        "forms": [layout.words for layout in datasets.layouts(name)],
        "looked_for": [str(place) for place in datasets.candidates(name, where)] if where else [],
    }
    found = datasets.located(name, where) if where else None
    kept = sorted((where / PREPARED).glob(f"{name}-*/index.json")) if where else []
    known |= {"root": str(where) if where else None, "prepared": [str(file.parent) for file in kept], "found": None}
    if found is not None:
        known["found"] = _found(name, *found)
    return known


def _found(name: str, folder: Path, layout: Layout) -> dict[str, Any]:
    from fairsilo.data.reading import Stack  # torch is imported where there are data

    facts = datasets.about(name)
    said: dict[str, Any] = {"folder": str(folder), "form": layout.words, "domains": {}, "remarks": []}
    try:
        dataset = datasets.read_from(name, folder, layout, Stack(32, later=True))
    except FairsiloError as problem:
        return said | {"remarks": [f"it cannot be read: {problem}"]}
    said["domains"] = counts_of(dataset)
    for domain, count in facts.domains.items():
        if facts.task == "next-character":
            continue
        has = len(dataset.domains[domain]) if domain in dataset.domains else 0
        if not has:
            said["remarks"].append(f"domain {domain!r} is not there")
        elif count and has != count:
            said["remarks"].append(f"domain {domain!r} has {has} samples, and the release {count}")
    said["remarks"] += [f"{domain}: {word}" for domain, word in facts.stand_ins.items() if domain in dataset.domains]
    known = {file: digest for file, digest in facts.sha256.items() if (folder / file).is_file()}
    other = [file for file, digest in known.items() if _digest(folder / file) != digest]
    said["remarks"] += [f"{file} is not the file that was checked (sha256 differs)" for file in other]
    if known and not other:
        said["remarks"].append(f"{len(known)} files are those that were checked (sha256)")
    return said


def counts_of(dataset: Dataset) -> dict[str, dict[str, int]]:
    """Domain -> samples by split; those that the data do not divide are `undecided`."""
    from fairsilo.data.dataset import SPLITS, UNDECIDED

    found = {}
    for name, domain in dataset.domains.items():
        counts = {split: int((domain.split == number).sum()) for number, split in enumerate(SPLITS)}
        counts["undecided"] = int((domain.split == UNDECIDED).sum())
        found[name] = {split: count for split, count in counts.items() if count}
    return found


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
