"""Pieces of pages as text: blocks put together, and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def joined(blocks: Iterable[str]) -> str:
    """Blocks apart by an empty line, points of one list not."""
    text = ""
    for block in blocks:
        together = block.startswith("- ") and text.rpartition("\n")[2].startswith(("- ", "  - "))
        text += ("" if not text else "\n" if together else "\n\n") + block
    return text + "\n"


def table(head: list[str], rows: Iterable[Iterable[str]]) -> str:
    first, *rest = ("| " + " | ".join(_cell(value) for value in line) + " |" for line in [head, *rows])
    return "\n".join([first, "|---" * len(head) + "|", *rest])


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
