"""Evaluating the model that a silo holds on its data: inputs, predictions, loss and metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fairsilo.core.groups import ASKED, Grouped, asked_of
from fairsilo.core.messages import Message, digest
from fairsilo.core.output import Output
from fairsilo.core.samples import place_of
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.task import Measure


def measure(silo: Silo, split: str) -> Measure:
    """Loss and metric of the model held, on a split of this silo, in evaluation mode."""
    return silo.task.measure(tallied(silo, split))


def tallied_once(silo: Silo, split: str, groups: Grouped | None = None) -> Tensor:
    """As `tallied`, for a model that other silos have too: once for all silos that have these samples.

    Unless a part changes what the model sees of them.
    """
    if (silo.name, split) not in silo.measured.shared or silo.method.hooks("inputs"):
        return tallied(silo, split, groups)

    sent = silo.sent

    def made() -> tuple[Tensor, dict[str, Tensor], Tensor]:
        # what the address stands for must stay there as long as it does
        # and other threads read the tally at once: on the CPU it is complete
        return tallied(silo, split, groups).cpu(), groups.sums if groups is not None else {}, sent

    # on a GPU all silos get the same tensor, and to read it would cost more than to measure it
    model = place_of(sent) if sent.is_cuda and not silo.model.layout.own else digest(silo.model.read())
    which = silo.message.numbers.get("network")
    key = (silo.data.split(split).place, which, model, groups is not None)
    total, sums, _ = silo.measured.of((silo.round, silo.message.numbers.get(ASKED)), key, made)
    if groups is not None:
        groups.sums = {column: table.clone() for column, table in sums.items()}
    return total.clone()  # type: ignore[no-any-return]


@torch.no_grad()
def tallied(silo: Silo, split: str, groups: Grouped | None = None) -> Tensor:
    """The tally of a split; where groups are given, theirs are counted from the same predictions."""
    silo.model.eval()
    total: Tensor | None = None
    for batch in silo.evaluation_batches(silo.data.split(split)):
        if groups is None or not groups.places:
            tally = _replayed(silo, "tally", batch, _tally)
        else:
            prediction = _replayed(silo, "prediction", batch, predicted)
            tally = silo.task.tally(prediction, batch.targets)
            groups.add(silo.task, prediction, batch.targets, batch.indices)
        total = tally.clone() if total is None else total + tally
    if total is None:
        raise ValueError(f"silo {silo.name!r} has no {split} samples to measure a model on")
    return total


def _tally(silo: Silo, batch: Batch) -> Tensor:
    return silo.task.tally(predicted(silo, batch), batch.targets)


def _replayed(silo: Silo, what: str, batch: Batch, made: Callable[[Silo, Batch], Tensor]) -> Tensor:
    """Something of the model held and a batch; replayed where it can be. What a part changes of inputs may be a silo's
    own matter."""
    if silo.recorder is None or silo.method.hooks("inputs"):
        return made(silo, batch)
    return silo.recorder.taken((what, id(silo.model)), batch, partial(made, silo))


def report(silo: Silo, message: Message, model: str) -> dict[str, Measure]:
    """Put what the model held reaches on validation and test data into a message; of the test data also by group,
    where the server asks for it."""
    found = {}
    for split in ("validation", "test"):
        if len(silo.data.split(split)):
            groups = Grouped.of(silo.data.test, asked_of(silo.message)) if split == "test" else None
            total = (tallied_once if model == "global" else tallied)(silo, split, groups)
            found[split] = silo.task.measure(total)
            write_measure(message, f"{model}.{split}", found[split])
            if groups is not None:
                groups.write(message, f"{model}.{split}", len(total))
    return found


def output_of(silo: Silo, batch: Batch) -> Output:
    """The output of the held model for a batch, with inputs as at evaluation."""
    return silo.forward(seen(silo, batch, False))


def predicted(silo: Silo, batch: Batch) -> Tensor:
    return output_of(silo, batch).prediction


def write_measure(message: Message, key: str, found: Measure) -> None:
    """Put a measure into a message, under names that begin with `key`."""
    numbers = {"loss": found.loss, "metric": found.metric, "samples": found.samples}
    named = {f"metrics.{name}": value for name, value in found.metrics.items()}
    named |= {f"errors.{name}": value for name, value in found.errors.items()}
    message.numbers |= {f"{key}.{name}": value for name, value in (numbers | named).items()}
    for kind, tables in (("per_class", found.per_class), ("per_pair", found.per_pair)):
        for name, values in tables.items():
            message.tensors[f"{key}.{kind}.{name}"] = torch.tensor(values, dtype=torch.float64)


def read_measure(message: Message, key: str) -> Measure:
    """The measure that `write_measure` put under `key`."""
    loss, metric, samples = (message.numbers[f"{key}.{what}"] for what in ("loss", "metric", "samples"))
    per_class, per_pair = (f"{key}.{kind}." for kind in ("per_class", "per_pair"))
    return Measure(
        float(loss),
        float(metric),
        int(samples),
        _numbers(message, f"{key}.metrics."),
        {name.removeprefix(per_class): tuple(t.tolist()) for name, t in message.tensors.items() if per_class in name},
        {
            name.removeprefix(per_pair): tuple(map(tuple, t.tolist()))
            for name, t in message.tensors.items()
            if per_pair in name
        },
        _numbers(message, f"{key}.errors."),
    )


def _numbers(message: Message, start: str) -> dict[str, float]:
    return {name.removeprefix(start): float(n) for name, n in message.numbers.items() if name.startswith(start)}


def row_of(found: Measure) -> dict[str, Any]:
    """A measure as a dictionary for a row of results; empty metrics and counts are left out."""
    row: dict[str, Any] = {"loss": found.loss, "metric": found.metric, "samples": found.samples}
    if found.metrics:
        row["metrics"] = dict(found.metrics)
    if found.errors:
        row["errors"] = dict(found.errors)
    if found.per_class:
        row["per_class"] = {name: list(values) for name, values in found.per_class.items()}
    if found.per_pair:
        row["per_pair"] = {name: [list(line) for line in lines] for name, lines in found.per_pair.items()}
    return row


def seen(silo: Silo, batch: Batch, training: bool) -> Tensor:
    """The inputs of a batch after the parts' `inputs` hooks: what the network sees."""
    inputs = batch.inputs
    for change in silo.method.hooks("inputs"):
        inputs = change(silo, inputs, batch, training)
    return inputs
