"""Runs of the same methods in several places: which places have all of them, and what was measured there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fairsilo.errors import FairsiloError
from fairsilo.reproduction.ledger import record_of
from fairsilo.reproduction.measures import MEASURES, Record
from fairsilo.reproduction.standing import runs_of
from fairsilo.reproduction.tables import Table, read_table
from fairsilo.runs.comparison import Grid
from fairsilo.runs.counting import AGAIN, is_comparison
from fairsilo.runs.folder import RESULTS, RunFolder
from fairsilo.tasks.metrics import kept

ANSWERS = ("unseen", "personal", "worst", "deviation")  # generalise, personalise, fair: measured on test samples
JUDGED = ANSWERS[:3]  # a small deviation is no merit by itself, as it is small where all are bad
CHOSEN_BY = ("validation", "validation-personal", "validation-worst")  # what a choice may look at


@dataclass(frozen=True)
class Source:
    """Runs on one federation: a table of the ledger, or a comparison of the user's.

    Attributes:
        name: Of the table or folder.
        methods: That it is about.
        records: Its runs.
        grid: Rows and columns, where the methods are their compositions.
    """

    name: str
    methods: tuple[str, ...]
    records: Sequence[Record]
    grid: Grid | None = None


def source_of(name: str) -> Source:
    """A folder of `fairsilo compare`, else a table with what the ledger has of it.

    Raises:
        FairsiloError: There is neither.
    """
    folder = Path(name)
    if not (folder / RESULTS).exists() and is_comparison(folder):
        raise FairsiloError(f"{folder} is not finished; {AGAIN}")
    if not (folder / RESULTS).exists():
        try:
            table = read_table(name)
        except FairsiloError as problem:
            raise FairsiloError(f"{name} is no folder of `fairsilo compare`, and {problem}") from problem
        return of_table(table, runs_of(table))
    content = RunFolder(folder).read_json(RESULTS)
    records = [record_of(cell, folder / cell["folder"]) for cell in content["cells"]]
    grid = content.get("grid")
    made = Grid(tuple(grid["rows"]), tuple(grid["columns"])) if grid else None
    return Source(name, tuple(content["methods"]), records, made)


def of_table(table: Table, records: Iterable[Record]) -> Source:
    """The runs of a table as it stands: without settings of somebody's own, and not tuned."""
    plain = [one for one in records if not one.get("settings") and not one.get("tuned")]
    return Source(table.name, table.comparison.methods, plain, table.comparison.grid)


class Block(NamedTuple):
    """What all methods met alike."""

    source: str
    held_out: str
    seed: int

    def __str__(self) -> str:
        return f"{self.source}, {self.held_out} held out, seed {self.seed}"


@dataclass(frozen=True)
class Blocks:
    """The blocks in which every method was run.

    Attributes:
        methods: All of them.
        whole: The blocks, in order.
        incomplete: Blocks that do not count, with why.
        records: By block and method.
    """

    methods: tuple[str, ...]
    whole: tuple[Block, ...]
    incomplete: Mapping[Block, str] = field(default_factory=dict)
    records: Mapping[tuple[Block, str], Record] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Blocks:
        """Raises FairsiloError where methods differ, a metric is no share, or no block is complete."""
        methods, records = sources[0].methods, _by_block(sources)
        blocks = list(dict.fromkeys(block for block, _ in records))
        incomplete: dict[Block, str] = {}
        measured: dict[Block, dict[str, int]] = {}
        for block in blocks:
            runs = [records[block, name] for name in methods if (block, name) in records]
            measured[block] = {name: _there(name, runs) for name in ANSWERS}
            partly = [name for name, count in measured[block].items() if 0 < count < len(runs)]
            if len(runs) < len(methods):
                incomplete[block] = f"{len(runs)} of {len(methods)} methods were run"
            elif partly:
                incomplete[block] = f"{measured[block][partly[0]]} of {len(runs)} have {MEASURES[partly[0]].title}"
        answers = {name for block in blocks if block not in incomplete for name, n in measured[block].items() if n}
        for block in blocks:
            lacking = [name for name in ANSWERS if name in answers and not measured[block][name]]
            if block not in incomplete and lacking:
                incomplete[block] = f"no run has {MEASURES[lacking[0]].title}"
        whole = tuple(sorted(block for block in blocks if block not in incomplete))
        if not whole or not answers:
            why = "; ".join(f"{block}: {said}" for block, said in list(incomplete.items())[:3]) or "nothing was run"
            raise FairsiloError(f"{sources[0].name} has no held-out domain and seed with all methods ({why})")
        return cls(methods, whole, incomplete, records)

    def __str__(self) -> str:
        return "; ".join(map(str, self.whole))

    @property
    def federations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(block.source for block in self.whole))

    def shares_of(self, federation: str) -> list[float]:
        """The share of each block in the federation's mean, in which each held-out domain counts once."""
        seeds = Counter(block.held_out for block in self.whole if block.source == federation)
        return [1 / (len(seeds) * seeds[block.held_out]) if block.source == federation else 0.0 for block in self.whole]

    def by_federation(self, values: Sequence[float]) -> list[float]:
        """The mean of each federation, from values block by block."""
        return [
            math.fsum(share * value for share, value in zip(self.shares_of(name), values, strict=True))
            for name in self.federations
        ]

    def values(self, measure: str) -> dict[str, list[float]] | None:
        """Method -> its values, block by block; None where a run does not have the measure."""
        found: dict[str, list[float]] = {}
        for method in self.methods:
            values = [MEASURES[measure].of(self.records[block, method]) for block in self.whole]
            known = [value for value in values if value is not None and math.isfinite(value)]
            if len(known) < len(values):
                return None
            found[method] = known
        return found

    @cached_property
    def answers(self) -> dict[str, dict[str, list[float]]]:
        """Measure -> its values, of those that the runs have."""
        found = {name: self.values(name) for name in ANSWERS}
        return {name: values for name, values in found.items() if values is not None}

    @property
    def judged(self) -> list[str]:
        """The answers that a front is about."""
        return [name for name in self.answers if name in JUDGED]

    @cached_property
    def choosable(self) -> dict[str, dict[str, list[float]]]:
        """What a choice can look at: results on validation samples, as far as all runs have them."""
        found = {name: self.values(name) for name in CHOSEN_BY}
        return {name: values for name, values in found.items() if values is not None}


def _by_block(sources: Sequence[Source]) -> dict[tuple[Block, str], Record]:
    """The runs of all sources by block and method."""
    methods = sources[0].methods
    records: dict[tuple[Block, str], Record] = {}
    for source in sources:
        if set(source.methods) != set(methods):
            raise FairsiloError(
                f"{sources[0].name} and {source.name} have different methods; give sources with the same ones"
            )
        for one in source.records:
            metric = kept(str(one.get("metric", "")), one.get("share"), one.get("higher_is_better"))
            if not (metric.share and metric.higher_is_better):  # else the most errors would come first
                raise FairsiloError(
                    f"{source.name} is measured by {metric.name}; only shares of which more is better are compared here"
                )
            place = Block(source.name, one["held_out"], one["seed"]), one["method"]
            if place in records:
                raise FairsiloError(f"{place[1]} is there twice: {place[0]}; give every source once")
            if one["method"] in methods:
                records[place] = one
    return records


def _there(measure: str, runs: Sequence[Record]) -> int:
    """How many of the runs have a measure."""
    found = (MEASURES[measure].of(run) for run in runs)
    return sum(value is not None and math.isfinite(value) for value in found)
