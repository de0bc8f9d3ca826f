"""A comparison counts the runs that are finished and whole, and says which it leaves out, why, and what helps."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairsilo.analysis.paired import compare_cells
from fairsilo.config import as_dict, experiment
from fairsilo.errors import FairsiloError
from fairsilo.report.comparison_page import write_comparison
from fairsilo.report.left_out import left_out_tables
from fairsilo.report.page import read_run
from fairsilo.runs.counting import AGAIN, read_comparison
from fairsilo.runs.packing import pack
from test_cli import call
from test_report_page import check_well_formed, make, part, words
from test_widths import shown

METHODS, SEEDS = ("fedavg", "faa"), (0, 1)
GONE = Path("faa") / "sketch-seed1"  # the run that is spoilt


def comparison(folder: Path) -> Path:
    """Two methods and two seeds; every run differs."""
    cells = []
    for place, (name, seed) in enumerate((name, seed) for name in METHODS for seed in SEEDS):
        run = make(folder / name / f"sketch-seed{seed}", name, shift=0.02 * place**2)
        found = read_run(run).summary
        (run / "summary.json").write_text(json.dumps(found))
        place_of = run.relative_to(folder).as_posix()
        cells.append({"method": name, "held_out": "sketch", "seed": seed, "summary": found, "folder": place_of})
    content = {"methods": METHODS, "held_out": ["sketch"], "seeds": SEEDS, "cells": cells}
    settings = as_dict(experiment({"method": METHODS[0]}))
    (folder / "comparison.json").write_text(json.dumps({**content, "settings": settings}))
    return folder


def cut(run: Path, name: str, share: float = 0.5) -> None:
    text = (run / name).read_text()
    (run / name).write_text(text[: int(len(text) * share)])


def lose_a_round(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["round"] < 6))


def interrupt(run: Path) -> None:
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "status": "running"}))


DELETE = f"delete {{run}} and {AGAIN}, which makes that run anew"
SPOILT: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "run": (lambda run: cut(run, "run.json"), "run.json is damaged: ", DELETE),
    "summary": (lambda run: cut(run, "summary.json"), "summary.json is damaged: ", DELETE),
    "rows": (lambda run: cut(run, "metrics.jsonl", 0.998), "metrics.jsonl is damaged: its line 78 is no row", DELETE),
    "round": (lose_a_round, "metrics.jsonl is damaged: it has no row of round 6", DELETE),
    "text": (lambda run: (run / "metrics.jsonl").write_bytes(b"\xff"), "it is no text in UTF-8", DELETE),
    "stopped": (interrupt, "{run} is not finished (interrupted)", f"{AGAIN}, which goes on with that run"),
    "gone": (shutil.rmtree, "{run} is not there", AGAIN),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_run_that_is_not_whole_is_in_no_number_and_told(tmp_path: Path, capsys: Any, how: str) -> None:
    folder = comparison(tmp_path / "all")
    everything = json.loads((folder / "comparison.json").read_text())
    spoil, why, cure = SPOILT[how]
    spoil(folder / GONE)
    why, cure = (text.format(run=folder / GONE) for text in (why, cure))
    left = [cell for cell in everything["cells"] if cell["folder"] != GONE.as_posix()]
    wanted = compare_cells(everything["methods"], left)
    assert wanted != compare_cells(everything["methods"], everything["cells"])

    code, out, err = call(capsys, "report", str(folder), "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["table"] == wanted
    (gone,) = found["left_out"]
    assert (gone["method"], gone["held_out"], gone["seed"], gone["cure"]) == ("faa", "sketch", 1, cure)
    assert why in gone["why"]

    said = " ".join(call(capsys, "report", str(folder))[1].replace("│", " ").split())
    assert "left out: in no number above" in said
    assert "faa, sketch, seed 1" in said  # whole, however long the path beside it
    assert said.count("mean ± std over up to 2 seeds; last round") == 1

    page = (folder / "comparison.html").read_text(encoding="utf-8")
    check_well_formed(page)
    shown = words(part(page, "left-out"))
    assert f"faa, sketch, seed 1: {gone['why']}; {cure}" in shown
    assert "3 of 4 count" in words(page)
    assert "faa, sketch, seed 1" not in words(part(page, "runs"))
    assert "means over up to 2 runs each (2 seeds: 0, 1; 1 held-out domain, less those left out)" in words(page)
    assert "sample standard deviation over up to 2 seeds (ddof 1)" in words(page)
    assert "± 95" not in said + words(page)  # of one pair of runs there is no margin
    assert "No difference is of several seeds" in words(page)

    rows = list(csv.DictReader((folder / "comparison.csv").read_text().splitlines()))
    assert [row["left_out"] for row in rows] == ["", "", "", gone["why"]]
    assert [row["generalisation"] for row in rows][3] == ""
    first, titled = (folder / "comparison.tex").read_text().splitlines()[:2]
    assert titled == "% accuracy in percent, mean +- std over up to 2 seeds"
    assert "+- 95" not in (folder / "comparison.tex").read_text()
    assert first == f"% left out: faa, sketch, seed 1 ({' '.join(gone['why'].split())})"
    whole = (folder / "fedavg" / "sketch-seed0" / "report.html").read_text()
    assert "One of the 4 runs of a comparison" in whole  # there are as many as were asked for


def test_the_name_of_a_run_stays_whole_beside_a_long_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns has no room for both, and a path may be broken anywhere."""
    run = {"method": "faa", "held_out": "sketch", "seed": 1, "why": f"/{70 * 'x'} is not there", "cure": AGAIN}
    (table,) = left_out_tables({"left_out": [run]})
    lines = shown(table, 80, monkeypatch).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("faa, sketch, seed 1" in line for line in lines) == 1
    (table,) = left_out_tables({"left_out": [{**run, "method": "fedprox(mu=0.1) | fedheal(tau=0.4, beta=0.2)"}]})
    lines = shown(table, 80, monkeypatch).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("is not there" in line for line in lines) == 1  # what is long leaves room for the reason


def test_of_whole_runs_nothing_is_left_out(tmp_path: Path, capsys: Any) -> None:
    folder = comparison(tmp_path / "all")
    assert json.loads(call(capsys, "report", str(folder), "--json")[1])["left_out"] == []
    assert "left out" not in call(capsys, "report", str(folder))[1]
    page = (folder / "comparison.html").read_text(encoding="utf-8")
    assert 'id="left-out"' not in page
    assert "left out" not in (folder / "comparison.tex").read_text() + (folder / "comparison.csv").read_text()


def test_a_comparison_without_any_folder_of_its_runs_counts_them_all(tmp_path: Path) -> None:
    """It was sent by itself, with all results in it."""
    folder = comparison(tmp_path / "all")
    for name in METHODS:
        shutil.rmtree(folder / name)
    assert len(read_comparison(folder)["cells"]) == 4
    assert "<dt>Runs</dt><dd>4</dd>" in write_comparison(folder).read_text(encoding="utf-8")


def test_a_method_of_which_no_run_counts_has_no_numbers(tmp_path: Path, capsys: Any) -> None:
    folder = comparison(tmp_path / "all")
    for seed in SEEDS:
        cut(folder / "fedavg" / f"sketch-seed{seed}", "run.json")  # what the others are compared with
    code, out, err = call(capsys, "report", str(folder))
    assert (code, err) == (0, "")
    assert "fedavg, sketch," in " ".join(out.split())
    check_well_formed((folder / "comparison.html").read_text(encoding="utf-8"))


def test_a_seed_of_which_no_run_counts_is_in_no_title(tmp_path: Path, capsys: Any) -> None:
    """Every number is of one run, whatever was asked for."""
    folder = comparison(tmp_path / "all")
    plan = (folder / "comparison.json").read_text()
    for name in METHODS:
        shutil.rmtree(folder / name / "sketch-seed1")
    for kept in ("comparison.json", "planned.json"):
        (folder / "comparison.json").unlink()
        (folder / kept).write_text(plan)
        said = " ".join(call(capsys, "report", str(folder))[1].replace("│", " ").split())
        assert "accuracy in percent, one run; last round" in said
        page = words((folder / "comparison.html").read_text(encoding="utf-8"))
        assert "one run each (1 seed: 0; 1 held-out domain)" in page
        assert "one seed, so that there is no ±" in page
        assert "Seeds 0 Runs 2 of 4 count" in " ".join(page.split())
        latex = (folder / "comparison.tex").read_text()
        assert "% accuracy in percent, one run" in latex
        assert "one seed; last column: difference to fedavg, paired\n" in latex
        assert not re.search(r"2 seeds|± 95|\+- ", said + page + latex)
        run = words((folder / "fedavg" / "sketch-seed0" / "report.html").read_text(encoding="utf-8"))
        assert "One of the 4 runs of a comparison with seeds 0, 1; this one" in run  # as they were asked for
        assert read_comparison(folder)["asked"] == {"held_out": ["sketch"], "seeds": [0, 1]}


def test_a_comparison_of_which_no_run_counts_is_refused(tmp_path: Path) -> None:
    folder = comparison(tmp_path / "all")
    for name in METHODS:
        for seed in SEEDS:
            cut(folder / name / f"sketch-seed{seed}", "summary.json")
    with pytest.raises(FairsiloError, match=r"all has no run that counts: .*summary\.json is damaged: .*; delete "):
        read_comparison(folder)


def cut_off(folder: Path, seeds: tuple[int, ...] = SEEDS) -> Path:
    """The comparison as its command leaves it that is interrupted in the last of its runs, before any results."""
    content = json.loads((folder / "comparison.json").read_text())
    cells = [{key: value for key, value in cell.items() if key != "summary"} for cell in content["cells"]]
    cells += [
        {**cell, "seed": seed, "folder": cell["folder"].replace("seed0", f"seed{seed}")}
        for cell in cells[::2]
        for seed in seeds
        if seed not in SEEDS
    ]
    (folder / "planned.json").write_text(json.dumps({**content, "cells": cells, "seeds": seeds}))
    (folder / "comparison.json").unlink()
    interrupt(folder / GONE)
    return folder


def test_a_comparison_that_was_cut_off_is_shown_with_what_is_there(tmp_path: Path, capsys: Any) -> None:
    whole = comparison(tmp_path / "all")
    everything = json.loads((whole / "comparison.json").read_text())
    folder = cut_off(whole, seeds=(0, 1, 2))
    code, out, err = call(capsys, "report", str(folder), "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    count = [cell for cell in everything["cells"] if cell["folder"] != GONE.as_posix()]
    assert found["table"] == compare_cells(everything["methods"], count)
    assert [(one["method"], one["seed"]) for one in found["left_out"]] == [("faa", 1), ("fedavg", 2), ("faa", 2)]
    assert found["left_out"][0]["why"].endswith("is not finished (interrupted)")
    assert found["left_out"][1]["why"].endswith("fedavg/sketch-seed2 is not there")
    assert "3 of 6 count" in words((folder / "comparison.html").read_text(encoding="utf-8"))

    pack(folder, tmp_path / "all.zip")
    elsewhere = json.loads(call(capsys, "report", str(tmp_path / "all.zip"), "--json")[1])
    assert elsewhere["table"] == found["table"]
    assert len(elsewhere["left_out"]) == 3


def test_results_of_an_earlier_command_do_not_stand_for_those_of_a_later_one(tmp_path: Path, capsys: Any) -> None:
    """More seeds were asked for, and that was cut off; finished with the same runs, the results count as they are."""
    folder = comparison(tmp_path / "all")
    results = (folder / "comparison.json").read_text()
    cut_off(folder, seeds=(0, 1, 2))
    (folder / "comparison.json").write_text(results)
    assert len(json.loads(call(capsys, "report", str(folder), "--json")[1])["left_out"]) == 3
    (folder / "planned.json").write_text(results)
    assert len(json.loads(call(capsys, "report", str(folder), "--json")[1])["left_out"]) == 1


def test_a_folder_with_a_bare_list_of_runs_is_no_comparison_yet(tmp_path: Path, capsys: Any) -> None:
    """As earlier versions planned."""
    folder = cut_off(comparison(tmp_path / "all"))
    plan = json.loads((folder / "planned.json").read_text())
    (folder / "planned.json").write_text(json.dumps({"cells": plan["cells"]}))
    code, _, err = call(capsys, "report", str(folder))
    assert code == 2
    assert "is no run folder" in err


def test_the_list_of_runs_says_how_a_comparison_goes_on(tmp_path: Path, capsys: Any) -> None:
    """By its own command, since there may be runs that were not begun; a run that is part of none is resumed."""
    folder = cut_off(comparison(tmp_path / "all"))
    interrupt(folder / "fedavg" / "sketch-seed1")
    interrupt(make(tmp_path / "alone"))
    said = call(capsys, "runs", str(tmp_path))[1]
    assert said.count(f"to go on with all runs in {folder}: give the command that made it again") == 1
    assert re.findall(r"fairsilo resume (.*)", said) == [str(tmp_path / "alone")]
