"""Compositions of halves over several federations: what the runs of grids say about rows, columns and their cells."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairsilo.analysis.crossings import Array, Shares, contributions, shares
from fairsilo.analysis.paired import Difference, corrected, front, mean_ranks
from fairsilo.errors import FairsiloError
from fairsilo.reproduction.blocks import Blocks, Source, of_table
from fairsilo.reproduction.measures import MEASURES, Record
from fairsilo.reproduction.tables import Table
from fairsilo.runs.comparison import PLAIN, Grid, composed


def crossed(table: Table, records: Sequence[Record]) -> Crossing | None:
    """A table that is a grid of halves without numbers of a paper, as soon as all of it was run once, and not tuned."""
    if table.numbers or not _is_grid(table.comparison.grid) or any(one.get("tuned") for one in records):
        return None
    try:
        return Crossing.of([of_table(table, records)])
    except FairsiloError:
        return None


def _is_grid(grid: Grid | None) -> bool:
    return grid is not None and min(len(grid.rows), len(grid.columns)) > 1


def plain_first(grid: Grid) -> Grid:
    """The same grid with what adds nothing in front, where it has that."""
    rows, columns = (tuple(sorted(some, key=lambda name: name not in PLAIN)) for some in (grid.rows, grid.columns))
    return Grid(rows, columns)


@dataclass(frozen=True)
class Crossing:
    """A grid of compositions, each measured in the same blocks.

    Attributes:
        grid: Rows are one kind of half and columns the other; the first of each is what the others are compared with.
        blocks: In which every composition was run.
    """

    grid: Grid
    blocks: Blocks

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Crossing:
        """Raises FairsiloError where a source has no grid, grids differ, or no block is complete."""
        for source in sources:
            if source.grid is None or not _is_grid(source.grid):
                raise FairsiloError(
                    f"{source.name} has no grid of halves; a file for compare has one as grid: "
                    "{rows: [..], columns: [..]}"
                )
        assert sources[0].grid is not None
        return cls(plain_first(sources[0].grid), Blocks.of(sources))

    @cached_property
    def answers(self) -> dict[str, Array]:
        """Measure -> its values by row, column and block."""
        return {name: self._arranged(values) for name, values in self.blocks.answers.items()}

    def _arranged(self, values: Mapping[str, Sequence[float]]) -> Array:
        return np.array([[values[composed(row, column)] for column in self.grid.columns] for row in self.grid.rows])

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names; the plain one has one too."""
        return tuple("mean" if column in PLAIN else column for column in self.grid.columns)

    def means(self, measure: str) -> dict[str, float]:
        """Composition -> mean over the federations, each of which counts once, as their held-out domains do."""
        return {
            name: statistics.fmean(self.blocks.by_federation(values))
            for name, values in self.blocks.answers[measure].items()
        }

    @property
    def over(self) -> str:
        """What its looks are: what holds beyond one federation, federations tell; in a single one seeds do."""
        return "federations" if len(self.blocks.federations) > 1 else "seeds"

    @cached_property
    def looks(self) -> dict[str, list[float]]:
        """Name -> the share of each block in it. Looks are independent of each other, which domains held out with one
        seed are not, nor seeds in one of several federations."""
        names = self.blocks.federations
        if len(names) > 1:
            return {name: self.blocks.shares_of(name) for name in names}
        domains = {block.held_out for block in self.blocks.whole}
        seeds = Counter(block.seed for block in self.blocks.whole)
        whole = [seed for seed, count in seeds.items() if count == len(domains)]
        if len(whole) < 2:
            return {names[0]: self.blocks.shares_of(names[0])}
        return {
            f"seed {seed}": [1 / len(domains) if block.seed == seed else 0.0 for block in self.blocks.whole]
            for seed in whole
        }

    def _by_look(self, values: Array) -> Array:
        """By row, column and look."""
        shares: Array = np.array(list(self.looks.values()))
        found: Array = np.einsum("rcb,lb->rcl", values, shares)
        return found

    def shares(self, measure: str) -> Shares:
        return shares(self._by_look(self.answers[measure]))

    @cached_property
    def contributions(self) -> dict[str, tuple[dict[str, Difference], ...]]:
        """Measure -> what rows and columns contribute; p is corrected for all of them and all measures together."""
        found = {
            name: contributions(self._by_look(values), self.grid.rows, self.columns)
            for name, values in self.answers.items()
        }
        sure = iter(corrected([one for halves in found.values() for half in halves for one in half.values()]))
        return {name: tuple({half: next(sure) for half in kind} for kind in halves) for name, halves in found.items()}

    @property
    def comparisons(self) -> int:
        """How many contributions are corrected for; none of a single look, which tests nothing."""
        return sum(one.repeated for halves in self.contributions.values() for half in halves for one in half.values())

    def front(self) -> list[str]:
        """The compositions that no other beats in all judged answers at once, by their means."""
        return front([self.means(name) for name in self.blocks.judged])

    def chosen(self, count: int) -> dict[str, float]:
        """The compositions with the best mean rank over blocks and what is choosable, with that rank.

        Only validation samples of silos that train are looked at, so that results on test samples stay clean.
        """
        choosable = self.blocks.choosable
        if not choosable:
            raise FairsiloError("these runs have no results on validation samples, and nothing may be chosen by others")
        scores = [
            {name: values[name][block] for name in self.grid.methods}
            for values in choosable.values()
            for block in range(len(self.blocks.whole))
        ]
        ranks = mean_ranks(scores)
        return {name: ranks[name] for name in sorted(ranks, key=lambda name: ranks[name])[:count]}

    def as_dict(self) -> dict[str, object]:
        found = {
            "rows": self.grid.rows,
            "columns": self.grid.columns,
            "blocks": [str(block) for block in self.blocks.whole],
            "incomplete": {str(block): why for block, why in self.blocks.incomplete.items()},
            "means": {name: self.means(name) for name in self.answers},
            "shares": {name: vars(self.shares(name)) for name in self.answers},
            "contributions": {
                name: [{"name": half, **vars(one)} for kind in halves for half, one in kind.items()]
                for name, halves in self.contributions.items()
            },
            "front": self.front(),
            "judged": {name: MEASURES[name].title for name in self.blocks.judged},
        }
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]
