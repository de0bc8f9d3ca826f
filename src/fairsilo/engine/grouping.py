"""The server's side of results by group: silos' tallies are added up, and measured by the task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairsilo.core.groups import Columns, Grouped, keys, labels_of
from fairsilo.core.messages import Message
from fairsilo.core.roster import Roster
from fairsilo.core.samples import Split
from fairsilo.core.server import Server
from fairsilo.core.silo import inputs_for
from fairsilo.core.task import Task
from fairsilo.engine.blueprint import Blueprint

OWN = "groups"  # the server's memory of each silo's latest own model, by group
Found = Mapping[str, Any]  # what a silo sent of a model: samples of its test split, and by column tallies and counts
_ASKED = (("global", False), ("personal", False), ("global", True), ("adapted", True))


@dataclass(frozen=True)
class Groups:
    """What silos are asked for: columns with the values told apart, and how many numbers a tally of the task has."""

    columns: Columns = field(default_factory=dict)
    tally: int = 0

    @classmethod
    def of(cls, columns: Columns, plan: Blueprint, sample: Split) -> Groups:
        """The size of a tally is found by counting one sample."""
        if not columns:
            return cls()
        model = plan.flat()
        model.eval()
        inputs, targets = sample.take([0])
        with torch.no_grad():
            prediction = model.forward(inputs_for(model, inputs)).prediction
        return cls(columns, len(plan.task.tally(prediction, targets.to(plan.device))))


class Pool:
    """Tallies by silo and model, and the rows that they come to.

    As with results by silo, a silo that sat out a round counts with its latest own model.
    """

    def __init__(self, server: Server, roster: Roster, columns: Columns) -> None:
        self.server, self.roster, self.columns = server, roster, columns
        self.found: dict[str, dict[str, Found]] = {}

    def take(self, silo: str, model: str, answer: Message) -> None:
        """Note what a silo found of a model."""
        key = f"{model}.test"
        if not self.columns or f"{key}.samples" not in answer.numbers:
            return
        named = {column: keys(key, column) for column in self.columns}
        tables = {
            column: {"tallies": answer.tensors[tallies], "samples": answer.tensors[samples]}
            for column, (tallies, samples) in named.items()
            if tallies in answer.tensors
        }
        found = {"samples": answer.numbers[f"{key}.samples"], "columns": tables}
        if model == "personal":
            self.server.memory[OWN] = {**self.server.memory.get(OWN, {}), silo: found}
        else:
            self.found.setdefault(model, {})[silo] = found

    def rows(self) -> list[dict[str, Any]]:
        """One row for each column and model, over the silos that trained and over the unseen ones; begins anew."""
        everything = {**self.found, "personal": self.server.memory.get(OWN, {})}
        self.found = {}
        rows = []
        for column, values in self.columns.items():
            for model, unseen in _ASKED:
                names = self.roster.unseen_names if unseen else self.roster.names
                sent = everything.get(model, {})
                here = {name: sent[name] for name in names if name in sent and column in sent[name]["columns"]}
                if here:
                    row = {"round": self.server.round, "column": column, "model": model, "unseen": unseen}
                    rows.append(row | self._pooled(column, values, here))
        return rows

    def _pooled(self, column: str, values: Iterable[str], here: Mapping[str, Found]) -> dict[str, Any]:
        tables = {name: found["columns"][column] for name, found in here.items()}
        counts = {name: table["samples"].tolist() for name, table in tables.items()}
        total = torch.stack([table["tallies"].cpu() for table in tables.values()]).sum(0)
        groups = {}
        for number, value in enumerate(values):
            own = {name: found[number] for name, found in counts.items()}
            samples = self._once(own)
            if samples:
                told = {"samples": samples, "silos": sum(count > 0 for count in own.values())}
                result = measured(self.server.task, total[number])
                if result.get("error"):  # as sure as the samples are many, and no surer for being counted by two silos
                    result["error"] *= math.sqrt(sum(own.values()) / samples)
                groups[value] = {**told, **result}
        left = {name: max(int(found["samples"]) - sum(counts[name]), 0) for name, found in here.items()}
        return {"left_out": self._once(left), "groups": groups}

    def _once(self, counts: Mapping[str, int]) -> int:
        """How many samples these are; silos of one domain count as tested on the same ones, as everywhere."""
        most: dict[str, int] = {}
        for name, count in counts.items():
            domain = self.roster[name].domain
            most[domain] = max(most.get(domain, 0), count)
        return sum(most.values())


def measured(task: Task | None, tally: Tensor) -> dict[str, Any]:
    """What the task says of a group; nothing where its metric is undefined there."""
    assert task is not None
    try:
        found = task.measure(tally)
    except Exception:  # noqa: BLE001 - a task may raise anything where its metric is undefined; no run stops for it
        return {"metric": None}
    if not math.isfinite(found.metric):
        return {"metric": None}
    metrics = {name: value for name, value in found.metrics.items() if math.isfinite(value)}
    return {"metric": found.metric, "metrics": metrics, "error": found.errors.get(task.reported.name)}


def at_hand(split: Split, columns: Iterable[str]) -> Grouped:
    """Groups of any size, of samples that whoever asks has at hand."""
    values = {name: tuple(sorted(set(labels_of(split, name)))) for name in columns if name in split.attributes}
    return Grouped.of(split, values, least=1)


def results_in(task: Task, found: Grouped) -> dict[str, Any]:
    """Column -> value -> samples, metric and metrics."""
    counts = {column: places.bincount().tolist() for column, places in found.places.items()}
    return {
        column: {
            value: {"samples": counts[column][number], **measured(task, found.sums[column][number])}
            for number, value in enumerate(values)
        }
        for column, values in found.values.items()
    }
