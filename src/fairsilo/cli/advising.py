"""`fairsilo advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairsilo.cli.completing import goals, of_comparison
from fairsilo.cli.interrupts import interruptible
from fairsilo.cli.output import AsJson, console, say, show, show_json
from fairsilo.cli.running import OutFolder
from fairsilo.cli.tuning import seconds_in
from fairsilo.config import experiment, read_yaml
from fairsilo.errors import FairsiloError
from fairsilo.runs.comparison import is_setting
from fairsilo.runs.names import refuse_unknown


def advise(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="methods to try (else a handful) and settings as key=value",
            metavar="[METHOD...]",
            autocompletion=of_comparison,
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="a YAML file of settings")] = None,
    budget: Annotated[str, typer.Option(help="the time for pilots, such as 10m or 2h")] = "10m",
    goal: Annotated[
        str, typer.Option(help="what counts: all, generalise, personalise or fair", autocompletion=goals)
    ] = "all",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="of each pilot; by default as many as the time allows")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="at most so many")] = 8,
    jobs: Annotated[int, typer.Option(min=1, help="pilots side by side on this machine, each in a process")] = 1,
    out: OutFolder = None,
    as_json: AsJson = False,
) -> None:
    """Which method suits your federation: measures how far silos are apart, runs short pilots, and says what is sure.

    Pilots train on silos' training data alone: neither a held-out domain nor test samples take part, so that you can
    report on those later. The same command goes on with pilots that were interrupted.
    """
    names = [text for text in arguments or () if not is_setting(text)]
    given = [text for text in arguments or () if is_setting(text)]
    for one in given:
        if one.partition("=")[0].strip() in ("method", "baseline"):
            raise FairsiloError(f"{one!r} has no effect here; name the methods to try beside fedavg")
    base = experiment(read_yaml(config) if config else {}, given)
    refuse_unknown(base, names)
    from fairsilo import api
    from fairsilo.cli.progress import ProgressListener
    from fairsilo.report.advice_page import PAGE, advice_table, sentences, shift_sentences

    following = ProgressListener(console, quiet=as_json, rounds=False)
    with interruptible("the same command goes on with the pilots"), following as listener:
        found = api.advise(
            names,
            experiment=base,
            budget=seconds_in(budget),
            goal=goal,
            pilot_rounds=rounds,
            seeds=seeds,
            jobs=jobs,
            out=out,
            listener=listener,
        )
    content = found.as_dict()
    if as_json:
        show_json(content)
        return
    answer, *rest = sentences(content)
    say(answer)
    show(advice_table(content))
    for line in (*rest, *shift_sentences(content)):
        say(line)
    say(f"page: {found.folder / PAGE}")
