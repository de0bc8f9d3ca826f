"""What a comparison runs: methods or a grid of compositions, seeds, held-out domains. From a file; imports no torch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo.config import Experiment, changed, experiment, given, known_keys, read_yaml
from fairsilo.errors import FairsiloError, UnknownSettingError, nearest

Tuned = Mapping[str, Mapping[str, str]]  # held-out domain -> method -> the text that stands for it there
KEYS = ("methods", "grid", "seeds", "held_out_domains", "tuned", "paper")  # the last is for `fairsilo reproduce`
OWN = "@"  # between a method and settings of its own
IMAGES = ("data.synthetic", "data.synthetic_share", "data.synthetic_bad")  # of the server's, which each run makes
ROWS_MAY = ("train", "task", "model", "data.augment", *IMAGES)  # what rows of a comparison may differ in besides method
PLAIN = ("", "fedavg")  # what adds nothing to a composition


@dataclass(frozen=True)
class Grid:
    """Every row composed with every column; an empty column is the row alone."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """All compositions, row by row."""
        return tuple(composed(row, column) for row in self.rows for column in self.columns)


@dataclass(frozen=True)
class ComparisonFile:
    """What `fairsilo compare` was asked for; the experiment holds what all runs have in common."""

    experiment: Experiment
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    held_out: str | tuple[str, ...] | None = None  # None: the experiment's own
    grid: Grid | None = None
    tuned: Tuned = dataclasses.field(default_factory=dict)


def composed(row: str, column: str) -> str:
    """`fedprox | afl`; FedAvg is the plain round, so `fedavg` with `afl` is `afl`."""
    return " | ".join(name for name in (row, column) if name not in PLAIN) or "fedavg"


def is_setting(text: str) -> bool:
    """`rounds=5` is a setting; `fedprox(mu=0.1)` and `fedavg @ lr=0.1` are methods."""
    return "=" in re.split("[(@]", text, maxsplit=1)[0]


def method_in(text: str) -> str:
    """The method of a row, without the settings of its own."""
    return text.partition(OWN)[0].strip()


def row_of(base: Experiment, text: str) -> Experiment:
    """The settings of a row: `fedprox(mu=0.1) @ lr=0.03 clip=1` has the method and, behind the @, settings of its own.

    Raises:
        FairsiloError: There is no such setting, or all rows of a comparison have it in common.
    """
    name, own, settings = (piece.strip() for piece in text.partition(OWN))
    values = given(settings.split())
    if own and not values:
        raise FairsiloError(f"{text!r} says nothing behind the {OWN}; write {name} @ lr=0.1, or {name} alone")
    for key in values:
        if key not in ROWS_MAY and key.partition(".")[0] not in ROWS_MAY:
            raise FairsiloError(f"{key} is the same for all methods of a comparison; {text!r} cannot have its own")
    return changed(base, {"method": name, **values})


def read_comparison_file(
    path: Path | None,
    overrides: Sequence[str] = (),
    *,
    methods: Sequence[str] = (),
    seeds: str | None = None,
    held_out: str | None = None,
) -> ComparisonFile:
    """What to compare, from a YAML file, `key=value` texts and the command line, which takes precedence."""
    content = read_yaml(path) if path else {}
    return comparison_of(content, overrides, methods=methods, seeds=seeds, held_out=held_out)


def comparison_of(
    content: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    methods: Sequence[str] = (),
    seeds: str | None = None,
    held_out: str | None = None,
) -> ComparisonFile:
    """The same from what such a file holds."""
    _refuse_unknown(content)
    named, grid = (tuple(methods), None) if methods else _methods(content)
    if not named:
        raise FairsiloError("name at least one method, such as fedavg, or give a file that does")
    for override in overrides:
        if override.partition("=")[0].strip() in ("method", "baseline"):
            raise FairsiloError(f"{override!r} has no effect here; name the methods to compare, the first one first")
    settings = {key: value for key, value in content.items() if key not in KEYS}
    base = dataclasses.replace(experiment({**settings, "method": method_in(named[0])}, overrides), baseline=None)
    numbers = _seeds(seeds, content.get("seeds"), base.seed)
    domains = held_out or _held_out(content.get("held_out_domains"))
    return ComparisonFile(base, named, numbers, domains, grid, _tuned(content.get("tuned"), named))


def read_searched(path: Path, methods: Sequence[str]) -> ComparisonFile:
    """What `fairsilo tune` chose for these methods: its folder, or the file in it.

    Raises:
        FairsiloError: It chose nothing, or nothing for one of the methods.
    """
    file = path / "tuned.yaml" if path.is_dir() else path
    found = read_comparison_file(file)
    if not found.tuned:
        raise FairsiloError(
            f"{file} is no file of `fairsilo tune`: it has no settings that were searched; "
            "give the tuned.yaml that it wrote"
        )
    for domain, rows in found.tuned.items():
        for name in methods:
            if name not in rows:
                raise FairsiloError(f"{file} has no settings of {name!r} with {domain} held out; search all rows alike")
    chosen = {domain: {name: rows[name] for name in methods} for domain, rows in found.tuned.items()}
    return dataclasses.replace(found, methods=tuple(methods), tuned=chosen)


def _refuse_unknown(content: Mapping[Any, Any]) -> None:
    groups = {item.name for item in dataclasses.fields(Experiment)}
    known = {*known_keys(), *groups, *KEYS}
    for key in content:
        if key not in known:
            raise UnknownSettingError(str(key), known)


def _methods(content: Mapping[str, Any]) -> tuple[tuple[str, ...], Grid | None]:
    """The methods a file names, one by one or as a grid."""
    if content.get("grid") is None:
        return _texts("methods", content.get("methods") or []), None
    if content.get("methods") is not None:
        raise FairsiloError("methods and grid are both given; a grid stands for its methods, so give one of them")
    grid = _grid(content["grid"])
    return grid.methods, grid


def _tuned(value: Any, methods: Sequence[str]) -> Tuned:
    """By held-out domain, what stands for a method: the method itself, with settings."""
    found = {} if value is None else value
    rows = found.values() if isinstance(found, Mapping) else [None]
    if not all(isinstance(row, Mapping) and all(isinstance(text, str) for text in row.values()) for row in rows):
        raise FairsiloError(f"tuned is {value!r}; by held-out domain it must say {{fedavg: fedavg @ lr=1}}")
    for name in (name for row in found.values() for name in row):
        if name not in methods:
            raise FairsiloError(
                f"tuned has settings of {name!r}, which is not among the methods{nearest(name, methods)}"
            )
    return {str(domain): dict(row) for domain, row in found.items()}


def _grid(value: Any) -> Grid:
    if not isinstance(value, Mapping):
        raise FairsiloError(f"grid is {value!r}; it must be rows and columns, such as {{rows: [..], columns: [..]}}")
    for key in value:
        if key not in ("rows", "columns"):
            raise FairsiloError(f"unknown setting {f'grid.{key}'!r}{nearest(str(key), ('rows', 'columns'))}")
    rows, columns = (_texts(f"grid.{key}", value.get(key), empty=key == "columns") for key in ("rows", "columns"))
    if not rows or not columns:
        raise FairsiloError(f"grid.{'columns' if rows else 'rows'} is empty; it must name at least one method")
    return Grid(rows, columns)


def _texts(name: str, value: Any, empty: bool = False) -> tuple[str, ...]:
    """A list of names, each once; an empty name (or nothing) where that has a meaning."""
    found = ["" if item is None else item for item in value] if isinstance(value, list) else [value]
    right = isinstance(value, list) and all(isinstance(item, str) and (item.strip() or empty) for item in found)
    if not right:
        raise FairsiloError(f"{name} is {value!r}; it must be a list of methods such as [fedavg, fedprox(mu=0.1)]")
    texts = tuple(item.strip() for item in found)
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if twice is not None:
        raise FairsiloError(f"{name} holds {twice!r} twice; a method is named once")
    return texts


def _seeds(given: str | None, listed: Any, usual: int) -> tuple[int, ...]:
    """Seeds from the command line, else from the file, else the experiment's own."""
    found = listed
    if given is not None:
        pieces = [piece.strip() for piece in given.split(",")]
        found = [int(piece) if piece.isdecimal() else piece for piece in pieces]
    elif listed is None:
        return (usual,)
    whole = isinstance(found, list) and bool(found) and all(type(seed) is int and seed >= 0 for seed in found)
    if not whole or len(set(found)) < len(found):
        name, value, example = ("--seeds", given, "0,1,2") if given is not None else ("seeds", listed, "[0, 1, 2]")
        raise FairsiloError(f"{name} is {value!r}; it must be different whole numbers from 0 on, such as {example}")
    return tuple(found)


def _held_out(value: Any) -> str | tuple[str, ...] | None:
    """`all`, `-`, one domain, or a list of domains; numbers are names too."""
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(item, str) or type(item) is int for item in listed):
        raise FairsiloError(f'held_out_domains is {value!r}; it must be all, a list such as [photo, sketch] or "-"')
    names = tuple(str(item) for item in listed)
    return "all" if names == ("all",) else names
