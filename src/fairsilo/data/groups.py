"""Which groups a federation's test samples fall into, by the columns that `evaluate.groups` names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairsilo.core.groups import MINIMUM, labels_of, told
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError, near

MOST = 50  # values of a column; a table of more says nothing about fairness


@dataclass(frozen=True)
class Found:
    """Columns with the values that some silo tells of, and what a reader should know of them."""

    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def groups_of(federation: Federation, columns: Sequence[str]) -> Found:
    """The groups by which results are measured.

    Raises:
        FairsiloError: No silo has such a column, it has too many values, or none of its groups is large enough at any
            silo.
    """
    tested = [silo for silo in (*federation.silos, *federation.unseen) if len(silo.test)]
    known = dict.fromkeys(column for silo in tested for column in silo.test.attributes)
    found, notes = {}, []
    for column in columns:
        if column not in known:
            raise FairsiloError(f"evaluate.groups names {column!r}, {_missing(column, list(known), federation.name)}")
        having = [silo for silo in tested if column in silo.test.attributes]
        labels = [labels_of(silo.test, column) for silo in having]
        values = {label for some in labels for label in some}
        if len(values) > MOST:
            raise FairsiloError(
                f"evaluate.groups names {column!r}, which has {len(values)} values in the test data, and at most "
                f"{MOST} are compared; band it first (such as ages by decade)"
            )
        open_to_all = sorted(set().union(*map(told, labels)))
        if not open_to_all:
            raise FairsiloError(
                f"evaluate.groups={column} has no effect here: no silo has {MINIMUM} test samples in a group of it, "
                "and results of smaller groups stay at their silo; band its values first, or leave it out"
            )
        found[column] = tuple(open_to_all)
        lacking = [silo.name for silo in tested if silo not in having]
        if lacking:
            several = len(lacking) > 1
            named = ", ".join(map(repr, lacking))
            notes.append(
                f"silo{'s' if several else ''} {named} {'have' if several else 'has'} no column {column!r}, and "
                f"{'are' if several else 'is'} in none of its groups"
            )
    return Found(found, tuple(notes))


def _missing(column: str, known: list[str], name: str) -> str:
    if not known:
        return f"and the test samples of {name} have no columns of this kind"
    return f"which no silo's test samples have; their columns: {', '.join(sorted(known))}{near(column, known)}"
