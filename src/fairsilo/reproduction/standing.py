"""How a table stands: what was run, our numbers with their uncertainty, and the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fairsilo.analysis.paired import SAME, SURE, from_pairs, holm
from fairsilo.reproduction.ledger import key, read
from fairsilo.reproduction.measures import MEASURES, Record
from fairsilo.reproduction.tables import Table, tables


class Estimate(NamedTuple):
    """A mean over runs, each held-out domain counting once, and how far the true one may be from it with other
    seeds (95 %); None with one seed, or where seeds do not differ at all."""

    mean: float
    margin: float | None
    runs: int
    p: float | None = None
    repeated: bool = False  # every domain has several seeds

    @property
    def away(self) -> bool:
        """Whether its interval leaves zero out."""
        return self.margin is not None and abs(self.mean) > self.margin

    @classmethod
    def of(cls, values: Mapping[tuple[str, int], float], same: float = SAME) -> Estimate | None:
        """From a value, or a paired difference, for each held-out domain and seed; the ledger rounds to `same`."""
        found = from_pairs(values, same)
        if found is None:
            return None
        one = found.difference
        return cls(one.mean, one.margin, found.pairs, one.p, one.repeated)


@dataclass(frozen=True)
class Found:
    """One measure of one row.

    Attributes:
        ours: Over held-out domains and seeds. Its margin is None: domains differ by more than methods do.
        paper: The paper's number.
        gain: Ours minus the first row's, paired by held-out domain and seed.
        paper_gain: The paper's difference.
        tuned: Ours where every row had the same search for its settings.
        tuned_gain: That minus the first row's, which was searched too.
    """

    ours: Estimate | None
    paper: float | None
    gain: Estimate | None
    paper_gain: float | None
    tuned: Estimate | None = None
    tuned_gain: Estimate | None = None

    @property
    def same_way(self) -> bool | None:
        """Whether the difference to the first row has the paper's sign; None where it may as well be chance."""
        if self.gain is None or self.gain.margin is None or not self.paper_gain:
            return None
        if not self.gain.away:
            return None
        return (self.gain.mean > 0) == (self.paper_gain > 0)


@dataclass(frozen=True)
class Row:
    method: str
    runs: int
    wanted: int
    seeds: tuple[int, ...]
    found: Mapping[str, Found]  # by measure


@dataclass(frozen=True)
class Standing:
    """A table with what the ledger has of it."""

    table: Table
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, table: Table, records: Sequence[Record] | None = None) -> Standing:
        """With these runs, or with those of the ledger."""
        asked = table.comparison
        given = [record for record in (runs_of(table) if records is None else records) if not record.get("settings")]
        by_method, searched = (
            {
                method: _cells([one for one in given if bool(one.get("tuned")) == tuned], method)
                for method in asked.methods
            }
            for tuned in (False, True)
        )
        seen = {held_out for cells in by_method.values() for held_out, _ in cells}
        wanted = len(asked.seeds) * max(len(seen), table.held_out)
        first = asked.methods[0]
        rows = tuple(
            Row(
                method,
                len(cells),
                wanted,
                tuple(sorted({seed for _, seed in cells})),
                {name: _found(table, name, method, first, by_method, searched) for name in table.measures},
            )
            for method, cells in by_method.items()
        )
        return cls(table, rows)

    @property
    def searched(self) -> bool:
        """Whether there are runs with settings that were searched, alike for all rows."""
        return any(found.tuned for row in self.rows for found in row.found.values())

    @cached_property
    def corrected(self) -> dict[tuple[str, str], float]:
        """Method and measure -> p of its difference to the first row, corrected for all of them together (Holm)."""
        p = {place: gain.p for place, gain in self._gains.items()}
        return {
            place: one
            for place, one in zip(p, holm(list(p.values()), self.comparisons), strict=True)
            if one is not None
        }

    def sure(self, method: str, measure: str) -> bool:
        """Whether chance would hardly give a row's difference to the first, corrected for all of them."""
        return self.corrected.get((method, measure), 1.0) < SURE

    @property
    def comparisons(self) -> int:
        """How many differences to the first row are looked at: those of several seeds."""
        return sum(gain.repeated for gain in self._gains.values())

    @property
    def _gains(self) -> dict[tuple[str, str], Estimate]:
        return {
            (row.method, name): found.gain
            for row in self.rows
            for name, found in row.found.items()
            if found.gain is not None
        }

    @property
    def state(self) -> str:
        """run, partly run, run before the ledger, not run."""
        if not any(row.runs for row in self.rows):
            return "run before the ledger" if self.table.earlier else "not run"
        return "run" if all(row.runs >= row.wanted for row in self.rows) else "partly run"


def runs_of(table: Table, others: Sequence[Table] | None = None) -> list[Record]:
    """The ledger's runs of a table: its own, and those of tables whose runs have the same settings.

    Of others only those with seeds that the table asks for, and that tell something of what it measures: older runs
    have no losses, and most no figures.
    """
    found = {key(record): record for record in read(table.name)}
    for other in tables() if others is None else others:
        if other.name != table.name and other.common == table.common:
            asked = (one for one in read(other.name) if one["seed"] in table.comparison.seeds)
            found = {key(record): record for record in asked if any(_measures(table, record))} | found
    return [record for record in found.values() if record["method"] in table.comparison.methods]


def _measures(table: Table, record: Record) -> Iterator[bool]:
    return (MEASURES[name].of(record) is not None for name in table.measures)


Cells = Mapping[tuple[str, int], Record]  # by held-out domain and seed


def _cells(records: Sequence[Record], method: str) -> Cells:
    return {(record["held_out"], record["seed"]): record for record in records if record["method"] == method}


def _values(cells: Cells, measure: str) -> dict[tuple[str, int], float]:
    found = {place: MEASURES[measure].of(record) for place, record in cells.items()}
    return {place: value for place, value in found.items() if value is not None and math.isfinite(value)}


ByMethod = Mapping[str, Cells]


def _found(table: Table, measure: str, method: str, first: str, plain: ByMethod, searched: ByMethod) -> Found:
    paper, of_first = table.paper(method, measure), table.paper(first, measure)
    ours, gain = _beside(measure, method, first, plain)
    tuned, tuned_gain = _beside(measure, method, first, searched)
    return Found(
        ours=ours,
        paper=paper,
        gain=gain,
        paper_gain=None if paper is None or of_first is None or method == first else paper - of_first,
        tuned=tuned,
        tuned_gain=tuned_gain,
    )


def _beside(measure: str, method: str, first: str, by_method: ByMethod) -> tuple[Estimate | None, Estimate | None]:
    """The mean of a row, and its difference to the first one, paired."""
    own, base = (_values(by_method[name], measure) for name in (method, first))
    whole, same = Estimate.of(own), MEASURES[measure].rounding
    paired = {place: own[place] - base[place] for place in own if place in base}
    return whole and whole._replace(margin=None, p=None), Estimate.of(paired, same) if method != first else None
