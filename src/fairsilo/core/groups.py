"""Results by group: the samples of a test split that share a value of a column, such as sex, measured apart.

A silo sends tallies, which add up, so that the server measures a group over all silos exactly, whatever the metric. It
tells of no group with fewer than `MINIMUM` samples, nor lets one be found by subtraction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.disclosure import MINIMUM, told
from fairsilo.core.messages import Message, Number
from fairsilo.core.samples import Split
from fairsilo.core.task import Task

UNKNOWN = "unknown"  # the group of samples without a value
ASKED = "groups"  # the number of a request that names columns and values
Columns = Mapping[str, Sequence[str]]  # column -> the values that are told apart


def asking(columns: Columns) -> dict[str, Number]:
    """What a request says so that results come by group."""
    return {ASKED: json.dumps({column: list(values) for column, values in columns.items()})} if columns else {}


def asked_of(message: Message) -> dict[str, tuple[str, ...]]:
    """The columns and values that a request asks for."""
    found = json.loads(str(message.numbers.get(ASKED, "{}")))
    return {column: tuple(values) for column, values in found.items()}


def labels_of(split: Split, column: str) -> list[str]:
    """The group of each sample."""
    values: Sequence[object] = split.attributes[column]
    return [UNKNOWN if value is None else str(value).strip() or UNKNOWN for value in values]


def keys(key: str, column: str) -> tuple[str, str]:
    """Under which names of a message a column's tallies and numbers of samples are."""
    return f"{key}.group_tallies.{column}", f"{key}.group_samples.{column}"


@dataclass
class Grouped:
    """The tallies of a split by group, batch by batch as predictions are made."""

    places: dict[str, Tensor]  # column -> for each sample the row of its group, -1 where it is not told of
    values: dict[str, tuple[str, ...]]
    sums: dict[str, Tensor]  # column -> groups x tally

    @classmethod
    def of(cls, split: Split, columns: Mapping[str, tuple[str, ...]], least: int = MINIMUM) -> Grouped:
        """Nothing counted yet, of the columns that the split has."""
        here = {column: values for column, values in columns.items() if column in split.attributes}
        places = {}
        for column, values in here.items():
            labels = labels_of(split, column)
            open_to_all = told(labels, least)
            row = {value: number for number, value in enumerate(values) if value in open_to_all}
            places[column] = torch.tensor([row.get(label, -1) for label in labels], dtype=torch.long)
        return cls(places, here, {})

    def add(self, task: Task, prediction: Tensor, targets: Tensor, indices: Tensor) -> None:
        """Count a batch: what was predicted of these samples of the split."""
        for column, places in self.places.items():
            here = places[indices.cpu()]
            for row in sorted(set(here.tolist())):
                if row >= 0:
                    chosen = (here == row).to(prediction.device)
                    tally = task.tally(prediction[chosen], targets[chosen]).cpu()
                    self._sums(column, len(tally))[row] += tally

    def _sums(self, column: str, length: int) -> Tensor:
        if column not in self.sums:
            self.sums[column] = torch.zeros(len(self.values[column]), length, dtype=torch.float64)
        return self.sums[column]

    def write(self, message: Message, key: str, length: int) -> None:
        """Put tallies and numbers of samples into a message; the rows of groups that are not told of are zero."""
        for column, places in self.places.items():
            tallies, samples = keys(key, column)
            message.tensors[tallies] = self._sums(column, length)
            message.tensors[samples] = torch.bincount(places[places >= 0], minlength=len(self.values[column]))
