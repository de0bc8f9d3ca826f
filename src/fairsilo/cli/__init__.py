"""The command line: reads arguments, calls the library, prints. One file per family of commands.

Commands hold no logic of their own. They import torch and what needs it when they are called, so that `--help` is fast.
"""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairsilo import __version__
from fairsilo.cli.advising import advise
from fairsilo.cli.attending import site
from fairsilo.cli.benching import bench
from fairsilo.cli.checking import check
from fairsilo.cli.comparing import compare
from fairsilo.cli.crossing import contest, crossings
from fairsilo.cli.data import datasets
from fairsilo.cli.demonstrating import demo
from fairsilo.cli.drawing import figure
from fairsilo.cli.exporting import export
from fairsilo.cli.federating import federation
from fairsilo.cli.indexing import index
from fairsilo.cli.interrupts import interruptible
from fairsilo.cli.keeping import runs
from fairsilo.cli.listing import methods, models, settings
from fairsilo.cli.making import new
from fairsilo.cli.output import complain, say
from fairsilo.cli.reporting import report
from fairsilo.cli.reproducing import reproduce
from fairsilo.cli.running import resume, run
from fairsilo.cli.tuning import tune
from fairsilo.cli.using import evaluate, personalise, predict
from fairsilo.cli.watching import watch
from fairsilo.errors import FairsiloError, StoppedError, UnknownSettingError, file_problem
from fairsilo.methods.names import may_have


class Commands(TyperGroup):
    """Also what is interrupted before or after its work ends with a sentence."""

    def invoke(self, ctx: Any) -> Any:
        with interruptible(""):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    help="Cross-silo federated learning under domain shift: generalise, personalise, stay fair.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
COMMANDS = (
    demo,
    run,
    resume,
    compare,
    crossings,
    contest,
    tune,
    advise,
    reproduce,
    report,
    watch,
    methods,
    models,
    settings,
    datasets,
    predict,
    evaluate,
    personalise,
    export,
    figure,
    check,
    new,
    bench,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(runs, name="runs")
app.add_typer(federation, name="federation")
app.add_typer(site, name="site")
app.add_typer(index, name="index")


def _join_lines(group: typer.Typer) -> None:
    """The lines of a paragraph in help texts: typer keeps those of all but the first, however wide the terminal is."""
    for command in group.registered_commands:
        paragraphs = inspect.cleandoc(getattr(command.callback, "__doc__", None) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
    for inner in group.registered_groups:
        if inner.typer_instance:
            _join_lines(inner.typer_instance)


_join_lines(app)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        say(f"fairsilo {__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point: bad input ends with one sentence and exit code 2, a stopped run with 1."""
    try:
        app()
    except StoppedError as problem:
        complain(f"stopped: {problem}")
        sys.exit(1)
    except FairsiloError as problem:
        complain(f"error: {_explained(problem)}")
        sys.exit(2)
    except OSError as problem:
        complain(f"error: {file_problem(problem)}")
        sys.exit(1)


def _explained(problem: FairsiloError) -> str:
    """What is no setting of a run may be one of a method, which stands behind its name."""
    if not isinstance(problem, UnknownSettingError) or not may_have(problem.key):
        return str(problem)
    from fairsilo.methods.catalogue import having

    owners = having(problem.key)
    if not owners:
        return str(problem)
    more = f" and {len(owners) - 3} more" if len(owners) > 3 else ""
    return (
        f"{problem.key!r} is no setting of a run but of methods ({', '.join(owners[:3])}{more}); it stands behind "
        f'their name, as in "{owners[0]}({problem.key}=...)"'
    )
