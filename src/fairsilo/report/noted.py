"""Notes in Markdown for a terminal: tables are drawn, and each paragraph and item is one text, without line breaks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.markup import escape
from rich.table import Table

ITEM = "- "


def pieces(notes: str) -> Iterator[list[Table | str]]:
    """What stands together: a table, a paragraph, or the items of a list."""
    plain = notes.replace("**", "").strip()  # what is bold on a page
    for block in re.split(r"\n\s*\n", plain):
        for drawn, some in groupby(block.splitlines(), key=lambda line: line.startswith("|")):
            lines = list(some)
            yield [_table(lines)] if drawn else list(_texts(lines))


def _texts(lines: Sequence[str]) -> Iterator[str]:
    """Lines that belong together, joined; an item begins a new text."""
    found: list[str] = []
    for line in lines:
        if line.startswith(ITEM) and found:
            yield " ".join(found)
            found = []
        found.append(line.strip())
    yield " ".join(found)


def _table(lines: Sequence[str]) -> Table:
    head, _, *body = (_cells(line) for line in lines)
    table = Table()
    for name in head:
        table.add_column(escape(name), overflow="fold")
    for cells in body:
        table.add_row(*map(escape, cells))
    return table


def _cells(line: str) -> list[str]:
    inside = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [re.sub(r"\\([|*])", r"\1", cell).strip() for cell in inside]
