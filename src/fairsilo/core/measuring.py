"""A silo's model put to its data: what the network sees, what it predicts, how good that is."""

from __future__ import annotations

import torch
from torch import Tensor

from fairsilo.core.messages import Message
from fairsilo.core.output import Output
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.task import Measure


@torch.no_grad()
def measure(silo: Silo, split: str) -> Measure:
    """Loss and metric of the model held, on a split of this silo, in evaluation mode."""
    silo.model.eval()
    total: Tensor | None = None
    for batch in silo.evaluation_batches(silo.data.split(split)):
        tally = silo.task.tally(predicted(silo, batch), batch.targets)
        total = tally if total is None else total + tally
    if total is None:
        raise ValueError(f"silo {silo.name!r} has no {split} samples to measure a model on")
    return silo.task.measure(total)


def output_of(silo: Silo, batch: Batch) -> Output:
    """What the model held makes of a batch, as at evaluation."""
    return silo.forward(seen(silo, batch, False))


def predicted(silo: Silo, batch: Batch) -> Tensor:
    return output_of(silo, batch).prediction


def read_measure(message: Message, key: str) -> Measure:
    loss, metric, samples = (message.numbers[f"{key}.{what}"] for what in ("loss", "metric", "samples"))
    return Measure(float(loss), float(metric), int(samples))


def write_measure(message: Message, key: str, found: Measure) -> None:
    message.numbers |= {
        f"{key}.loss": found.loss,
        f"{key}.metric": found.metric,
        f"{key}.samples": found.samples,
    }


def seen(silo: Silo, batch: Batch, training: bool) -> Tensor:
    """What the network sees of a batch."""
    inputs = batch.inputs
    for change in silo.method.hooks("inputs"):
        inputs = change(silo, inputs, batch, training)
    return inputs
