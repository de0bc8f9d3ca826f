"""Names that look like markup, formulas or code; and what goes wrong outside the program ends in one sentence."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import tiny
from fairsilo.cli.progress import ProgressListener
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Event
from fairsilo.engine.processes import Worker
from fairsilo.report.figures.files import write_figure
from fairsilo.report.page import write_report
from fairsilo.report.spreadsheet import csv_text
from fairsilo.report.tables import comparison_csv, comparison_table, held_out_tables, run_table
from test_cli import FAST, call, here, packed  # noqa: F401 - fixtures
from test_figures import replay

ODD = ("a[/x]", "<script>alert(1)</script>", "=1+1", "[bold]b\\")


# --------------------------------------------------------------------------------------------------------------- names
@pytest.fixture(scope="module")
def odd_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run whose silos have odd names, in a folder with an odd name."""
    import fairsilo

    people = tiny.federation()
    silos = [tiny.silo(name, 20.0 * index, 24, index) for index, name in enumerate(ODD)]
    odd = Federation("<i>mine</i>", people.classes, tuple(silos), people.unseen)
    out = tmp_path_factory.mktemp("odd") / "r[" / "x]"
    settings: dict[str, Any] = {"rounds": 2, "epochs": 1, "engine": {"name": "sequential"}}
    return fairsilo.run(method="fedavg", model=tiny.TinyNet, federation=odd, out=out, **settings)


def rendered(table: Any) -> str:
    text = io.StringIO()
    Console(file=text, width=250).print(table)
    return text.getvalue()


def test_names_with_markup_stand_in_tables_as_they_are(odd_run: Any) -> None:
    shown = rendered(run_table("a[/x]", odd_run.summary, ("[red]b", odd_run.summary)))
    for name in (*ODD, "a[/x]", "[red]b"):
        assert name in shown
    cells = [{"method": "m[/x]", "held_out": name, "seed": 0, "summary": odd_run.summary} for name in ODD]
    content = {"methods": ["m[/x]"], "held_out": list(ODD), "seeds": [0], "cells": cells}
    for table in (*held_out_tables(content), comparison_table(content)):
        assert "m[/x]" in rendered(table)


def test_names_with_markup_stand_in_the_page_as_text(odd_run: Any) -> None:
    page = (odd_run.folder / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<i>mine" not in page


def test_the_command_line_prints_a_folder_with_markup(odd_run: Any, capsys: Any) -> None:
    code, out, err = call(capsys, "report", str(odd_run.folder))
    assert (code, err) == (0, "")
    assert f"report: {odd_run.folder}" in out


def test_the_progress_bar_shows_names_with_markup() -> None:
    screen = io.StringIO()
    with ProgressListener(Console(file=screen, force_terminal=True, width=120)) as listener:
        listener(Event("method", 0, 2, text="m[/x]"))
        listener(Event("reply", 1, 2, silo="a[/x]", text="train", loss=0.5))
        listener(Event("round", 1, 2, text="[/y] said"))
    assert "m[/x]" in screen.getvalue()
    assert "train a[/x]" in screen.getvalue()


def test_a_spreadsheet_runs_no_cell() -> None:
    names = ("=1+1", "+x", "-x", "@x", "\tx", "-", "-1.5", "+2", "plain", "a=b")
    rows = [{"=name": name, "value": -0.5} for name in names]
    head, *lines = list(csv.reader(io.StringIO(csv_text(["=name", "value"], rows))))
    assert head == ["'=name", "value"]
    assert [line[0] for line in lines] == ["'=1+1", "'+x", "'-x", "'@x", "'\tx", "-", "-1.5", "+2", "plain", "a=b"]
    assert {line[1] for line in lines} == {"-0.5"}


def test_both_kinds_of_csv_files_are_harmless(odd_run: Any, tmp_path: Path) -> None:
    cell = {"method": "@sum(a)", "held_out": "=1+1", "seed": 0, "summary": odd_run.summary}
    text = comparison_csv({"methods": ["@sum(a)"], "held_out": ["=1+1"], "seeds": [0], "cells": [cell]})
    (line,) = csv.DictReader(io.StringIO(text))
    assert (line["method"], line["held_out"]) == ("'@sum(a)", "'=1+1")
    write_figure("gap-variance", replay(rounds=1, silos=("=a", "b")), tmp_path)
    found = list(csv.DictReader((tmp_path / "gap-variance.csv").read_text(encoding="utf-8").splitlines()))
    assert {line["silo"] for line in found} == {"'=a", "b"}
    assert all(float(line["generalisation_gap"]) is not None for line in found)


def test_a_drawing_in_a_run_folder_runs_nothing_in_the_page(odd_run: Any) -> None:
    folder = odd_run.folder / "figures"
    folder.mkdir()
    (folder / "mine.json").write_text(json.dumps({"title": "<b>t</b>", "about": "<script>x</script>"}))
    (folder / "mine.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    page = write_report(odd_run.folder).read_text(encoding="utf-8")
    assert '<img src="data:image/svg+xml;base64,' in page
    assert 'alt="&lt;b&gt;t&lt;/b&gt;"' in page
    assert "<script" not in page
    assert "default-src 'none'" in page


# ---------------------------------------------------------------------------------------------- one sentence and an end
BROKEN = """
import torch


def make(classes, channels):
    raise OSError("no such weights")


class Net(torch.nn.Module):
    def __init__(self, classes, channels):
        super().__init__()
        self.head = torch.nn.Linear(1, classes)

    def forward(self, inputs):
        raise KeyError("bad forward")
"""


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("broken_net:make", "error: model 'broken_net:make' raised OSError: no such weights"),
        ("broken_net:Net", "error: model 'broken_net:Net' raised KeyError on an input of 3x8x8: 'bad forward'"),
        ("broken_import:make", "error: model 'broken_import:make' cannot be imported: RuntimeError: boom"),
    ],
)
def test_a_model_that_raises(here: Path, packed: Path, capsys: Any, model: str, sentence: str) -> None:  # noqa: F811
    (here / "broken_net.py").write_text(BROKEN)
    (here / "broken_import.py").write_text('raise RuntimeError("boom")\n')
    code, _, err = call(capsys, "run", "method=fedavg", f"packed={packed}", f"model={model}", *FAST, "-o", "r")
    assert (code, err) == (2, sentence + "\n")
    assert not (here / "r").exists()


@pytest.mark.parametrize("command", [["run", "method=fedavg"], ["compare", "fedavg"]])
def test_a_folder_that_cannot_be_written(here: Path, packed: Path, capsys: Any, command: list[str]) -> None:  # noqa: F811
    (here / "file").write_text("")
    arguments = [*command, f"packed={packed}", "model=my_net:make", *FAST, "-o", "file/r"]
    code, _, err = call(capsys, *arguments)
    assert code != 0
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "file/r" in err


def arguments_of(packed: Path, *more: str) -> list[str]:  # noqa: F811
    return [sys.executable, "-m", "fairsilo.cli", "run", "method=fedavg", f"packed={packed}", *more]


def test_a_full_disk_ends_in_a_sentence_that_says_how_to_go_on(here: Path, packed: Path) -> None:  # noqa: F811
    """A limit on the size of files fails in the same place as a full disk, with another number."""
    done = subprocess.run(
        arguments_of(packed, *FAST, "-o", "r[/x]"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot read or write r[/x]/")
    assert done.stderr.endswith("File too large; `fairsilo resume 'r[/x]'` goes on from the last complete round\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_an_interrupt_names_the_folder_and_prints_no_traceback(here: Path, packed: Path) -> None:  # noqa: F811
    """Ctrl-C reaches every process of the terminal's group, the workers too."""
    engine = ["engine.name=processes", "engine.workers=2", "rounds=10000", "epochs=1", "batch_size=8"]
    run = subprocess.Popen(
        arguments_of(packed, *engine, "-o", "r"),
        start_new_session=True,
        # where the tests run in the background of a shell, interrupts are ignored, also by what they start
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (here / "r" / "rounds.jsonl").exists():
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate()
    assert (run.returncode, err) == (130, "interrupted; `fairsilo resume r` goes on from the last complete round\n")


def test_an_interrupt_does_not_reach_a_worker_that_is_starting() -> None:
    worker = Worker()
    try:
        assert worker.process.pid is not None
        os.kill(worker.process.pid, signal.SIGINT)
        assert worker.pipe.recv() == "ready"
    finally:
        worker.end()


# -------------------------------------------------------------------------------------------------------------- figures
def test_the_list_of_figures_as_json(capsys: Any) -> None:
    code, out, _ = call(capsys, "figure", "list", "--json")
    assert code == 0
    assert [one["name"] for one in json.loads(out)][:2] == ["gap-variance", "weight-gap"]
    assert {"name", "title", "about"} == set(json.loads(out)[0])


@pytest.mark.slow
def test_drawing_all_figures_says_which_one_is_under_way(here: Path, packed: Path, capsys: Any) -> None:  # noqa: F811
    run = ["run", "method=fedavg", f"packed={packed}", "model=my_net:make", *FAST, "keep_local=true", "-o", "r"]
    assert call(capsys, *run)[0] == 0
    code, out, err = call(capsys, "figure", "all", "r", "--trust")
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if line.endswith("...")]
    assert lines[0] == "gap-variance (1 of 6) ..."
    assert lines[-1] == "update-consistency (6 of 6) ..."
    code, out, _ = call(capsys, "figure", "gap-variance", "r", "--trust", "--json")
    assert len(json.loads(out)["files"]) == 4


def test_a_fingerprint_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Between colons stand names of pictures for terminals, such as AB and ID."""
    from fairsilo.cli.output import complain, say

    for print_ in (say, complain):
        print_("SHA256:0F:AB:CL:ID:OK:B5:[bold]")
    assert capsys.readouterr() == ("SHA256:0F:AB:CL:ID:OK:B5:[bold]\n",) * 2
