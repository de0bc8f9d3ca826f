"""A data set converted once: images of one size in memory-mapped files, read as far as a batch needs them.

ROOT/prepared/NAME-SIZE-FIT/ has `index.json` (what is in it, with digests), and per domain the bare numbers of its
inputs (`NUMBER.inputs`) and a safetensors file of targets, splits and groups. A folder appears when it is verified.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from fairsilo.core.samples import InFile, Windows
from fairsilo.data.about import PREPARED
from fairsilo.data.dataset import Dataset, Domain
from fairsilo.errors import FairsiloError, told_of

FORMAT = 1
BLOCK = 256

Progress = Callable[[str, int, int], None]  # domain, samples done, samples in all


def prepared_folder(root: Path, name: str, size: int | None, fit: str) -> Path:
    return root / PREPARED / f"{name}-{size or 'original'}-{fit}"


def find_prepared(root: Path, name: str, size: int | None, fit: str) -> Path | None:
    """The prepared copy of this size, where there is one."""
    folder = prepared_folder(root, name, size, fit)
    return folder if (folder / "index.json").is_file() else None


def write_prepared(dataset: Dataset, folder: Path, progress: Progress | None = None) -> None:
    """Convert a data set, verify what was written, and put it in place.

    Raises:
        FairsiloError: A sample cannot be read, samples differ in shape, or what was written reads back differently.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with told_of(folder, partial):
            partial.mkdir(parents=True)
            domains = {}
            for number, (name, domain) in enumerate(dataset.domains.items()):
                domains[name] = _write_domain(domain, partial, number, progress)
            facts = {key: getattr(dataset, key) for key in ("name", "about", "task", "source")}
            index = {"format": FORMAT, **facts, "classes": list(dataset.classes), "domains": domains}
            (partial / "index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
            verify(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_domain(domain: Domain, folder: Path, number: int, progress: Progress | None) -> dict[str, Any]:
    samples = domain.samples
    if isinstance(samples.storage, Windows):
        raise FairsiloError(
            f"domain {domain.name!r} is text, which is read quickly as it is; there is nothing to prepare"
        )
    digest, done = hashlib.sha256(), 0
    with (folder / f"{number}.inputs").open("wb") as stream:
        for inputs, _ in samples.blocks(BLOCK):
            block = inputs.contiguous().numpy().tobytes()
            stream.write(block)
            digest.update(block)
            done += len(inputs)
            if progress is not None:
                progress(domain.name, done, len(domain))
    tensors = {"targets": domain.targets, "split": domain.split}
    if domain.group is not None:
        tensors["group"] = domain.group
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    (folder / f"{number}.safetensors").write_bytes(content)
    return {
        "file": str(number),
        "shape": [len(domain), *samples.shape],
        "dtype": str(samples.dtype).removeprefix("torch."),
        "inputs": digest.hexdigest(),
        "targets": _digest(folder / f"{number}.safetensors"),
        "silo": domain.silo,
        "attributes": dict(domain.attributes),
        "names": domain.names,
    }


def read_prepared(folder: Path) -> Dataset:
    """The data set with its inputs mapped from files; sizes are checked, contents are not (`verify` does)."""
    index = _index(folder)
    domains = {name: _read_domain(folder, name, facts) for name, facts in index["domains"].items()}
    source = {**index["source"], "prepared": str(folder)}
    return Dataset(index["name"], tuple(index["classes"]), domains, index["about"], index["task"], source)


def verify(folder: Path) -> None:
    """Compare every file of a prepared data set with its digest.

    Raises:
        FairsiloError: One of them is not what was written.
    """
    for facts in _index(folder)["domains"].values():
        for suffix, key in (("inputs", "inputs"), ("safetensors", "targets")):
            file = folder / f"{facts['file']}.{suffix}"
            if not file.is_file() or _digest(file) != facts[key]:
                raise FairsiloError(f"{file} is not what was prepared; run `fairsilo datasets prepare` again")


def _read_domain(folder: Path, name: str, facts: dict[str, Any]) -> Domain:
    file, shape, dtype = folder / f"{facts['file']}.inputs", tuple(facts["shape"]), getattr(torch, facts["dtype"])
    size = torch.Size(shape).numel() * dtype.itemsize
    if not file.is_file() or file.stat().st_size != size:
        raise FairsiloError(f"{file} does not have {size} bytes; run `fairsilo datasets prepare` again")
    try:
        tensors = load_file(folder / f"{facts['file']}.safetensors")
    except (OSError, SafetensorError) as problem:
        raise FairsiloError(f"{folder} lacks targets of {name!r} ({problem}); prepare it again") from None
    return Domain(
        name,
        InFile(str(file), shape, dtype, read_only=True),
        tensors["targets"],
        tensors["split"],
        tensors.get("group"),
        None if facts["silo"] is None else tuple(facts["silo"]),
        {column: tuple(values) for column, values in facts["attributes"].items()},
        tuple(facts["names"]) if facts.get("names") else None,
    )


def _index(folder: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise FairsiloError(f"{folder} has no intact index.json ({problem}); prepare it again") from None
    if index.get("format") != FORMAT:
        raise FairsiloError(f"{folder} was prepared by another version of fairsilo; prepare it again")
    return index


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
