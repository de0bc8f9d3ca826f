"""The names of methods as their files have them: what they are made of takes seconds to import."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from fairsilo.errors import FairsiloError, nearest
from fairsilo.methods.pieces import pieces_of
from fairsilo.plugins import is_reference, registered

HERE = Path(__file__).parent
GROUP = "fairsilo.methods"


@cache
def own() -> tuple[str, ...]:
    """The names of the catalogue, in its order: the first arguments of its entries, which are plain texts."""
    tree = ast.parse((HERE / "catalogue.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    first = [node.args[0] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "Entry"]
    return tuple(text.value for text in first if isinstance(text, ast.Constant) and isinstance(text.value, str))


def refuse_unknown(text: str) -> None:
    """Refuse the text of a method that names one that does not exist."""
    for piece in pieces_of(text):
        if piece.name not in own() and piece.name not in registered(GROUP) and not is_reference(piece.name):
            raise unknown(piece.name)


def unknown(name: str) -> FairsiloError:
    return FairsiloError(f"unknown method {name!r}{nearest(name, own())}")


def may_have(setting: str) -> bool:
    """Whether some file here has a field of this name; only then it is worth asking which methods have it."""
    field = re.compile(rf"^    {re.escape(setting)}: ", re.MULTILINE)
    return any(field.search(path.read_text(encoding="utf-8")) for path in HERE.rglob("*.py"))
