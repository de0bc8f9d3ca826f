"""What the shell offers at a press of Tab: read from files, since importing torch would keep the user waiting."""

from __future__ import annotations

import ast
from pathlib import Path

import typer

import fairsilo
from fairsilo.plugins import registered

PACKAGE = Path(fairsilo.__file__).parent
CATALOGUE = PACKAGE / "methods" / "catalogue.py"
TABLES = PACKAGE / "experiments"
NAMED = ("method", "baseline")  # settings of a run that name a method


def methods() -> list[str]:
    """The names of the catalogue, in its order, and those that installed packages offer.

    They are the first arguments of its entries, which stand in the file as plain texts.
    """
    tree = ast.parse(CATALOGUE.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    first = [node.args[0] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "Entry"]
    own = [text.value for text in first if isinstance(text, ast.Constant) and isinstance(text.value, str)]
    return list(dict.fromkeys([*own, *registered("fairsilo.methods")]))


def tables() -> list[str]:
    """The papers' tables, as `fairsilo reproduce` calls them."""
    return sorted(path.relative_to(TABLES).with_suffix("").as_posix() for path in TABLES.rglob("*.yaml"))


def method_of_run(context: typer.Context, incomplete: str) -> list[str]:
    """The value of `method=` and `baseline=`.

    Zsh and fish hand over `method=fed` as it is, and bash, which breaks words at `=`, as three words, of which it
    replaces the last; after a bare `method=` Typer drops the sign.
    """
    before = [str(word) for word in context.params.get("settings") or ()]
    key, sign, _ = incomplete.partition("=")
    if sign:
        return [f"{key}={name}" for name in methods()] if key in NAMED else []
    if before[-1:] == ["="]:
        before.pop()
    return methods() if before and before[-1] in NAMED else []
