"""`fairsilo tune`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.completing import of_comparison, samplers, scores, tables
from fairsilo.cli.interrupts import interruptible
from fairsilo.cli.output import AsJson, console, say, show, show_json
from fairsilo.cli.running import Anonymous, HeldOut, OutFolder, Track, listed, trackers
from fairsilo.errors import FairsiloError
from fairsilo.runs.comparison import is_setting, read_comparison_file
from fairsilo.runs.names import refuse_unknown

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def tune(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="methods and settings as key=value", metavar="[METHOD...]", autocompletion=of_comparison),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="a YAML file as for compare: settings, methods, domains")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            help="of a paper, as `fairsilo reproduce` lists them: its methods and settings", autocompletion=tables
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="of every method, for every held-out domain")] = 20,
    budget: Annotated[
        str | None, typer.Option(help="begin no trial after this time, such as 2h or 90m; all methods take turns")
    ] = None,
    held_out: HeldOut = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="KEY=LOW..HIGH, KEY=log:LOW..HIGH, KEY=a,b,c, or KEY=- for what is not searched"),
    ] = None,
    sampler: Annotated[
        str, typer.Option(help="tpe: learns from the trials before; random: does not", autocompletion=samplers)
    ] = "tpe",
    prune: Annotated[bool, typer.Option(help="give up runs that are behind the median of the others")] = True,
    by: Annotated[
        str, typer.Option(help="mean: over the silos' validation results; worst: of them", autocompletion=scores)
    ] = "mean",
    jobs: Annotated[int, typer.Option(min=1, help="trials side by side on this machine, each in a process")] = 1,
    out: OutFolder = None,
    track: Track = None,
    anonymous: Anonymous = False,
    as_json: AsJson = False,
) -> None:
    """Search settings for methods, the same number of trials each, by the training silos' validation data alone.

    The held-out domain takes no part. The first trial of a method has its settings as they are. The same command goes
    on with a search that was interrupted, or with more trials. What was chosen is a file for `fairsilo compare -c`.
    """
    names = [text for text in arguments or () if not is_setting(text)]
    given = [text for text in arguments or () if is_setting(text)]
    seconds = None if budget is None else seconds_in(budget)
    if table is not None:
        from fairsilo.reproduction.tables import read_table

        if config is not None:
            raise FairsiloError("--config and --table both say what is searched; give one of them")
        config = read_table(table).file
    asked = read_comparison_file(config, given, methods=names, held_out=listed(held_out))
    refuse_unknown(asked.experiment, asked.methods)
    from fairsilo import api
    from fairsilo.cli.progress import ProgressListener
    from fairsilo.engine.events import guarded
    from fairsilo.report.tuning_page import PAGE, not_learned, tuning_table
    from fairsilo.tuning.search import CHOSEN

    along = trackers(track, anonymous)
    following = ProgressListener(console, quiet=as_json, rounds=False)
    with interruptible("the same command goes on with the search"), following as listener:
        found = api.tune(
            asked.methods,
            experiment=asked.experiment,
            trials=trials,
            budget=seconds,
            held_out=asked.held_out,
            search=search or (),
            sampler=sampler,
            prune=prune,
            by=by,
            jobs=jobs,
            out=out,
            listener=guarded([listener, *along]),
        )
    if as_json:
        show_json({**found.as_dict(), "tuned": found.tuned})
        return
    content = found.as_dict()
    for line in not_learned(content):
        say(line)
    show(tuning_table(content))
    for domain, count in found.counted.items():
        if count < trials:
            say(f"{domain} held out: the budget was enough for {count} trials of every method")
    say(f"page: {found.folder / PAGE}")
    if all(one["at_chance"] for methods in found.found.values() for one in methods.values()):
        return  # a comparison of guesses would tell nothing
    after = ["compare", "-c", str(found.folder / CHOSEN)]
    if table is not None:
        after = ["reproduce", table, "--tuned", str(found.folder)]
    say(f"now, with other seeds and on test data: {shlex.join(['fairsilo', *after])}")


def seconds_in(text: str, option: str = "--budget") -> float:
    """`2h`, `1h30m`, `45s` in seconds."""
    pieces = re.findall(r"(\d+(?:\.\d+)?)([dhms])", text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text.replace(" ", ""):
        raise FairsiloError(f"{option} {text}: write a time such as 2h, 90m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)
