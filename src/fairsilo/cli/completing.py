"""What the shell offers at a press of Tab: read from files, since importing torch would keep the user waiting."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

import fairsilo
from fairsilo import data
from fairsilo.config import Experiment, all_settings, known_keys
from fairsilo.fields import hints_of
from fairsilo.methods import names
from fairsilo.models.described import all_models
from fairsilo.plugins import registered
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.runs.names import EXPORTS
from fairsilo.tasks.metrics import METRICS

PACKAGE = Path(fairsilo.__file__).parent
TABLES = PACKAGE / "experiments"
RUNS = "runs"  # where runs are, unless somebody says where
MOST = 500  # run folders that are offered


# ------------------------------------------------------------------------------------------------- names of one kind
def methods() -> list[str]:
    """The names of the catalogue, in its order, and those that installed packages offer."""
    return list(dict.fromkeys([*names.own(), *registered(names.GROUP)]))


def models() -> list[str]:
    """Networks by name; where a path belongs to it, the shell completes nothing."""
    return [name for name in all_models() if not name.endswith("PATH")]


def tables() -> list[str]:
    """The papers' tables, as `fairsilo reproduce` calls them."""
    return sorted(path.relative_to(TABLES).with_suffix("").as_posix() for path in TABLES.rglob("*.yaml"))


def figures() -> list[str]:
    return [*CAPTIONS, "all", "list"]


def settings() -> list[str]:
    """Groups of settings, and settings, as `fairsilo settings` takes them."""
    dotted = [one["name"] for one in all_settings()]
    return [*dict.fromkeys(name.partition(".")[0] for name in dotted if "." in name), *dotted]


def _words(*known: str) -> Callable[[], list[str]]:
    return lambda: list(known)


# where these are defined takes long to import; a test holds the two together
formats = _words(*EXPORTS)
goals = _words("all", "generalise", "personalise", "fair")
kinds = _words("method", "dataset", "model")
which = _words("best", "last")
samplers = _words("tpe", "random")
scores = _words("mean", "worst")
fits = _words("squeeze", "crop", "pad")


def datasets(context: typer.Context) -> list[str]:
    """A data set or a word for what is done; behind `prepare` a public data set, and behind `check` files."""
    before = [str(word) for word in context.params.get("words") or ()]
    if before == ["prepare"]:
        return data.datasets.names()
    return [] if before else [*data.all_datasets(), "check", "prepare"]


def run_folders(incomplete: str) -> list[str]:
    """The run folders below `runs`; elsewhere the shell completes folders by itself."""
    if not incomplete.startswith(RUNS) and not RUNS.startswith(incomplete):
        return []
    found: list[str] = []
    for place, inside, files in os.walk(RUNS):
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        if {"run.json", "config.yaml"} <= set(files):
            inside.clear()
            found += [Path(place).as_posix()] if " " not in place else []  # shells take it for two words
        if len(found) >= MOST:
            break
    return found


# ------------------------------------------------------------------------------------------------------ key=value
def of_run(context: typer.Context, incomplete: str) -> list[str]:
    """Settings of a run, and what they may be."""
    return _setting(context.params.get("settings") or (), incomplete)


def of_comparison(context: typer.Context, incomplete: str) -> list[str]:
    """Methods, and settings with what they may be; keys of settings where something is typed, as there are many."""
    before = context.params.get("arguments") or ()
    if _key(before, incomplete):
        return _setting(before, incomplete)
    return [*methods(), *(_setting(before, incomplete) if incomplete else ())]


def _setting(given: Iterable[object], incomplete: str) -> list[str]:
    """Keys, or the values of a key.

    A key that is the only one left comes with its default too: bash and zsh put a space behind the only way on, and a
    key is no end.

    Zsh and fish hand over `method=fed` as it is, and bash, which breaks words at `=`, as three words, of which it
    replaces the last; after a bare `method=` Typer drops the sign.
    """
    key = _key(given, incomplete)
    if key:
        head = f"{key}=" if "=" in incomplete else ""
        return [f"{head}{value}" for value in values(key)]
    defaults = {one["name"]: one["default"] for one in all_settings()}
    keys = dict.fromkeys([*defaults, *(known_keys() if incomplete else ())])
    found = [key for key in keys if key.startswith(incomplete)]
    with_default = [f"{key}={_written(defaults[known_keys()[key]])}" for key in found] if len(found) == 1 else []
    return [*(f"{key}=" for key in found), *with_default]


def _written(default: object) -> str:
    """As it is typed."""
    return str(default).lower() if default is None or isinstance(default, bool) else str(default)


def _key(given: Iterable[object], incomplete: str) -> str:
    """The key whose value is being typed; empty where it is a key itself."""
    key, sign, _ = incomplete.partition("=")
    if sign:
        return key
    before = [str(word) for word in given]
    if before[-1:] == ["="]:
        before.pop()
        return before[-1] if before else ""
    return before[-1] if before and (before[-1] in known_keys() or before[-1] == "data") else ""


def values(key: str) -> list[str]:
    """What a setting may be, where that can be listed."""
    dotted = known_keys().get("data.name" if key == "data" else key, "")
    match dotted:
        case "method" | "baseline":
            return methods()
        case "model":
            return ["auto", *models()]
        case "data.name":
            return list(data.all_datasets())
        case "evaluate.metric":
            return ["auto", *dict.fromkeys(one.name for some in METRICS.values() for one in some)]
    return _choices(dotted)


def _choices(dotted: str) -> list[str]:
    group, _, leaf = dotted.rpartition(".")
    owner = hints_of(Experiment)[group] if group else Experiment
    for item in dataclasses.fields(owner):
        if item.name == leaf:
            return ["false", "true"] if isinstance(item.default, bool) else list(item.metadata.get("choices") or ())
    return []
