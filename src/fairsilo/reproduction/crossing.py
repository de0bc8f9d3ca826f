"""Compositions of halves over several federations: what the runs of grids say about rows, columns and their cells."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from fairsilo.analysis.crossings import Array, Contribution, Shares, contributions, corrected, front, mean_ranks, shares
from fairsilo.errors import FairsiloError
from fairsilo.reproduction.ledger import record_of
from fairsilo.reproduction.measures import MEASURES, Record
from fairsilo.reproduction.standing import runs_of
from fairsilo.reproduction.tables import Table, read_table
from fairsilo.runs.comparison import PLAIN, Grid, composed
from fairsilo.runs.folder import RunFolder
from fairsilo.tasks.registry import METRICS

ANSWERS = ("unseen", "personal", "worst", "deviation")  # generalise, personalise, fair: measured on test samples
JUDGED = ANSWERS[:3]  # the front's; a small deviation is no merit by itself, as it is small where all are bad
CHOSEN_BY = ("validation", "validation-personal", "validation-worst")  # what a choice may look at
_OTHERS = {one.name for some in METRICS.values() for one in some if not (one.share and one.higher_is_better)}


@dataclass(frozen=True)
class Source:
    """Runs of a grid: a table of the ledger, or a comparison of the user's."""

    name: str
    grid: Grid
    records: Sequence[Record]


def source_of(name: str) -> Source:
    """A folder of `fairsilo compare`, else a table with what the ledger has of it.

    Raises:
        FairsiloError: There is neither, or it has no grid of at least two rows and two columns.
    """
    if (Path(name) / "comparison.json").exists():
        found = _compared(name)
    else:
        table = read_table(name)
        found = of_table(table, runs_of(table))
    if min(len(found.grid.rows), len(found.grid.columns)) < 2:
        raise FairsiloError(
            f"{name} has no grid of halves; a file for compare has one as grid: {{rows: .., columns: ..}}"
        )
    return found


def of_table(table: Table, records: Iterable[Record]) -> Source:
    """The runs of a table as it stands: without settings of somebody's own, and not tuned."""
    plain = [one for one in records if not one.get("settings") and not one.get("tuned")]
    return Source(table.name, table.comparison.grid or Grid(table.comparison.methods, ()), plain)


def crossed(table: Table, records: Sequence[Record]) -> Crossing | None:
    """A table that is a grid of halves without numbers of a paper, as soon as all of it was run once, and not tuned."""
    grid = table.comparison.grid
    if table.numbers or grid is None or min(len(grid.rows), len(grid.columns)) < 2:
        return None
    if any(one.get("tuned") for one in records):
        return None
    try:
        return Crossing.of([of_table(table, records)])
    except FairsiloError:
        return None


def _compared(name: str) -> Source:
    folder = Path(name)
    content = RunFolder(folder).read_json("comparison.json")
    grid = content.get("grid") or {"rows": content["methods"], "columns": ()}
    records = [record_of(cell, folder / cell["folder"]) for cell in content["cells"]]
    return Source(name, Grid(tuple(grid["rows"]), tuple(grid["columns"])), records)


def plain_first(grid: Grid) -> Grid:
    """The same grid with what adds nothing in front, where it has that."""
    rows, columns = (tuple(sorted(some, key=lambda name: name not in PLAIN)) for some in (grid.rows, grid.columns))
    return Grid(rows, columns)


@dataclass(frozen=True)
class Crossing:
    """A grid of compositions, each measured in the same blocks.

    Attributes:
        grid: Rows are one kind of half and columns the other; the first of each is what the others are compared with.
        blocks: Source, held-out domain and seed; in each of them every composition was run.
        incomplete: Blocks that do not count, with why.
        records: By block and composition.
    """

    grid: Grid
    blocks: tuple[str, ...]
    incomplete: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[tuple[str, str], Record] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Crossing:
        """Raises FairsiloError where grids differ, a metric is no share, or no block is complete."""
        grid, records = plain_first(sources[0].grid), _by_block(sources)
        blocks = list(dict.fromkeys(block for block, _ in records))
        incomplete, measured = {}, {}
        for block in blocks:
            runs = [records[block, name] for name in grid.methods if (block, name) in records]
            measured[block] = {name: _there(name, runs) for name in ANSWERS}
            partly = [name for name, count in measured[block].items() if 0 < count < len(runs)]
            if len(runs) < len(grid.methods):
                incomplete[block] = f"{len(runs)} of {len(grid.methods)} compositions were run"
            elif partly:
                incomplete[block] = f"{measured[block][partly[0]]} of {len(runs)} have {MEASURES[partly[0]].title}"
        answers = {name for block in blocks if block not in incomplete for name, n in measured[block].items() if n}
        for block in blocks:
            lacking = [name for name in ANSWERS if name in answers and not measured[block][name]]
            if block not in incomplete and lacking:
                incomplete[block] = f"no run has {MEASURES[lacking[0]].title}"
        whole = tuple(sorted(block for block in blocks if block not in incomplete))
        if not whole or not answers:
            why = "; ".join(f"{block}: {said}" for block, said in list(incomplete.items())[:3])
            raise FairsiloError(
                f"{sources[0].name} has no held-out domain and seed with all compositions{f' ({why})' if why else ''}"
            )
        return cls(grid, whole, incomplete, records)

    def values(self, measure: str) -> Array | None:
        """By row, column and block; None where a run does not have the measure."""
        found = [
            [
                [MEASURES[measure].of(self.records[block, composed(row, column)]) for block in self.blocks]
                for column in self.grid.columns
            ]
            for row in self.grid.rows
        ]
        values = np.array(found, dtype=np.float64)  # None becomes NaN
        return values if np.isfinite(values).all() else None

    @cached_property
    def answers(self) -> dict[str, Array]:
        """Measure -> its values, of those that the runs have."""
        found = {name: self.values(name) for name in ANSWERS}
        return {name: values for name, values in found.items() if values is not None}

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names; the plain one has one too."""
        return tuple("mean" if column in PLAIN else column for column in self.grid.columns)

    @property
    def judged(self) -> list[str]:
        """The answers that the front is about."""
        return [name for name in self.answers if name in JUDGED]

    def means(self, measure: str) -> dict[str, float]:
        """Composition -> mean over the blocks."""
        return self._named(self.answers[measure].mean(2))

    def _named(self, values: Array) -> dict[str, float]:
        return dict(zip(self.grid.methods, map(float, values.reshape(-1)), strict=True))

    def shares(self, measure: str) -> Shares:
        return shares(self.answers[measure])

    @cached_property
    def contributions(self) -> dict[str, tuple[list[Contribution], list[Contribution]]]:
        """Measure -> what rows and columns contribute; p is corrected for all of them and all measures together."""
        rows, columns = self.grid.rows, self.columns
        by_measure = {name: contributions(values, rows, columns) for name, values in self.answers.items()}
        pending = iter(corrected([one for halves in by_measure.values() for half in halves for one in half]))
        local, server = len(rows) - 1, len(columns) - 1
        return {
            name: ([next(pending) for _ in range(local)], [next(pending) for _ in range(server)]) for name in by_measure
        }

    def front(self) -> list[str]:
        """The compositions that no other beats in all of `judged` at once, by their means."""
        means = [self.means(name) for name in self.judged]
        points = {method: [one[method] for one in means] for method in self.grid.methods}
        return front(points, [MEASURES[name].higher is not False for name in self.judged])

    @cached_property
    def choosable(self) -> dict[str, Array]:
        """What a choice can look at: results on validation samples, as far as all runs have them."""
        found = {name: self.values(name) for name in CHOSEN_BY}
        return {name: values for name, values in found.items() if values is not None}

    def chosen(self, count: int) -> dict[str, float]:
        """The compositions with the best mean rank over blocks and `choosable`, with that rank.

        Only validation samples of silos that train are looked at, so that results on test samples stay clean.
        """
        if not self.choosable:
            raise FairsiloError("these runs have no results on validation samples, and nothing may be chosen by others")
        scores = [
            self._named(values[:, :, block]) for values in self.choosable.values() for block in range(len(self.blocks))
        ]
        ranks = mean_ranks(scores, [True] * len(scores))
        return {name: ranks[name] for name in sorted(ranks, key=lambda name: ranks[name])[:count]}

    def as_dict(self) -> dict[str, object]:
        found = {
            "rows": self.grid.rows,
            "columns": self.grid.columns,
            "blocks": self.blocks,
            "incomplete": self.incomplete,
            "means": {name: self.means(name) for name in self.answers},
            "shares": {name: vars(self.shares(name)) for name in self.answers},
            "contributions": {
                name: [vars(one) for half in halves for one in half] for name, halves in self.contributions.items()
            },
            "front": self.front(),
        }
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def _by_block(sources: Sequence[Source]) -> dict[tuple[str, str], Record]:
    """The runs of all sources by block and composition."""
    grid, records = sources[0].grid, {}
    for source in sources:
        if (set(source.grid.rows), set(source.grid.columns)) != (set(grid.rows), set(grid.columns)):
            raise FairsiloError(f"{sources[0].name} and {source.name} have other rows or columns; give grids alike")
        for one in source.records:
            if one.get("metric") in _OTHERS:
                raise FairsiloError(
                    f"{source.name} is measured by {one['metric']}; halves are compared by shares alone"
                )
            place = f"{source.name}, {one['held_out']} held out, seed {one['seed']}", one["method"]
            if place in records:
                raise FairsiloError(f"{place[1]} is there twice: {place[0]}; give every source once")
            if one["method"] in grid.methods:
                records[place] = one
    return records


def _there(measure: str, runs: Sequence[Record]) -> int:
    """How many of the runs have a measure."""
    found = (MEASURES[measure].of(run) for run in runs)
    return sum(value is not None and math.isfinite(value) for value in found)
