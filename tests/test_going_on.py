"""How what was cut off goes on: each time by what can be copied from the sentence, and works."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fairsilo
from fairsilo import Event, FairsiloError, Federation
from fairsilo.core.part import About, Part
from fairsilo.report.page import read_results
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.opened import read_finished
from fairsilo.tuning.search import Tuning
from test_cli import call, here, packed  # noqa: F401 - fixtures
from test_left_out import comparison, interrupt
from test_report_page import make

SETTINGS: dict[str, Any] = {
    "model": "small-cnn",
    "train": {"rounds": 2, "epochs": 1, "batch_size": 8},
    "engine": {"name": "sequential"},
}


def asked(folder: Path, **content: Any) -> Path:
    """A folder in which a command tries something out."""
    folder.mkdir(parents=True)
    RunFolder(folder).write_json("asked.json", content)
    return folder


# ------------------------------------------------------------------------------------------------------ tune and advise
def test_a_search_goes_on_by_its_command_and_a_trial_that_was_given_up_not_at_all(tmp_path: Path, capsys: Any) -> None:
    folder = asked(tmp_path / "search", settings={}, sampler="tpe", trials=3)
    make(folder / "fedavg" / "street-trial0")
    behind = [make(folder / "fedavg" / f"street-trial{one}", status="interrupted") for one in (1, 2)]
    (folder / "tuning.html").touch()
    _, said, err = call(capsys, "runs", str(folder))
    assert re.findall("finished|given up|interrupted", said) == ["finished", "given up", "given up"]
    assert "to go on" not in said + err
    told = json.loads(call(capsys, "runs", "list", str(tmp_path), "--json")[1])
    assert [one["state"] for one in told] == ["finished", "given up", "given up"]
    for run in behind:
        (run / "checkpoint").mkdir()  # as one that was killed has it: nobody gave it up
    _, said, _ = call(capsys, "runs", str(folder / "fedavg"))
    assert said.count("interrupted") == 2
    assert re.findall("to go on.*", said) == [f"to go on with {folder}: give the command that made it again"]


def test_a_search_that_was_cut_off_in_the_first_round_of_a_trial_goes_on_too(tmp_path: Path, capsys: Any) -> None:
    """Before there is a checkpoint such a trial looks like one that was given up; the search has no page yet."""
    folder = asked(tmp_path / "search", settings={}, sampler="tpe", trials=3)
    make(folder / "fedavg" / "street-trial0", status="interrupted")
    going_on = f"to go on with {folder}: give the command that made it again"
    assert going_on in call(capsys, "runs", str(tmp_path))[1]
    (folder / "tuning.html").touch()
    assert going_on not in call(capsys, "runs", str(tmp_path))[1]


def test_pilots_go_on_by_the_command_that_compares_them(tmp_path: Path, capsys: Any) -> None:
    folder = asked(tmp_path / "advice", asked={"methods": ["fedavg", "faa"]}, domains=["sketch"])
    for turn in ("sketch-seed0", "sketch-seed1"):
        interrupt(comparison(folder / turn) / "faa" / "sketch-seed1")
    said = call(capsys, "runs", str(tmp_path))[1]
    assert re.findall("to go on.*", said) == [f"to go on with {folder}: give the command that made it again"]


# ---------------------------------------------------------------------------------------------------------- from Python
def own() -> Part:
    """A method that no text can name, as its class is inside a function."""

    @dataclass(frozen=True)
    class Mine(Part):
        about = About(paper="none", formula="w")
        name = "mine"

    return Mine()


def stopped(event: Event) -> None:
    if event.kind == "round" and event.round == 1:
        raise KeyboardInterrupt


def test_a_run_with_a_method_of_its_own_goes_on_in_python(here: Path, packed: Path, capsys: Any) -> None:  # noqa: F811
    again = "fairsilo.resume('r', method=...)"
    with pytest.raises(KeyboardInterrupt) as cut:
        fairsilo.run(method=own(), packed=str(packed), out="r", listener=stopped, **SETTINGS)
    assert cut.value.__notes__ == [f"`{again}` goes on from the last complete round"]
    code, _, err = call(capsys, "resume", "r")
    assert (code, err) == (
        2,
        "error: r was begun from Python with a method of its own; resume it there: "
        "fairsilo.resume(folder, method=...)\n",
    )
    assert re.findall("to go on.*", call(capsys, "runs", ".")[1]) == [f"to go on: {again}"]
    for refused in (lambda: read_finished(Path("r")), lambda: fairsilo.run(method=own(), packed=str(packed), out="r")):
        with pytest.raises(FairsiloError, match=re.escape(f"`{again}` goes on with it")):
            refused()
    assert fairsilo.resume("r", method=own()).method == "mine"
    assert "to go on" not in call(capsys, "runs", ".")[1]


# ----------------------------------------------------------------------------------------------- commands to be copied
def test_a_command_to_be_copied_has_its_path_in_quotes_where_that_needs_them(tmp_path: Path, capsys: Any) -> None:
    run = make(tmp_path / "two words")
    command = ["fairsilo", "resume", str(run)]
    with pytest.raises(FairsiloError, match="has no results yet") as refused:
        read_results(run)
    assert told(refused.value) == command
    for status, words in (("running", "is not finished"), ("stopped", "stopped before its end")):
        RunFolder(run).write_json("run.json", {"status": status, "method": "faa"})
        with pytest.raises(FairsiloError, match=words) as refused:
            read_finished(run)
        assert told(refused.value) == command
    with pytest.raises(FairsiloError, match="already holds a run") as refused:
        fairsilo.run(out=run)
    assert told(refused.value) == command
    interrupt(run)
    (line,) = re.findall("to go on: (.*)", call(capsys, "runs", str(tmp_path))[1])
    assert shlex.split(line) == command


def told(problem: FairsiloError) -> list[str]:
    """The words of the command that a sentence names, as a shell takes them."""
    (command,) = re.findall("`(.*)`", str(problem))
    return shlex.split(command)


@pytest.fixture
def search(people: Federation, tmp_path: Path) -> Tuning:
    pytest.importorskip("optuna", reason="needs the extra tune")
    once = {**SETTINGS["train"], "rounds": 1}
    found = fairsilo.tune(
        ["fedavg"], federation=people, trials=1, out=tmp_path / "two words", **SETTINGS | {"train": once}
    )
    (methods,) = found.found.values()
    methods["fedavg"]["at_chance"] = False  # whatever it learned: of guesses no command follows
    return found


@pytest.mark.parametrize("table", [None, "fedheal/table2-digits"])
def test_what_follows_a_search_can_be_copied(
    search: Tuning, table: str | None, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("fairsilo.api.tune", lambda *_, **__: search)
    code, out, err = call(capsys, "tune", *(["--table", table] if table else ["fedavg"]), "--trials", "1")
    assert code == 0, err
    (line,) = re.findall("on test data: (.*)", out)
    after = ["reproduce", table, "--tuned", str(search.folder)]
    assert shlex.split(line) == [
        "fairsilo",
        *(after if table else ["compare", "-c", str(search.folder / "tuned.yaml")]),
    ]


def test_what_uses_prepared_data_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    folder = tmp_path / "two words" / "pacs" / "packed"
    monkeypatch.setattr("fairsilo.data.preparing.prepare", lambda *_: folder)
    (line,) = re.findall("used by: (.*)", call(capsys, "datasets", "prepare", "pacs")[1])
    assert shlex.split(line) == ["fairsilo", "run", "data=pacs", f"data.root={tmp_path / 'two words'}"]
