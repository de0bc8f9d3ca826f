"""What the shell offers at a press of Tab, asked for as the installed script does, and without waiting for torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fairsilo.cli import app, completing
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.plugins import registered
from fairsilo.reproduction.tables import tables

PRESS = """
import sys
sys.argv = ["fairsilo"]
from fairsilo.cli import main
try:
    main()
except SystemExit as end:
    heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "transformers"} & set(sys.modules)
    sys.exit(" ".join(heavy) or end.code)
"""


def asked(**given: str) -> list[str]:
    """What the program answers the shell's question."""
    found = CliRunner().invoke(app, [], prog_name="fairsilo", env=given)
    assert (found.exit_code, found.stderr) == (0, "")
    return found.stdout.split()


def in_bash(*words: str) -> dict[str, str]:
    """How bash asks: its words, of which the last is being typed."""
    line = "\n".join(["fairsilo", *words])
    return {"_FAIRSILO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}


def test_the_names_in_the_file_are_those_of_the_catalogue() -> None:
    assert completing.methods() == list(dict.fromkeys([*CATALOGUE, *registered("fairsilo.methods")]))
    assert completing.tables() == sorted(table.name for table in tables())


@pytest.mark.parametrize(
    ("words", "offered"), [(("ru",), ["run", "runs"]), (("run", "method", "=", "fedhe"), ["fedheal"])]
)
def test_the_answer_does_not_wait_for_torch(words: tuple[str, ...], offered: list[str]) -> None:
    environment = {**os.environ, **in_bash(*words)}
    done = subprocess.run([sys.executable, "-c", PRESS], env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("compare", "fedpro"), ["fedprox", "fedproc", "fedproto", "fedprox-ft"]),
        (("compare", "fedavg", "fedhe"), ["fedheal"]),
        (("compare", "--seeds", "0,1", "fedavg", "q"), ["q-ffl"]),
        (("tune", "ditt"), ["ditto"]),
        (("methods", "ditt"), ["ditto"]),
        (("check", "ditt"), ["ditto"]),
        (("advise", "ditt"), ["ditto"]),
        (("reproduce", "fedheal/table3"), ["fedheal/table3-digits", "fedheal/table3-office"]),
        (("tune", "--table", "fedheal/table3"), ["fedheal/table3-digits", "fedheal/table3-office"]),
        # bash breaks words at `=` and replaces the last piece alone
        (("run", "rounds", "=", "3", "method", "=", "fedhe"), ["fedheal"]),
        (("run", "baseline", "=", "fedhe"), ["fedheal"]),
        (("run", "rounds", "=", "fedhe"), []),
        # where nothing is offered the shell completes files: run folders, files of settings, data
        (("report", "run"), []),
        (("resume", ""), []),
        (("run", "-c", "fed"), []),
        (("run", "fed"), []),
    ],
)
def test_values_are_offered(words: tuple[str, ...], offered: list[str]) -> None:
    assert sorted(asked(**in_bash(*words))) == sorted(offered)


def test_after_a_bare_method_all_of_them_are_offered() -> None:
    assert asked(**in_bash("run", "method", "=")) == completing.methods()


def test_a_shell_that_does_not_break_words_gets_them_whole() -> None:
    line = "fairsilo run rounds=3 method=fedhe"
    fish = {"_FAIRSILO_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert asked(**fish, _TYPER_COMPLETE_ARGS=line) == ["method=fedheal"]


def test_the_script_leaves_the_rest_to_files() -> None:
    script = asked(_FAIRSILO_COMPLETE="source_bash")
    assert script[script.index("complete") :][:3] == ["complete", "-o", "default"]
