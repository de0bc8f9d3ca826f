"""`fairsilo runs`: what there is, what can go, what is taken elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from fairsilo.cli.output import AsJson, complain, say, show, show_json
from fairsilo.errors import FairsiloError, nearest

if TYPE_CHECKING:
    from fairsilo.runs.inventory import Kept
    from fairsilo.runs.tryouts import Tryouts


class FolderOrCommand(TyperGroup):
    """`fairsilo runs FOLDER` lists the runs of that folder."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        first = next(iter(args), "-")
        if not first.startswith("-") and first not in self.commands and not ctx.resilient_parsing:
            if not Path(first).is_dir():
                raise FairsiloError(
                    f"{first!r} is neither a folder nor a command of `fairsilo runs`{nearest(first, self.commands)}"
                )
            args = ["list", *args]
        return super().parse_args(ctx, args)


runs = typer.Typer(help="The runs of a folder: list them, make room, take one elsewhere.", cls=FolderOrCommand)
Root = Annotated[Path, typer.Argument(help="a folder with runs, however deep")]


@runs.callback(invoke_without_command=True)
def alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        listed(Path("runs"))


@runs.command("list")
def listed(root: Root = Path("runs"), as_json: AsJson = False) -> None:
    """Every run with its state, the three answers, its size, its method, held-out domain and seed.

    A terminal that is too narrow leaves out age, size, rounds, and then method, domain and seed.
    """
    from fairsilo.report.tables import RUNS_OF, runs_table
    from fairsilo.runs.inventory import runs_under
    from fairsilo.runs.tryouts import tryouts_above

    found = runs_under(root, damaged=True)
    tried = tryouts_above(one.folder for one in found)
    found = [replace(one, state=tried[one.folder].state_of(one)) if one.folder in tried else one for one in found]
    if as_json:
        show_json([one.as_dict() for one in found])
        return
    if not found:
        say(f"no run in {root}")
        return
    show(runs_table(found, root, time.time()), spare=("age", "size", "rounds", RUNS_OF))
    for line in dict.fromkeys(_going_on(found, tried)):
        say(line)
    for one in found:
        if one.why:
            complain(f"{one.state}: {one.why}")


def _going_on(found: Sequence[Kept], tried: Mapping[Path, Tryouts]) -> Iterator[str]:
    """What goes on with the runs that were cut off: with those of one command that command, which made some of them
    alone, or on data without the held-out domain."""
    from fairsilo.runs.folder import resuming
    from fairsilo.runs.inventory import INTERRUPTED, comparison_of

    of_command: dict[Tryouts, list[Kept]] = {}
    for one in found:
        if one.folder in tried:
            of_command.setdefault(tried[one.folder], []).append(one)
    open_ones = {command for command, runs in of_command.items() if command.cut_off(runs)}
    for one in found:
        if one.folder in tried:
            if tried[one.folder] in open_ones:
                yield f"to go on with {tried[one.folder].folder}: give the command that made it again"
        elif one.state == INTERRUPTED and (whole := comparison_of(one.folder)):
            yield f"to go on with all runs in {whole}: give the command that made it again"
        elif one.state == INTERRUPTED:
            yield f"to go on: {resuming(one.folder)}"


@runs.command("prune")
def pruned(
    root: Root = Path("runs"),
    older: Annotated[str, typer.Option(help="only runs that ended so long ago, such as 30d or 12h")] = "0s",
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="the last checkpoints too")] = False,
    local: Annotated[bool, typer.Option("--local", help="each round's local models (evaluate.keep_local)")] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="runs that are part of no comparison, with models and reports")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
) -> None:
    """Make room: of finished runs delete what nobody reads any more, or more where you say so.

    By default older checkpoints alone. Without its last checkpoint a finished run keeps its models and its report;
    newcomers (`fairsilo personalise`), and predictions of methods that remember something, then start without that.
    """
    from fairsilo.cli.tuning import seconds_in
    from fairsilo.report.texts import size
    from fairsilo.runs.inventory import prunable, prune, runs_under

    runs = runs_under(root, damaged=True)  # of which nothing goes
    found = prunable(runs, older=seconds_in(older, "--older"), checkpoints=checkpoints, local=local, whole=whole)
    if not found:
        say(f"nothing to delete in {root}")
        return
    for one in found:
        say(f"{size(one.bytes)} of {one.run.folder}")
    total = f"{size(sum(one.bytes for one in found))} of {len(found)} runs"
    if dry_run:
        say(f"would delete {total}")
    elif yes or typer.confirm(f"delete {total}?"):
        say(f"deleted {size(prune(found))}")


@runs.command("export")
def exported(
    folder: Annotated[Path, typer.Argument(help="of a run, or of a comparison")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="the zip; by default the folder's name")] = None,
    models: Annotated[bool, typer.Option(help="take the trained models along")] = True,
    samples: Annotated[bool, typer.Option("--samples", help="all else that is of silos' samples too")] = False,
) -> None:
    """Pack a run or a comparison into a zip, which `fairsilo report FILE.zip` opens elsewhere.

    It has settings (with the paths that they name), results and models. What is of the silos' samples stays here unless
    you say --samples: example and synthetic images, figures, pages (`report` writes them again), fingerprints, and what
    exceptions said.
    """
    from fairsilo.report.texts import size
    from fairsilo.runs.packing import pack

    path = out or Path(f"{folder.resolve().name}.zip")
    say(f"{path}: {size(pack(folder, path, models=models, samples=samples))}")
