"""Compositions of halves over several federations: what the runs of grids say about rows, columns and their cells."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from fairsilo.analysis.crossings import Array, Contribution, Shares, contributions, front, mean_ranks, shares
from fairsilo.errors import FairsiloError
from fairsilo.reproduction.ledger import record_of
from fairsilo.reproduction.measures import MEASURES, Record
from fairsilo.reproduction.standing import runs_of
from fairsilo.reproduction.tables import Table, read_table
from fairsilo.runs.comparison import Grid, composed
from fairsilo.runs.folder import RunFolder

ANSWERS = ("unseen", "personal", "worst", "deviation")  # generalise, personalise, fair: measured on test samples
JUDGED = ANSWERS[:3]  # the front's; a small deviation is no merit by itself, as it is small where all are bad
CHOSEN_BY = ("validation", "validation-personal", "validation-worst")  # what a choice may look at


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
        found = _compared(Path(name))
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


def crossed(table: Table, records: Iterable[Record]) -> Crossing | None:
    """A table that is a grid of halves without numbers of a paper, as soon as all of it was run once."""
    grid = table.comparison.grid
    if table.numbers or grid is None or min(len(grid.rows), len(grid.columns)) < 2:
        return None
    try:
        return Crossing.of([of_table(table, records)])
    except FairsiloError:
        return None


def _compared(folder: Path) -> Source:
    content = RunFolder(folder).read_json("comparison.json")
    grid = content.get("grid") or {"rows": content["methods"], "columns": ()}
    records = [record_of(cell, folder / cell["folder"]) for cell in content["cells"]]
    return Source(folder.name, Grid(tuple(grid["rows"]), tuple(grid["columns"])), records)


@dataclass(frozen=True)
class Crossing:
    """A grid of compositions, each measured in the same blocks.

    Attributes:
        grid: Local halves are its rows, server halves its columns.
        blocks: Source, held-out domain and seed; in each of them every composition was run.
        incomplete: Blocks in which compositions are missing, which do not count, with how many are there.
        records: By block and composition.
    """

    grid: Grid
    blocks: tuple[str, ...]
    incomplete: Mapping[str, int] = field(default_factory=dict)
    records: Mapping[tuple[str, str], Record] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Crossing:
        """Raises FairsiloError where the grids are not the same, or no block is complete."""
        grid, records = sources[0].grid, {}
        for source in sources:
            if source.grid != grid:
                raise FairsiloError(f"{sources[0].name} and {source.name} have other rows or columns; give grids alike")
            for one in source.records:
                records[f"{source.name}, {one['held_out']} held out, seed {one['seed']}", one["method"]] = one
        there: dict[str, int] = {}
        for block, _ in records:
            there[block] = there.get(block, 0) + 1
        whole = tuple(sorted(block for block, count in there.items() if count == len(grid.methods)))
        if not whole:
            most = f"; of {len(grid.methods)} at most {max(there.values())} are there" if there else ""
            raise FairsiloError(f"{sources[0].name} has no held-out domain and seed with all compositions run{most}")
        return cls(grid, whole, {block: count for block, count in there.items() if block not in whole}, records)

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
        return None if np.isnan(values).any() else values

    @cached_property
    def answers(self) -> dict[str, Array]:
        """Measure -> its values, of those that the runs have."""
        found = {name: self.values(name) for name in ANSWERS}
        return {name: values for name, values in found.items() if values is not None}

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names; the plain one has one too."""
        return tuple(column or "mean" for column in self.grid.columns)

    def means(self, measure: str) -> dict[str, float]:
        """Composition -> mean over the blocks."""
        return self._named(self.answers[measure].mean(2))

    def _named(self, values: Array) -> dict[str, float]:
        return dict(zip(self.grid.methods, map(float, values.reshape(-1)), strict=True))

    def shares(self, measure: str) -> Shares:
        return shares(self.answers[measure])

    def contributions(self, measure: str) -> tuple[list[Contribution], ...]:
        return contributions(self.answers[measure], self.grid.rows, self.columns)

    def front(self) -> list[str]:
        """The compositions that no other beats in all of `JUDGED` at once, by their means."""
        judged = [name for name in self.answers if name in JUDGED]
        means = [self.means(name) for name in judged]
        points = {method: [one[method] for one in means] for method in self.grid.methods}
        return front(points, [MEASURES[name].higher for name in judged])

    @property
    def can_choose(self) -> bool:
        """Whether all runs have results on validation samples."""
        return self.values(CHOSEN_BY[0]) is not None

    def chosen(self, count: int) -> dict[str, float]:
        """The compositions with the best mean rank over blocks and `CHOSEN_BY`, with that rank.

        Only validation samples of silos that train are looked at, so that results on test samples stay clean.
        """
        if not self.can_choose:
            raise FairsiloError("these runs have no results on validation samples, and nothing may be chosen by others")
        scores, higher = [], []
        for name in CHOSEN_BY:
            values = self.values(name)
            if values is not None:
                scores += [self._named(values[:, :, block]) for block in range(len(self.blocks))]
                higher += [MEASURES[name].higher] * len(self.blocks)
        ranks = mean_ranks(scores, higher)
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
                name: [vars(one) for half in self.contributions(name) for one in half] for name in self.answers
            },
            "front": self.front(),
        }
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]
