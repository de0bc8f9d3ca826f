"""What the shell offers at a press of Tab, asked for as the installed script does, and without waiting for torch."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.main import get_command

from fairsilo.advice.verdict import GOALS
from fairsilo.cli import app, completing
from fairsilo.config import all_settings, experiment, known_keys
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.plugins import registered
from fairsilo.report.figures.registry import FIGURES
from fairsilo.reproduction.tables import tables
from fairsilo.runs.estimator import WHICH
from fairsilo.runs.export_formats import FORMATS
from fairsilo.scaffold import KINDS
from fairsilo.tuning.judging import BY
from fairsilo.tuning.studies import SAMPLERS

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


COMMAND = get_command(app)  # made once: that takes ten times as long as an answer


def asked(**given: str) -> list[str]:
    """What the program answers the shell's question."""
    said, complained = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(said), redirect_stderr(complained):
        for name, value in given.items():
            patched.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            COMMAND.main([], prog_name="fairsilo")
    assert (end.value.code or 0, complained.getvalue()) == (0, "")
    return said.getvalue().split()


def in_bash(*words: str) -> dict[str, str]:
    """How bash asks: its words, of which the last is being typed."""
    line = "\n".join(["fairsilo", *words])
    return {"_FAIRSILO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}


def test_the_names_in_the_file_are_those_of_the_catalogue() -> None:
    assert completing.methods() == list(dict.fromkeys([*CATALOGUE, *registered("fairsilo.methods")]))
    assert completing.tables() == sorted(table.name for table in tables())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ru",), ["run", "runs"]),
        (("run", "method", "=", "fedhe"), ["fedheal"]),
        (("run", "model", "=", "une"), ["unet"]),
        (("run", "data", "=", "gly"), ["glyphs"]),
    ],
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
        (("compare", "--seeds", "0,1", "fedavg", "q"), ["q-ffl", "quorum=", "quorum=0.5"]),
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
        # settings, by both of their names
        (("run", "train.ro"), ["train.rounds=", "train.rounds=6"]),
        (("run", "rounds", "=", "3", "ro"), ["rounds=", "root="]),
        (("compare", "fedavg", "train.opt"), ["train.optimizer=", "train.optimizer=sgd"]),
        (("run", "bal"), ["balance=", "balance=false"]),
        (("run", "data.fol"), ["data.folder=", "data.folder=none"]),
        (("advise", "data.fit", "=", "s"), ["squeeze"]),
        (("tune", "fedavg", "balance", "=", "t"), ["true"]),
        (("compare", "fedavg", "optimizer", "=", "a"), ["adam", "adamw"]),
        (("run", "model", "=", "une"), ["unet"]),
        (("run", "data", "=", "gl"), ["glyphs"]),
        (("run", "data.name", "=", "pac"), ["pacs"]),
        (("run", "metric", "=", "hd"), ["hd95"]),
        (("compare", "fedavg", "data.folder", "=", "fed"), []),
        (("compare", "fedprox(mu", "=", "0"), []),
        # other words
        (("export", "run", "--to", "o"), ["onnx"]),
        (("export", "run", "--which", "l"), ["last"]),
        (("predict", "run", "--model", "b"), ["best"]),
        (("advise", "--goal", "f"), ["fair"]),
        (("tune", "--sampler", "t"), ["tpe"]),
        (("tune", "--by", "w"), ["worst"]),
        (("new", "m"), ["method", "model"]),
        (("figure", "t"), ["t-sne"]),
        (("figure", "l"), ["loss-surface", "list"]),
        (("models", "res"), ["resnet-10", "resnet-18", "resnet-50"]),
        (("bench", "--model", "ml"), ["mlp"]),
        (("datasets", "pre"), ["prepare"]),
        (("datasets", "prepare", "p"), ["pacs"]),
        (("datasets", "check", "p"), []),
        (("datasets", "--fit", "c"), ["crop"]),
        (("settings", "tra"), [name for name in completing.settings() if name.startswith("tra")]),
        # where nothing is offered the shell completes files: files of settings, data
        (("report", "other/"), []),
        (("run", "-c", "fed"), []),
        (("run", "fed"), []),
    ],
)
def test_values_are_offered(words: tuple[str, ...], offered: list[str]) -> None:
    assert sorted(asked(**in_bash(*words))) == sorted(offered)


@pytest.fixture(scope="module")
def behind() -> dict[str, list[str]]:
    """What is offered where a whole key is typed."""
    return {key: asked(**in_bash("run", key)) for key in known_keys()}


def test_no_key_is_the_only_way_on_since_shells_would_put_a_space_behind_it(behind: dict[str, list[str]]) -> None:
    assert behind
    assert {key: found for key, found in behind.items() if f"{key}=" not in found or len(found) < 2} == {}


def test_a_default_is_offered_as_it_is_typed(behind: dict[str, list[str]]) -> None:
    keys = {one["name"] for one in all_settings()} - {"method", "baseline"}  # of which each changes what the other is
    given = [both[1] for key in keys if len(both := behind[key]) == 2 and both[1].startswith(both[0])]
    assert len(given) > 0.8 * len(keys)
    for text in given:
        assert experiment({}, [text]) == experiment()


def test_a_bare_tab_names_the_settings_of_a_run_and_the_methods_of_a_comparison() -> None:
    assert asked(**in_bash("run", "")) == [f"{one['name']}=" for one in all_settings()]
    assert asked(**in_bash("compare", "")) == completing.methods()


def test_run_folders_are_offered_as_wholes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert asked(**in_bash("resume", "")) == []
    for name in ("runs/one", "runs/grid/fedavg/street", "runs/one/baseline", "runs/of me", "runs/.old", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
        for file in ("run.json", "config.yaml"):
            (tmp_path / name / file).touch()
    (tmp_path / "runs" / "torn").mkdir()
    both = ["runs/grid/fedavg/street", "runs/one"]
    for words in (("resume", ""), ("report", "ru"), ("figure", "t-sne", "runs/"), ("export", ""), ("predict", "")):
        assert asked(**in_bash(*words)) == both
    assert asked(**in_bash("resume", "runs/o")) == ["runs/one"]
    assert asked(**in_bash("resume", "else")) == []


def test_words_that_are_repeated_here_are_those_that_commands_know() -> None:
    assert completing.formats() == list(FORMATS)
    assert completing.figures() == [*FIGURES, "all", "list"]
    assert completing.goals() == ["all", *GOALS]
    assert completing.kinds() == list(KINDS)
    assert completing.which() == list(WHICH)
    assert completing.samplers() == list(SAMPLERS)
    assert completing.fits() == completing.values("data.fit")
    assert completing.scores() == list(BY)


def test_after_a_bare_method_all_of_them_are_offered() -> None:
    assert asked(**in_bash("run", "method", "=")) == completing.methods()


def test_a_shell_that_does_not_break_words_gets_them_whole() -> None:
    fish = {"_FAIRSILO_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for line, offered in (
        ("fairsilo run rounds=3 method=fedhe", ["method=fedheal"]),
        ("fairsilo compare fedavg model=une", ["model=unet"]),
        ("fairsilo run train.optimizer=adamw data.fit=c", ["data.fit=crop"]),
        ("fairsilo run rounds=3 train.roun", ["train.rounds=", "train.rounds=6"]),
    ):
        assert asked(**fish, _TYPER_COMPLETE_ARGS=line) == offered


def test_the_script_leaves_the_rest_to_files() -> None:
    script = asked(_FAIRSILO_COMPLETE="source_bash")
    assert script[script.index("complete") :][:3] == ["complete", "-o", "default"]
