"""`fairsilo report` on files that were cut off or changed: one sentence with the folder or file, and exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairsilo.report.page import read_run
from fairsilo.runs.counting import read_comparison
from fairsilo.runs.folder import BASELINE
from fairsilo.runs.inventory import damage_told
from test_cli import call
from test_left_out import DELETE, GONE, comparison
from test_report_page import make


def finished(folder: Path, name: str = "faa") -> Path:
    make(folder, name)
    (folder / "summary.json").write_text(json.dumps(read_run(folder).summary))
    return folder


def without(path: Path, key: str) -> None:
    content = json.loads(path.read_text())
    del content[key]
    path.write_text(json.dumps(content))


RUNS: dict[str, tuple[Callable[[Path], object], str]] = {
    "config": (lambda run: (run / "config.yaml").write_text("data: 5"), "{run} holds what no run writes (AttributeErr"),
    "round": (lambda run: (run / "rounds.jsonl").write_text('{"round":"x"}'), "{run} holds what no run writes ("),
    "row": (lambda run: (run / "metrics.jsonl").write_text("5\n"), "{run}/metrics.jsonl is damaged: its line 1 is no "),
    "rounds": (lambda run: without(run / "summary.json", "rounds"), "{run} holds what no run writes (KeyError: 'round"),
    "method": (lambda run: without(run / "run.json", "method"), "{run} holds what no run writes (KeyError: 'method'"),
    "json": (lambda run: (run / "summary.json").write_text("{"), "{run}/summary.json is damaged: "),
    "baseline": (
        lambda run: without(finished(run / BASELINE, "fedavg") / "summary.json", "fairness"),
        "{run} holds what no run writes (KeyError: 'fairness'",
    ),
}


@pytest.mark.parametrize("how", RUNS)
def test_a_damaged_run_is_one_sentence(tmp_path: Path, capsys: Any, how: str) -> None:
    run = finished(tmp_path / "run")
    assert call(capsys, "report", str(run))[0] == 0
    (run / "report.html").unlink()
    spoil, said = RUNS[how]
    spoil(run)
    for more in ([], ["--json"]):
        code, out, err = call(capsys, "report", str(run), *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"error: {said.format(run=run)}")
    assert not (run / "report.html").exists()


def test_a_page_that_cannot_be_written_is_no_damage(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr("fairsilo.report.page.write_report", full)
    code, _, err = call(capsys, "report", str(finished(tmp_path / "run")))
    assert (code, err) == (1, "error: cannot read or write report.html: No space left on device\n")
    with pytest.raises(KeyboardInterrupt), damage_told(tmp_path):
        raise KeyboardInterrupt


CELL = {"method": "faa", "held_out": "sketch", "seed": 0, "folder": "faa/sketch-seed0"}
LACKING: dict[str, tuple[object, str]] = {
    "text": (["x"], "its run 1 has no method"),
    "folder alone": ([{"folder": "x"}], "its run 1 has no method"),
    "no place": ([{**CELL, "folder": 5}], "its run 1 has no folder"),
    "neither": ([{key: CELL[key] for key in ("method", "held_out", "seed")}], "its run 1 has no folder"),
    "domain": ([{**CELL, "held_out": None}], "its run 1 has no held_out"),
    "seed": ([CELL, {**CELL, "seed": "x"}], "its run 2 has no seed"),
    "no list": ({"a": 1}, "it has no cells"),
    "empty summary": ([{**CELL, "summary": {}}], "its run 1 has no summary"),
    "bare summary": ([{**CELL, "summary": 5}], "its run 1 has no summary"),
}


@pytest.mark.parametrize("name", ["comparison.json", "planned.json"])
@pytest.mark.parametrize("how", LACKING)
def test_a_damaged_comparison_is_one_sentence(tmp_path: Path, capsys: Any, how: str, name: str) -> None:
    folder = comparison(tmp_path / "all")
    content = json.loads((folder / "comparison.json").read_text())
    cells, said = LACKING[how]
    (folder / "comparison.json").unlink()
    (folder / name).write_text(json.dumps({**content, "cells": cells}))
    code, out, err = call(capsys, "report", str(folder))
    assert (code, out, err) == (2, "", f"error: {folder / name} is damaged: {said}\n")


@pytest.mark.parametrize(
    ("key", "value"), [("methods", "fedavg"), ("methods", [5]), ("held_out", [None]), ("seeds", 2), ("seeds", ["x"])]
)
def test_a_comparison_names_its_methods_domains_and_seeds(tmp_path: Path, capsys: Any, key: str, value: object) -> None:
    folder = comparison(tmp_path / "all")
    content = json.loads((folder / "comparison.json").read_text())
    (folder / "comparison.json").write_text(json.dumps({**content, key: value}))
    code, _, err = call(capsys, "report", str(folder))
    assert (code, err) == (2, f"error: {folder / 'comparison.json'} is damaged: it has no {key}\n")


def test_a_summary_that_only_a_page_stumbles_over_is_one_sentence(tmp_path: Path, capsys: Any) -> None:
    folder = comparison(tmp_path / "all")
    content = json.loads((folder / "comparison.json").read_text())
    content["cells"][0]["summary"]["selection"] = "my own"
    (folder / "comparison.json").write_text(json.dumps(content))
    code, _, err = call(capsys, "report", str(folder))
    assert (code, err) == (2, f"error: {folder} holds what no run writes (KeyError: 'my own')\n")


@pytest.mark.parametrize("text", ['{"round": "x"}', '{"notes": 5}'])
def test_of_a_comparison_the_run_is_named_whose_page_cannot_be_drawn(tmp_path: Path, capsys: Any, text: str) -> None:
    folder = comparison(tmp_path / "all")
    (folder / GONE / "rounds.jsonl").write_text(text)
    code, _, err = call(capsys, "report", str(folder))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: {folder / GONE} holds what no run writes (")


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("metrics.jsonl", "5\n", "metrics.jsonl is damaged: its line 1 is no row"),
        ("metrics.jsonl", '{"round": [1]}\n', "holds what no run writes (TypeError: "),
        ("summary.json", "{}", "summary.json is damaged: it holds no results of a run"),
        ("summary.json", "", "summary.json is damaged: "),
    ],
)
def test_a_run_whose_rows_or_results_are_none_is_left_out(
    tmp_path: Path, capsys: Any, file: str, text: str, why: str
) -> None:
    """Also where the comparison was cut off, and the results of a run are looked for in its own folder."""
    folder = comparison(tmp_path / "all")
    (folder / GONE / file).write_text(text)
    content = json.loads((folder / "comparison.json").read_text())
    for again in range(2):
        found = json.loads(call(capsys, "report", str(folder), "--json")[1])
        (gone,) = found["left_out"]
        assert (gone["method"], gone["seed"], gone["cure"]) == ("faa", 1, DELETE.format(run=folder / GONE))
        assert why in gone["why"]
        if not again:
            (folder / "comparison.json").unlink()
            cells = [{key: value for key, value in cell.items() if key != "summary"} for cell in content["cells"]]
            (folder / "planned.json").write_text(json.dumps({**content, "cells": cells}))


def test_a_run_that_is_finished_without_results_is_left_out_of_a_comparison_that_was_cut_off(tmp_path: Path) -> None:
    folder = comparison(tmp_path / "all")
    content = json.loads((folder / "comparison.json").read_text())
    (folder / GONE / "summary.json").unlink()
    assert read_comparison(folder)["left_out"] == []  # its results are in those of the comparison
    (folder / "comparison.json").unlink()
    cells = [{key: value for key, value in cell.items() if key != "summary"} for cell in content["cells"]]
    (folder / "planned.json").write_text(json.dumps({**content, "cells": cells}))
    (gone,) = read_comparison(folder)["left_out"]
    assert gone["why"].endswith("it has no summary.json")


@pytest.mark.parametrize("plan", ["{", "[]", '{"cells": ["x"]}', "\N{SNOWMAN}", "cells"])
def test_results_are_shown_whatever_became_of_the_plan(tmp_path: Path, capsys: Any, plan: str) -> None:
    folder = comparison(tmp_path / "all")
    whole = call(capsys, "report", str(folder))[:2]
    if plan == "cells":  # names all that is needed, but no runs
        plan = json.dumps({**json.loads((folder / "comparison.json").read_text()), "cells": ["x"]})
    (folder / "planned.json").write_text(plan)
    assert call(capsys, "report", str(folder))[:2] == whole
    (folder / "comparison.json").unlink()
    code, _, err = call(capsys, "report", str(folder))
    assert (code, err.count("\n")) == (2, 1)
