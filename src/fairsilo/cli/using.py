"""`fairsilo predict`, `fairsilo evaluate` and `fairsilo personalise`: a finished run put to use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.completing import run_folders, which
from fairsilo.cli.output import AsJson, Trust, say, show, show_json
from fairsilo.errors import FairsiloError
from fairsilo.runs.opened import read_finished

RunFolder = Annotated[Path, typer.Argument(help="the folder of a finished run", autocompletion=run_folders)]
OfSilo = Annotated[str | None, typer.Option("--silo", help="use this silo's own model instead of the global one")]
Which = Annotated[
    str,
    typer.Option(
        "--which", "--model", help="which of a silo's own models: best (by validation) or last", autocompletion=which
    ),
]
NewData = Annotated[
    str,
    typer.Option("--data", help="PATH/class/image, PATH/domain/class/image, an index, packed files, or glyphs:street"),
]


def predict(
    folder: RunFolder,
    images: Annotated[list[Path], typer.Argument(help="image files, or folders of them")],
    silo: OfSilo = None,
    model: Which = "best",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="write a CSV file: path, class and its probabilities, or number"),
    ] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """The class of each image, or its number where a run predicts numbers, by the global model or a silo's own.

    With FedAG's global model also: how much each silo's adapter counts in the answer.
    """
    _check_which(model)
    read_finished(folder, trust)
    from fairsilo.core.disk import replacing
    from fairsilo.data.newcomer import read_images
    from fairsilo.report.spreadsheet import csv_text
    from fairsilo.report.tables import predictions_table
    from fairsilo.runs.predictions import flattened, predictions, refuse_target
    from fairsilo.runs.trained import Trained

    if out is not None:
        refuse_target(out, images)
    trained = Trained(folder, trust=trust)
    names, pixels = read_images(images, trained.size, trained.experiment.data.fit)
    rows = predictions(trained, names, pixels, silo, model)
    if out is not None:
        lines = flattened(rows)
        with replacing(out) as beside:
            beside.write_text(csv_text(list(lines[0]), lines), encoding="utf-8")
    if as_json:
        show_json(rows)
    elif out is not None:
        say(f"{len(rows)} prediction{'s' * (len(rows) != 1)}: {out}")
    elif "number" in rows[0]:
        for row in rows:
            say(f"{row['image']}: {row['number']:g}")
    else:
        show(predictions_table(rows))


def evaluate(
    folder: RunFolder,
    data: NewData,
    silo: OfSilo = None,
    model: Which = "best",
    adapt: Annotated[
        str | None, typer.Option("--adapt", help="adapt at test time first: dsbn, tent(adapt_lr=0.01)")
    ] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", help="measure also by the values of these columns: sex, age")
    ] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Measure a run's global model, or a silo's own, on labelled data; says which of them the run has seen."""
    _check_which(model)
    read_finished(folder, trust)
    from fairsilo.data.newcomer import read_newcomer
    from fairsilo.report.groups import measured_table
    from fairsilo.report.tables import measures_table
    from fairsilo.report.units import shown_in
    from fairsilo.runs.seen import warning
    from fairsilo.runs.trained import Trained

    trained = Trained(folder, trust=trust)
    domains = read_newcomer(data, trained.classes, trained.size, trained.experiment.data.fit)
    rows = trained.evaluate(domains, silo, model, adapt, groups or ())
    if as_json:
        show_json(rows)
        return
    reported = trained.plan.task.reported
    with shown_in(reported.name, reported.share, reported.higher_is_better):
        show(measures_table(rows))
        if groups:
            show(measured_table(rows))
    for text in dict.fromkeys(filter(None, map(warning, rows))):
        say(text)


def personalise(
    folder: RunFolder,
    data: NewData,
    name: Annotated[str | None, typer.Option("--name", help="of the new silo; by default its domain's")] = None,
    validation: Annotated[float, typer.Option(help="share of the training samples kept for validation")] = 0.15,
    test: Annotated[float, typer.Option(help="share of the samples kept for testing, where the data do not say")] = 0.2,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Let a new silo join a finished run: its own model from the global one, by the method's own rule."""
    read_finished(folder, trust)
    from fairsilo.data.newcomer import read_newcomer
    from fairsilo.report.tables import personalised_table
    from fairsilo.report.units import shown_in
    from fairsilo.runs.trained import Trained

    trained = Trained(folder, trust=trust)
    domains = read_newcomer(data, trained.classes, trained.size, trained.experiment.data.fit)
    if name and len(domains) > 1:
        raise FairsiloError(f"{data} has {len(domains)} domains, and --name names one silo; give one domain")
    found = [trained.personalise(name or key, domain, validation, test) for key, domain in domains.items()]
    if as_json:
        show_json(found)
        return
    reported = trained.plan.task.reported
    with shown_in(reported.name, reported.share, reported.higher_is_better):
        show(personalised_table(found))
    for one in found:
        say(f"model: {one['model']}")


def _check_which(model: str) -> None:
    if model not in ("best", "last"):
        raise FairsiloError(f"--which is {model!r}; it must be best or last")
