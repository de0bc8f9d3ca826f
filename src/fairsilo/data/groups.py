"""Which groups a federation's test samples fall into, by the columns that `evaluate.groups` names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fairsilo.core.disclosure import MINIMUM, told
from fairsilo.core.groups import labels_of
from fairsilo.core.samples import Split
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError, near

LACKS = ("has no column", "have no column")
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
    for column in columns:
        if column not in known:
            raise FairsiloError(f"evaluate.groups names {column!r}, {_missing(column, list(known), federation.name)}")
        having = [silo.test for silo in tested if column in silo.test.attributes]
        _refuse_many(column, {label for split in having for label in labels_of(split, column)})
    return settled({silo.name: told_of(silo.test, columns) for silo in tested}, columns)


def told_of(split: Split, columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What a silo tells of its test samples: of each of these columns that it has, the groups that are large enough."""
    return {name: tuple(sorted(told(labels_of(split, name)))) for name in columns if name in split.attributes}


def settled(
    said: Mapping[str, Mapping[str, Sequence[str]]], columns: Sequence[str], lacks: tuple[str, str] = LACKS
) -> Found:
    """The groups of a federation, from what each silo with test samples tells of the columns that it has.

    Args:
        said: Silo -> column -> values.
        columns: What results are told apart by.
        lacks: What is said of one silo that tells of no such column, and of several.

    Raises:
        FairsiloError: A column has too many groups, or none.
    """
    found, notes = {}, []
    for column in columns:
        open_to_all = sorted({value for values in said.values() for value in values.get(column, ())})
        _refuse_many(column, open_to_all)
        if not open_to_all:
            raise FairsiloError(
                f"evaluate.groups={column} has no effect here: no silo has {MINIMUM} test samples in a group of it, "
                "and results of smaller groups stay at their silo; band its values first, or leave it out"
            )
        found[column] = tuple(open_to_all)
        lacking = [silo for silo, values in said.items() if column not in values]
        if lacking:
            several = len(lacking) > 1
            named = ", ".join(map(repr, lacking))
            notes.append(
                f"silo{'s' if several else ''} {named} {lacks[several]} {column!r}, and "
                f"{'are' if several else 'is'} in none of its groups"
            )
    return Found(found, tuple(notes))


def _refuse_many(column: str, values: Collection[str]) -> None:
    if len(values) > MOST:
        raise FairsiloError(
            f"evaluate.groups names {column!r}, which has {len(values)} values in the test data, and at most "
            f"{MOST} are compared; band it first (such as ages by decade)"
        )


def _missing(column: str, known: list[str], name: str) -> str:
    if not known:
        return f"and the test samples of {name} have no columns of this kind"
    return f"which no silo's test samples have; their columns: {', '.join(sorted(known))}{near(column, known)}"
