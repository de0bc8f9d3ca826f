"""What is known of a public data set and what of it is on this machine; and its conversion into mapped files."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairsilo.data import datasets
from fairsilo.data.about import Layout
from fairsilo.data.dataset import SPLITS, UNDECIDED, Dataset
from fairsilo.data.prepared import FOLDER, Progress, prepared_folder, verify, write_prepared
from fairsilo.data.reading import Stack
from fairsilo.errors import FairsiloError


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
    kept = sorted((where / FOLDER).glob(f"{name}-*/index.json")) if where else []
    known |= {"root": str(where) if where else None, "prepared": [str(file.parent) for file in kept], "found": None}
    if found is not None:
        known["found"] = _found(name, *found)
    return known


def _found(name: str, folder: Path, layout: Layout) -> dict[str, Any]:
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
    found = {}
    for name, domain in dataset.domains.items():
        counts = {split: int((domain.split == number).sum()) for number, split in enumerate(SPLITS)}
        counts["undecided"] = int((domain.split == UNDECIDED).sum())
        found[name] = {split: count for split, count in counts.items() if count}
    return found


def prepare(
    name: str, source: str | None, root: str | None, size: int | None, fit: str, progress: Progress | None = None
) -> Path:
    """Convert a data set once into memory-mapped files under the root, and verify them.

    Args:
        name: A public data set.
        source: The folder that has it, in any of its forms, or `hub:OWNER/NAME`; by default where it is found.
        root: Where it is written to (ROOT/prepared/...), and looked for.
        size: Height and width in pixels; by default as the images are, which then must have one size.
        fit: How images that are not square become square.
        progress: Called with domain, samples done and samples in all.

    Raises:
        FairsiloError: Nothing is found, or a sample cannot be read; nothing is then left behind.
    """
    where = datasets.root_of(root)
    if where is None:
        raise FairsiloError(
            f"say where the prepared data are to lie: --root FOLDER, or the environment variable {datasets.VARIABLE}"
        )
    stack = Stack(size, fit, later=True)
    if source is not None and source.startswith("hub:"):
        from fairsilo.data.hub import read_hub

        dataset = replace(read_hub(source.removeprefix("hub:"), stack), name=name)
    else:
        place = Path(source).expanduser() if source is not None else where
        found = datasets.located(name, place)
        if found is None:
            raise FairsiloError(datasets.missing(name, place))
        dataset = datasets.read_from(name, *found, stack)
    folder = prepared_folder(where, name, size, fit)
    write_prepared(dataset, folder, progress)
    verify(folder)
    return folder


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
