"""Results by group across machines: which groups there are is settled as a run begins, by what sites tell of theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from fairsilo.core.roster import Roster
from fairsilo.core.samples import Split
from fairsilo.data.groups import MOST, settled
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.grouping import Groups
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import RunFolder

FILE = "groups.json"  # of a run folder
TARGETS = ("int64", "int32", "uint8", "bool", "float32", "float64")
LARGEST = 10**8  # numbers of one target


@dataclass(frozen=True)
class Told:
    """What a site tells of a silo for results by group.

    Attributes:
        values: Of each column that the site allows and has, the groups of its test samples that are large enough.
        target: The shape of a target.
        dtype: And its type.

    Raises:
        ValueError: It tells of more groups than are compared, or of targets that no task has.
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target: tuple[int, ...] = ()
    dtype: str = "int64"

    def __post_init__(self) -> None:
        many = any(len(some) > MOST for some in self.values.values())
        if many or self.dtype not in TARGETS or math.prod(self.target) > LARGEST:
            raise ValueError


@dataclass(frozen=True)
class Settled:
    """The groups of a run, as it began with them: a silo that comes later, or with other values, adds none."""

    columns: Mapping[str, Sequence[str]]
    notes: Sequence[str]
    target: Sequence[int]
    dtype: str

    def asked(self, plan: Blueprint, roster: Roster) -> Groups:
        """What silos are asked for; the server has no sample of theirs, and counts an empty one of their form."""
        inputs = torch.zeros(1, *roster.shape, dtype=getattr(torch, roster.dtype))
        return Groups.of(
            self.columns, plan, Split(inputs, torch.zeros(1, *self.target, dtype=getattr(torch, self.dtype)))
        )


def settle(folder: Path, columns: Sequence[str], said: Mapping[str, Told]) -> Settled:
    """The groups that the run has, or begins with.

    Args:
        folder: The run folder, which remembers them.
        columns: What `evaluate.groups` names.
        said: Silo -> what its site tells, of those with test samples.

    Raises:
        FairsiloError: No site tells of a column, or its values are not to be compared.
    """
    if not columns:
        return Settled({}, (), (), "int64")
    run = RunFolder(folder)
    if (folder / FILE).exists():
        return Settled(**run.read_json(FILE))
    for column in columns:
        if not any(column in one.values for one in said.values()):
            raise FairsiloError(
                f"evaluate.groups names {column!r}, of which no site tells; a site whose data have this column tells "
                f"of it where its site.yaml says groups: [{column}]"
            )
    lacks = ("tells of no column", "tell of no column")  # whether they have it is nobody's business
    found = settled({silo: one.values for silo, one in said.items()}, columns, lacks)
    first = next(iter(said.values()), Told())
    made = Settled(found.columns, found.notes, first.target, first.dtype)
    run.write_json(FILE, asdict(made))
    return made
