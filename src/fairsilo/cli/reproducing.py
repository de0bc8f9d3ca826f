"""`fairsilo reproduce`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fairsilo.cli import completing
from fairsilo.cli.fitting import wrapped
from fairsilo.cli.interrupts import interruptible
from fairsilo.cli.output import AsJson, complain, console, say, show, show_json, verbatim
from fairsilo.cli.running import Anonymous, HeldOut, OutFolder, Seeds, Track, listed, trackers
from fairsilo.errors import FairsiloError
from fairsilo.runs.comparison import is_setting, read_comparison_file, read_searched


def reproduce(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="a table, such as fedheal/table2-digits, and settings as key=value",
            metavar="[TABLE]",
            autocompletion=completing.tables,
        ),
    ] = None,
    rows: Annotated[str | None, typer.Option(help="methods of the table, separated by semicolons")] = None,
    seeds: Seeds = None,
    held_out: HeldOut = None,
    out: OutFolder = None,
    jobs: Annotated[int, typer.Option(min=1, help="runs side by side on this machine, each in a process")] = 1,
    cluster: Annotated[
        str | None, typer.Option(help="dask://HOST:PORT: the workers of this Dask scheduler make the runs")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="all tables with what was run (as without a table)")] = False,
    show_only: Annotated[
        bool, typer.Option("--show", help="run nothing; show what the ledger has, with --out as a page too")
    ] = False,
    record: Annotated[bool, typer.Option("--record", help="put the runs into the ledger of this checkout")] = False,
    tuned: Annotated[
        Path | None,
        typer.Option(
            help="folder of `fairsilo tune --table`: run with what it chose, a second column beside the first"
        ),
    ] = None,
    lines: Annotated[Path | None, typer.Option(help="write the runs into this file, as lines of a ledger")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="run a few small rows again and hold them against the ledger")
    ] = False,
    track: Track = None,
    anonymous: Anonymous = False,
    as_json: AsJson = False,
) -> None:
    """A table of a paper: runs it (or some of it), and shows our numbers beside the paper's.

    Without a table all of them are listed, with what was run. The same command goes on with what is not finished.
    """
    from fairsilo.report.crossed import crossed_tables
    from fairsilo.report.reproduced import in_words, listed_table, reproduced_table
    from fairsilo.report.reproduced_page import write_reproduced
    from fairsilo.reproduction.crossing import crossed
    from fairsilo.reproduction.standing import Standing, runs_of
    from fairsilo.reproduction.tables import read_table, tables

    names = [text for text in arguments or () if not is_setting(text)]
    given = [text for text in arguments or () if is_setting(text)]
    if len(names) > 1:
        raise FairsiloError(f"one table at a time: {names[0]}, then {names[1]}")
    along = trackers(track, anonymous)
    if along and not check and (listing or show_only or not names):
        raise FairsiloError("--track tells of runs, and here nothing is run; leave it out")
    chosen_runs = {"--rows": rows, "--seeds": seeds, "--held-out": held_out, "--tuned": tuned}
    kept_runs = {"--record": record, "--lines": lines}
    if not names and not check and not listing and (show_only or any((chosen_runs | kept_runs).values())):
        about = next((option for option, value in (chosen_runs | kept_runs).items() if value), "--show")
        raise FairsiloError(f"{about} is about one table; name it, as in fedheal/table2-digits")
    idle = chosen_runs | kept_runs | {"--show": show_only and (check or listing)}
    mode = "--check" if check else "--list" if listing else "--show" if show_only else ""
    for option in (option for option, value in idle.items() if mode and value):
        raise FairsiloError(f"{option} has no effect with {mode}; leave it out")
    if names and (check or listing):
        raise FairsiloError(f"{mode} is about all tables; leave {names[0]} out")
    if check and along and not out:
        raise FairsiloError("--check forgets its runs and what trackers write beside them; keep them with --out FOLDER")
    if check:
        _check(given, out, jobs, as_json, along)
        return
    if listing or not names:
        known = tables()
        found = [Standing.of(table, runs_of(table, known)) for table in known]
        if as_json:
            show_json([_listed(one) for one in found])
        else:
            show(listed_table(found))
        return
    table = read_table(names[0])
    if show_only:
        shown = runs_of(table)
    else:
        chosen = tuple(text.strip() for text in rows.split(";")) if rows else ()
        places = {"out": out or (_folder(table, "tuned") if tuned else None), "jobs": jobs, "cluster": cluster}
        records = _run(table, given, chosen, listed(seeds), listed(held_out), as_json, places, tuned, along)
        if lines:
            lines.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        if record:
            from fairsilo.reproduction.ledger import append, file_of

            tell = complain if as_json else say  # where JSON is asked for, nothing else may stand on stdout
            tell(f"{append(table.name, records)} runs are new in {file_of(table.name).name}")
        alike = tuned and not any(one["settings"] for one in records)  # else they are of another experiment
        before = [one for one in runs_of(table) if not one.get("tuned")] if alike else []
        shown = [*before, *({**one, "settings": {}} for one in records)]
    standing = Standing.of(table, shown)
    own = (f"with settings of your own: {', '.join(given)}",) if given and not show_only else ()
    folder = out if show_only else out or _folder(table, "tuned" if tuned else "")
    page = write_reproduced(standing, folder, own) if folder else None
    if as_json:
        show_json(_plain(standing))
        return
    grid = crossed(table, shown)
    if table.earlier and not shown:
        say(f"{table.name} was run before the ledger, which has none of its runs. Its notes (docs/reproduction.md):")
        _show_notes(table.notes)
    else:
        for drawn in crossed_tables(grid) if grid else [reproduced_table(standing)]:
            show(drawn)
        for text in [] if grid else in_words(standing, only=True):
            say(text)
    for text in table.differs:
        say(f"differs from the paper: {text}")
    for text in own:
        say(text)
    if page:
        say(f"page: {page}")
        say(f"also as CSV and LaTeX: {page.with_suffix('')}.*")


def _show_notes(notes: str) -> None:
    """Each table, paragraph and list with an empty line before and behind; a terminal has items indented."""
    from fairsilo.report.noted import ITEM, pieces

    indent = " " * len(ITEM)
    for together in pieces(notes):
        verbatim("")
        for piece in together:
            if not isinstance(piece, str):
                show(piece)
            elif piece.startswith(ITEM) and console.is_terminal:
                lines = wrapped(piece.removeprefix(ITEM), console.width - len(ITEM))
                verbatim(ITEM + lines.replace("\n", f"\n{indent}"))
            else:
                say(piece)
    verbatim("")


def _check(given: list[str], out: Path | None, jobs: int, as_json: bool, along: Sequence[Any]) -> None:
    """Small rows again, in a folder that is new unless one is named; ends with 1 where a number does not hold."""
    from tempfile import TemporaryDirectory

    from fairsilo.report.reproduced import checked_table
    from fairsilo.reproduction.checking import ROWS, checked
    from fairsilo.reproduction.tables import read_table

    found = []
    anew = interruptible("a check begins anew; with --out FOLDER the same command goes on", kept=False)
    with TemporaryDirectory() as made, nullcontext() if out else anew:
        for name, rows in ROWS.items():
            table, options = read_table(name), {"out": (out or Path(made)) / name, "jobs": jobs, "cluster": None}
            records = _run(table, given, rows, None, None, as_json, options, along=along, kept=out is not None)
            found += checked(table, records)
    if as_json:
        show_json([{**one._asdict(), "holds": one.holds} for one in found])
    else:
        show(checked_table(found))
    if not all(one.holds for one in found):
        raise typer.Exit(1)


def _run(
    table: Any,
    given: list[str],
    rows: tuple[str, ...],
    seeds: str | None,
    held_out: str | None,
    quiet: bool,
    options: dict[str, Any],
    tuned: Path | None = None,
    along: Sequence[Any] = (),
    kept: bool = True,
) -> list[Any]:
    """The table's comparison, or some of it; returns the lines that the ledger would have of its runs.

    Whoever interrupts it is told how to go on, where its folder is kept.
    """
    asked = read_comparison_file(table.file, given, seeds=seeds, held_out=held_out)
    from fairsilo import api
    from fairsilo.cli.grid import GridListener
    from fairsilo.cli.progress import ProgressListener
    from fairsilo.report.figures.files import asked_figures
    from fairsilo.reproduction.ledger import record_of

    figures = asked_figures(table.figures)
    for row in rows:
        if row not in asked.methods:
            raise FairsiloError(f"{table.name} has no row {row!r}; it has: {'; '.join(asked.methods)}")
    if tuned:
        found = read_searched(tuned, rows or asked.methods)
        domains = asked.held_out if held_out else found.held_out  # those that were searched
        asked = replace(asked, tuned=found.tuned, held_out=domains, seeds=asked.seeds if seeds else found.seeds)
    options["out"] = options["out"] or _folder(table)
    elsewhere = options["jobs"] > 1 or options["cluster"] is not None
    following: GridListener | ProgressListener = ProgressListener(console, quiet=quiet)
    if elsewhere:
        following = GridListener(console, quiet=quiet, at_once=None if options["cluster"] else options["jobs"])
    going_on = interruptible("the same command goes on from the last complete round") if kept else nullcontext()
    with going_on, following as listener:
        made = api.compare(
            rows or asked.methods,
            experiment=asked.experiment,
            seeds=asked.seeds,
            held_out=asked.held_out,
            listener=[listener, *along],
            planned=following.begin,
            tuned=asked.tuned,
            **options,
        )
    text = {(domain, name): row for domain, rows in asked.tuned.items() for name, row in rows.items()}
    records = []
    for cell in made.cells:
        folder, own = made.folder / cell["folder"], text.get((cell["held_out"], cell["method"]), "")
        records.append(record_of(cell, folder, given, own, _shown_by(figures, folder)))
    return records


def _shown_by(asked: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, dict[str, float]]:
    """What diagnostics show of a run, in numbers."""
    if not asked:
        return {}
    from fairsilo.report.figures.files import numbers_of
    from fairsilo.runs.replayed import Replayed

    found, failed = numbers_of(Replayed(folder), asked)
    for problem in failed:
        complain(f"{folder}: not measured: {problem}")
    return found


def _folder(table: Any, kind: str = "") -> Path:
    from fairsilo.runs.folder import slug

    return Path("runs") / slug(f"reproduce-{table.name}{kind and f'-{kind}'}")


def _listed(standing: Any) -> dict[str, Any]:
    table, rows = standing.table, standing.rows
    told = {"name": table.name, "of": table.of, "state": standing.state, "needs": table.needs}
    return {**told, "runs": sum(row.runs for row in rows), "wanted": sum(row.wanted for row in rows)}


def _plain(standing: Any) -> dict[str, Any]:
    return {
        "name": standing.table.name,
        "of": standing.table.of,
        "rows": [
            {
                "method": row.method,
                "runs": row.runs,
                "wanted": row.wanted,
                **{
                    measure: {
                        "ours": found.ours and found.ours.mean,
                        "paper": found.paper,
                        "gain": found.gain
                        and {"mean": found.gain.mean, "margin": found.gain.margin, "p": found.gain.p},
                        "paper_gain": found.paper_gain,
                        "tuned": found.tuned and found.tuned.mean,
                        "tuned_gain": found.tuned_gain
                        and {"mean": found.tuned_gain.mean, "margin": found.tuned_gain.margin},
                    }
                    for measure, found in row.found.items()
                },
            }
            for row in standing.rows
        ],
    }
