"""Tables and sentences that fit a terminal: words stay whole where there is room for them, and nothing is cut off."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise

from rich.box import HEAVY_HEAD, SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

ENDLESS = 10_000  # columns of a terminal in which nothing is ever broken
COMMANDS = r"`[^`]*`|(?:(?<=: )|^ +)(?:fairsilo|pip|python|ssh|dask) (?:(?![,;)] ).)*"  # as they stand in sentences


def fitted(table: Table, console: Console) -> Table:
    """The same table with columns as wide as the console allows.

    Rich makes the widest columns narrower whatever they hold, and cuts words that no longer fit. Here a column keeps
    its longest word; where that is too much for the console, the lines between columns go (unless the table has chosen
    its own); then words are broken, the longest ones first.
    """
    wide = console.options.update(max_width=ENDLESS)
    natural = console.measure(table, options=wide).maximum
    if natural <= console.width or not table.columns:
        return table
    sizes = [_sizes(column, console) for column in table.columns]
    words, lines = [size[0] for size in sizes], [size[1] for size in sizes]
    if table.box is HEAVY_HEAD and console.width - (natural - sum(lines)) < sum(words):
        table.box, table.show_edge, table.padding = SIMPLE_HEAD, False, (0, 0)
    room = console.width - (console.measure(table, options=wide).maximum - sum(lines))
    least = _level([1] * len(words), words, room)
    for column, width in zip(table.columns, _level(least, lines, room), strict=True):
        column.width, column.overflow, column.no_wrap = max(width, 1), "fold", False
    return table


def without_spare(table: Table, console: Console, spare: Sequence[str]) -> Table:
    """The same table without columns that can be spared, the first ones named, where rows take fewer lines then.

    As few go as make for the fewest lines: none where there would be as many without them.
    """

    def lines(gone: Collection[str]) -> int:
        rows = _without(table, gone)
        rows.title = rows.caption = None
        return len(console.render_lines(fitted(rows, console)))

    gone = min((list(spare[:count]) for count in range(len(spare) + 1)), key=lines)
    fewest = lines(gone)
    for name in gone[-2::-1]:  # one that went in vain, since the next did not fit either, comes back
        kept = [one for one in gone if one != name]
        gone = kept if lines(kept) == fewest else gone
    return _without(table, gone)


def _without(table: Table, headers: Collection[object] = ()) -> Table:
    """A copy, whose columns can be changed."""
    made = copy(table)
    made.columns = [replace(column) for column in table.columns if column.header not in headers]
    return made


def wrapped(text: str, width: int, whole: Iterable[str] = ()) -> str:
    """The same text with lines of at most that width, broken between words alone.

    A command stays on one line, so that it can be copied, and so does what is `whole`, such as a path with spaces. A
    terminal breaks by itself what is longer than a line, and what is copied from there has no break.
    """
    kept = re.compile("|".join([*map(re.escape, sorted(whole, key=len, reverse=True)), COMMANDS]))
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line, width, kept))


def _wrapped(line: str, width: int, kept: re.Pattern[str]) -> Iterator[str]:
    indent = line[: len(line) - len(line.lstrip(" "))]
    first, *others = _units(line, len(indent), kept)
    made = indent + first
    for one in others:
        longer = f"{made} {one}"
        if cell_len(longer) > width:
            yield made.rstrip()
            longer = indent + one
        made = longer
    yield made


def _units(line: str, begin: int, kept: re.Pattern[str]) -> list[str]:
    """What stays on one line: words, and what is kept whole with the signs before and behind it."""
    inside = {place for found in kept.finditer(line) for place in range(*found.span())}
    gaps = [place for place in range(begin, len(line)) if line[place] == " " and place not in inside]
    return [line[after + 1 : before] for after, before in pairwise([begin - 1, *gaps, len(line)])]


def _sizes(column: Column, console: Console) -> tuple[int, int]:
    """The longest word and the longest line of a column."""
    wide = console.options.update(max_width=ENDLESS)
    found = [console.measure(cell, options=wide) for cell in (column.header, *column.cells)]
    line = max(one.maximum for one in found)
    return line if column.no_wrap else max(one.minimum for one in found), line


def _level(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Widths between the least and the most of each: all of the same width, the largest for which there is room."""

    def at(level: int) -> list[int]:
        return [min(high, max(low, level)) for low, high in zip(least, most, strict=True)]

    return at(next((level for level in range(room, 0, -1) if sum(at(level)) <= room), 1))
