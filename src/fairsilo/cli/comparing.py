"""`fairsilo compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.completing import of_comparison
from fairsilo.cli.interrupts import interruptible
from fairsilo.cli.output import AsJson, console, say, show, show_json
from fairsilo.cli.running import Anonymous, HeldOut, OutFolder, Seeds, Track, listed, trackers
from fairsilo.runs.comparison import is_setting, read_comparison_file
from fairsilo.runs.names import refuse_unknown


def compare(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="methods and settings as key=value", metavar="[METHOD...]", autocompletion=of_comparison),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="a YAML file: settings, methods or grid, seeds, held-out domains"),
    ] = None,
    seeds: Seeds = None,
    held_out: HeldOut = None,
    out: OutFolder = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs side by side on this machine, each in a process")] = 1,
    cluster: Annotated[
        str | None, typer.Option(help="dask://HOST:PORT: the workers of this Dask scheduler make the runs")
    ] = None,
    track: Track = None,
    anonymous: Anonymous = False,
    as_json: AsJson = False,
) -> None:
    """Methods x held-out domains x seeds: a table with means, spreads and paired differences to the first method.

    A file may name methods: [..] or a grid: {rows: [..], columns: [..]} of compositions, seeds: [..] and
    held_out_domains: all or [..]. "fedavg @ lr=0.1" is a method with settings of its own.
    The same command goes on with what is not finished, whoever ran it before.
    """
    names = [text for text in arguments or () if not is_setting(text)]
    given = [text for text in arguments or () if is_setting(text)]
    asked = read_comparison_file(config, given, methods=names, seeds=listed(seeds), held_out=listed(held_out))
    refuse_unknown(asked.experiment, asked.methods)
    from fairsilo import api
    from fairsilo.cli.grid import GridListener
    from fairsilo.cli.progress import ProgressListener
    from fairsilo.report.comparison_page import write_comparison
    from fairsilo.runs.folder import slug

    if out is None and config is not None and not names:
        out = Path("runs") / slug(f"compare-{config.stem}")
    along = trackers(track, anonymous)
    again = "the same command goes on from the last complete round"
    elsewhere = jobs > 1 or cluster is not None
    following: GridListener | ProgressListener = ProgressListener(console, quiet=as_json)
    if elsewhere:
        following = GridListener(console, quiet=as_json, at_once=None if cluster else jobs)
    with interruptible(again), following as listener:
        found = api.compare(
            asked.methods,
            experiment=asked.experiment,
            seeds=asked.seeds,
            held_out=asked.held_out,
            grid=asked.grid,
            out=out,
            listener=[listener, *along],
            jobs=jobs,
            cluster=cluster,
            planned=following.begin,
            tuned=asked.tuned,
        )
    page = write_comparison(found.folder)
    if as_json:
        show_json(found.as_dict())
    else:
        show_comparison(page)


def show_comparison(page: Path) -> None:
    """The tables of the comparison that a page is about."""
    from fairsilo.report.glance import surely
    from fairsilo.report.tables import comparison_tables
    from fairsilo.runs.counting import read_comparison

    content = read_comparison(page.parent)
    for table in comparison_tables(content):
        show(table)
    for line in surely(content):
        say(line)
    say(f"page: {page}")
    say(f"also as CSV, LaTeX and JSON: {page.parent}/comparison.*")
