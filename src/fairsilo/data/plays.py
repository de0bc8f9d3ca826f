"""Roles of plays as silos: LEAF's JSON, and files of role -> text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairsilo.data.dataset import TEST, TRAIN, UNDECIDED, Dataset, Domain
from fairsilo.data.datasets.shakespeare import TEXTS
from fairsilo.data.folder import visible
from fairsilo.data.reading import Stack
from fairsilo.data.text import LENGTH, VOCABULARY, text_domain, windows_domain
from fairsilo.errors import FairsiloError

LEAST = 64  # a role with no more samples is left out, as LEAF does (-k 64)


def texts(folder: Path, stack: Stack) -> Dataset:
    """The first of the known files: role -> all its lines as one text."""
    return own_texts(next(folder / name for name in TEXTS if (folder / name).is_file()))


def has_roles(file: Path) -> bool:
    """Whether a file is a JSON object with texts in it, as an index of images is not."""
    if not file.is_file() or not file.name.lower().endswith((".json", ".json.gz")):
        return False
    try:
        content = read_json(file)
    except FairsiloError:
        return file.suffix == ".gz"  # no index is gzipped
    return isinstance(content, Mapping) and any(isinstance(text, str) for text in content.values())


def own_texts(file: Path) -> Dataset:
    """A JSON file of role -> text; a role is a domain and a silo."""
    content = read_json(file)
    if not isinstance(content, Mapping) or not all(isinstance(text, str) for text in content.values()):
        raise FairsiloError(f"{file} must be a JSON object of role -> text")
    found = {name: text_domain(name, text) for name, text in content.items()}
    return _roles(file, {name: domain for name, domain in found.items() if domain is not None})


def leaf(folder: Path, stack: Stack) -> Dataset:
    """LEAF's `train` and `test` folders, or `all_data` where it is not divided yet."""
    base = folder / "data" if (folder / "data").is_dir() else folder
    places = [("train", TRAIN), ("test", TEST)] if (base / "train").is_dir() else [("all_data", UNDECIDED)]
    shown: dict[str, list[str]] = {}
    following: dict[str, list[str]] = {}
    split: dict[str, list[int]] = {}
    for place, part in places:
        for file in visible(base / place) if (base / place).is_dir() else ():
            if file.suffix != ".json":
                continue
            for name, (windows, nexts) in _users(file).items():
                shown.setdefault(name, []).extend(windows)
                following.setdefault(name, []).extend(nexts)
                split.setdefault(name, []).extend([part] * len(windows))
    return _roles(base, {name: windows_domain(name, shown[name], following[name], split[name]) for name in shown})


def _users(file: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Role -> windows and the characters that follow them, of one of LEAF's files."""
    content = read_json(file)
    data = content.get("user_data") if isinstance(content, Mapping) else None
    if not isinstance(data, Mapping):
        raise FairsiloError(f"{file} has no user_data; LEAF's files have users, num_samples and user_data")
    found = {}
    for name, one in data.items():
        windows, nexts = (one.get(key) if isinstance(one, Mapping) else None for key in ("x", "y"))
        if not isinstance(windows, list) or not isinstance(nexts, list) or len(windows) != len(nexts):
            raise FairsiloError(f"role {name!r} of {file} must have lists x and y of one length")
        for index, (window, following) in enumerate(zip(windows, nexts, strict=True)):
            if not isinstance(window, str) or len(window) != LENGTH or not isinstance(following, str) or not following:
                raise FairsiloError(
                    f"sample {index} of role {name!r} in {file} must be {LENGTH} characters and the one that follows"
                )
        found[name] = (windows, [one[0] for one in nexts])
    return found


def _roles(source: Path, domains: dict[str, Domain]) -> Dataset:
    kept = {name: domain for name, domain in sorted(domains.items()) if len(domain) > LEAST}
    if len(kept) < 2:
        has = f"only the role {next(iter(kept))!r}" if kept else "no role"
        raise FairsiloError(f"{source} has {has} with more than {LEAST} samples, but at least 2 are needed")
    return Dataset(source.name, tuple(VOCABULARY), kept, task="next-character")


def read_json(file: Path) -> Any:
    """A JSON file, plain or gzipped."""
    try:
        content = file.read_bytes()
        return json.loads(gzip.decompress(content) if file.suffix == ".gz" else content)
    except (OSError, EOFError, ValueError, RecursionError) as problem:
        raise FairsiloError(f"{file} is not intact JSON ({problem})") from None
