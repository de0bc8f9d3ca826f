"""A few small rows, run again and held against the ledger: does this checkout still find what it says it found?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairsilo.reproduction.ledger import key, read
from fairsilo.reproduction.measures import MEASURES, Record
from fairsilo.reproduction.tables import Table

ROWS = {"fedheal/table2-glyphs": ("fedavg", "afl", "fedheal")}  # minutes on a CPU, with data that come with fairsilo
TOLERANCE = 2.0  # points: other kinds of processors round differently, and training amplifies it


class Checked(NamedTuple):
    """One number of a run: the ledger's and today's; None where the ledger does not have the run."""

    method: str
    measure: str
    ledger: float | None
    now: float

    @property
    def holds(self) -> bool:
        return self.ledger is not None and abs(self.ledger - self.now) <= TOLERANCE


def checked(table: Table, records: Sequence[Record]) -> list[Checked]:
    """Every number of these runs beside the ledger's."""
    known = {key(record): record for record in read(table.name)}
    found = []
    for record in records:
        before = known.get(key(record))
        for name in table.measures:
            now = MEASURES[name].of(record)
            if now is not None:
                found.append(Checked(record["method"], name, MEASURES[name].of(before) if before else None, now))
    return found
