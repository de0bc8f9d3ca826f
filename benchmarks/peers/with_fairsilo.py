"""The job in fairsilo, by `fairsilo.run`: two worker processes with one thread each.

    python with_fairsilo.py [channels_last=true | preset=fast]    # settings of the engine

A round is what lies between two moves of the global model, with the checkpoint that is written by default. The test
images are those of an unseen silo, which is evaluated once after the last round; the others have none.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import job
import torch
from torch import nn

import fairsilo


class Rounds(fairsilo.Listener):
    """Notes when the global model has moved."""

    def __init__(self, clock: job.Clock) -> None:
        self.clock = clock

    def on_closed(self, event: fairsilo.Event) -> None:
        self.clock.round_ended()


def make_network(classes: int, channels: int) -> nn.Module:
    return job.network()


def federation() -> fairsilo.Federation:
    nothing = fairsilo.Split(torch.empty(0, 3, job.SIZE, job.SIZE, dtype=torch.uint8), torch.empty(0, dtype=torch.long))
    silos = tuple(
        fairsilo.SiloData(f"s{number:02d}", f"d{number:02d}", fairsilo.Split(*job.silo(number)), nothing, nothing)
        for number in range(job.SILOS)
    )
    unseen = fairsilo.SiloData("test", "test", nothing, nothing, fairsilo.Split(*job.test()))
    classes = tuple(map(str, range(job.CLASSES)))
    return fairsilo.Federation("peers", classes, silos, unseen=(unseen,))


def main() -> None:
    engine: dict[str, Any] = {"name": "processes", "workers": 2}
    for setting in sys.argv[1:]:
        key, _, value = setting.partition("=")
        engine[key] = value == "true" if value in ("true", "false") else value
    training = {"rounds": job.ROUNDS, "epochs": 1, "batch_size": job.BATCH, "weighting": "samples"}
    training |= {"lr": job.LR, "momentum": job.MOMENTUM, "weight_decay": job.WEIGHT_DECAY}
    clock = job.Clock()
    with tempfile.TemporaryDirectory() as folder:
        result = fairsilo.run(
            method="fedavg",
            model=make_network,
            federation=federation(),
            train=training,
            evaluate={"every": job.ROUNDS, "metric": "accuracy"},
            engine=engine,
            listener=Rounds(clock),
            out=f"{folder}/run",
        )
    clock.report(100 * result.summary["generalisation"]["mean"])


if __name__ == "__main__":
    main()
