"""`fairsilo bench`."""

from __future__ import annotations

from typing import Annotated

import typer

from fairsilo.cli.completing import models
from fairsilo.cli.output import AsJson, console, show_json, verbatim


def bench(
    model: Annotated[str, typer.Option(help="the network that silos train", autocompletion=models)] = "small-cnn",
    silos: Annotated[int, typer.Option(min=2)] = 20,
    samples: Annotated[int, typer.Option(min=2, help="of each silo")] = 500,
    size: Annotated[int, typer.Option(min=8, help="of images, in pixels")] = 32,
    batch: Annotated[int, typer.Option(min=2, help="samples a step")] = 50,
    rounds: Annotated[int, typer.Option(min=1, help="that are timed, after a first one")] = 3,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; by default one for each core")] = None,
    as_json: AsJson = False,
) -> None:
    """How fast this machine trains: a round of FedAvg by engine, and the mean of models against a copy of them."""
    from fairsilo.report.bench import markdown
    from fairsilo.runs.bench import Job
    from fairsilo.runs.bench import bench as measured

    job = Job(model, silos, samples, size, batch, rounds)
    with console.status("") as status:
        found = measured(job, workers, lambda text: status.update(text))
    if as_json:
        show_json(found)
    else:
        verbatim(markdown(found))
