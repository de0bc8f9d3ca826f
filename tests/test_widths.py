"""Tables in a terminal of 80 columns: no line is longer, no word is cut or broken, and no number is lost."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from fairsilo.analysis.metrics import AT_HOME, HEADLINES
from fairsilo.cli import output
from fairsilo.report.tables import RUNS_OF, comparison_table, held_out_tables, run_table, runs_table, spread_table
from fairsilo.runs.inventory import Kept
from test_tables import summary

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
METHODS = ("fedavg", "fedprox(mu=0.1) | fedheal", "fedavg @ lr=0.1")


def comparison(domains: tuple[str, ...] = DOMAINS, methods: tuple[str, ...] = METHODS) -> dict[str, Any]:
    """Three seeds; every run differs from every other."""
    cells = []
    for place, name in enumerate(methods):
        for number, domain in enumerate(domains):
            for seed in range(3):
                shift = 0.011 * place + 0.023 * number + 0.007 * seed * (1 + place)
                runs = summary(0.31 + shift, 0.52 + shift, 0.74 - 0.5 * shift)
                cells.append({"method": name, "held_out": domain, "seed": seed, "summary": runs})
    return {"methods": list(methods), "held_out": list(domains), "seeds": [0, 1, 2], "cells": cells}


def shown(table: Table, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """As `fairsilo compare` prints it."""
    screen = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=screen, width=width))
    output.show(table)
    return screen.getvalue()


def all_tables(content: dict[str, Any]) -> list[Table]:
    return [*held_out_tables(content), comparison_table(content), spread_table(content)]


def words(text: str) -> list[str]:
    return sorted(re.sub(r"[^\w.()=@%±|+:,²;≈-]|[┃│]", " ", text).split())


@pytest.mark.parametrize("place", range(5))
def test_a_comparison_fits_eighty_columns_with_every_word_whole(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = shown(all_tables(comparison())[place], 80, monkeypatch)
    wide = shown(all_tables(comparison())[place], 400, monkeypatch)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert words(narrow) == words(wide)


def test_results_at_chance_fit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    content = comparison()
    for cell in content["cells"][::2]:
        for key in ("global", "personal"):
            (cell["summary"]["fairness"].get(key) or {})["at_chance"] = True
    for one, other in zip(all_tables(content), all_tables(content), strict=True):
        narrow, wide = shown(one, 80, monkeypatch), shown(other, 400, monkeypatch)
        assert max(map(len, narrow.splitlines())) <= 80
        assert words(narrow) == words(wide)


def test_where_words_do_not_fit_they_are_broken_and_none_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    domains = tuple(f"a-hospital-in-the-{name}" for name in ("north", "south", "east", "west", "middle", "mountains"))
    for table in all_tables(comparison(domains)):
        text = shown(table, 80, monkeypatch)
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text


def test_a_table_that_fits_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(title="numbers")
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_row("one", "1.0")
    screen = io.StringIO()
    Console(file=screen, width=80).print(table)
    assert shown(table, 80, monkeypatch) == screen.getvalue()


# ------------------------------------------------------------------------------------------------------------ the runs
ANSWERS = "65.1 ≈ / 70.2 ≈ / 12.3 (68.1) ≈"  # as wide as they get
USUAL = "fedavg-glyphs-street-seed0"


def listed(width: int, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The pieces of each line of a list of finished runs: the head first."""
    answers = {"generalisation": 0.651, "personalisation": 0.702, "fairness": 0.123, AT_HOME: 0.681}
    chance = dict.fromkeys(HEADLINES, True)
    found = [
        Kept(
            Path(name),
            "finished",
            "fedavg",
            "street",
            0,
            (6, 6),
            answers,
            "accuracy",
            True,
            8_220_000,
            0.0,
            at_chance=chance,
        )
        for name in names
    ]
    screen = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=screen, width=width))
    output.show(runs_table(found, Path(), 65.0), spare=("age", "size", "rounds", RUNS_OF))
    lines = screen.getvalue().replace("\N{NO-BREAK SPACE}", " ").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(" state"))
    rows = [line for line in lines[first:] if line.startswith(" ") and line.strip() and "─" not in line]
    assert max(map(len, lines)) <= width
    return [re.split(r"  +", line.strip()) for line in rows]


def test_a_run_is_one_line_of_eighty_columns_where_its_name_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    of = "fedavg, street, seed 0"
    row = ["finished", "6", ANSWERS, "8.22 MB", "65 s", of, USUAL]
    assert listed(140, [USUAL], monkeypatch) == [["state", "rounds", "results", "size", "age", RUNS_OF, "run"], row]
    # a name that says nothing leaves room for what the run is of, and for what else fits
    head, found = listed(80, ["mine"], monkeypatch)
    assert head == ["state", "results", "age", RUNS_OF, "run"]
    assert found == ["finished", ANSWERS, "65 s", of, "mine"]
    assert listed(80, [USUAL, USUAL], monkeypatch) == [["state", "rounds", "results", "run"], *2 * [[*row[:3], USUAL]]]
    longer = "fedheal-tau=0.2--glyphs-scan-seed0"
    assert listed(80, [longer], monkeypatch) == [["state", "results", "run"], ["finished", ANSWERS, longer]]


def test_columns_go_only_where_that_makes_fewer_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    head, *rows = listed(80, [120 * "x"], monkeypatch)
    assert head == ["state", "results", "run"]
    assert "".join(row[-1] for row in rows) == 120 * "x"
    assert listed(100, ["short"], monkeypatch)[0] == ["state", "rounds", "results", "size", "age", RUNS_OF, "run"]


def test_each_result_of_a_run_and_its_baseline_stands_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all are at chance, and a silo has a name of usual length."""
    row = {"unseen": False, "domain": "d", "global": 0.1, "personal": 0.1, "at_chance": ["global", "personal"]}
    silos = [{**row, "silo": f"hospital-{name}"} for name in ("north", "south")]
    found = {**comparison(("x",))["cells"][0]["summary"], "rounds": [6]}
    table = run_table("fedprox", {**found, "silos": silos}, ("fedavg", {**found, "silos": silos}))
    lines = shown(table, 80, monkeypatch).splitlines()
    assert sum(line.count("10.0 ≈") for line in lines) == 2 * 4
    assert max(map(len, lines)) <= 80


# ----------------------------------------------------------------------------------------------------------- sentences
SENTENCE = (
    "nothing differs from fedavg for sure (three comparisons, corrected for their number), which four seeds may change"
)


def said(text: str, monkeypatch: pytest.MonkeyPatch, *, terminal: bool, stream: str = "console") -> list[str]:
    """The lines of a sentence, of which the terminal breaks those that are longer than it is wide."""
    screen = io.StringIO()
    monkeypatch.setattr(output, stream, Console(file=screen, width=60, force_terminal=terminal, color_system=None))
    (output.say if stream == "console" else output.complain)(text)
    return screen.getvalue().splitlines()


@pytest.mark.parametrize("stream", ["console", "errors"])
def test_a_sentence_is_broken_between_words_in_a_terminal_and_nowhere_else(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = said(SENTENCE, monkeypatch, terminal=True, stream=stream)
    assert len(lines) == 2
    assert max(map(len, lines)) <= 60
    assert " ".join(lines) == SENTENCE
    assert said(SENTENCE, monkeypatch, terminal=False, stream=stream) == [SENTENCE]


@pytest.mark.parametrize(
    ("before", "whole", "behind"),
    [
        ("the page with everything in it is here: ", "/data/of/somebody/" + 70 * "x" + "/comparison.html", ", for all"),
        ("a cluster needs Dask, which is not here: ", "pip install 'fairsilo[cluster]'", "; then once more"),
        ("a run by Python needs its own silos there; ", "`fairsilo resume runs/that-one --trust`", " goes on with it"),
        ("from another machine, before you open it: ", "ssh -L 8400:127.0.0.1:8400 MACHINE", ""),
        ("the same command goes on with what is in ", "runs/My Own Comparison/comparison.json", " since yesterday"),
    ],
)
def test_paths_and_commands_stay_whole(before: str, whole: str, behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["fairsilo", "compare", "fedavg", "--out", "runs/My Own Comparison"])
    lines = said(before + whole + behind, monkeypatch, terminal=True)
    assert len(lines) > 1
    assert [line for line in lines if whole in line]
    assert " ".join(lines) == before + whole + behind


def test_the_settings_of_a_command_that_have_spaces_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["fairsilo", "run", "data.folder=/data/All Our Images"])
    text = "cannot read what should be a picture, the file named /data/All Our Images/a.png"
    assert said(text, monkeypatch, terminal=True)[1] == "/data/All Our Images/a.png"


def test_lines_that_are_set_in_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said(f"  {SENTENCE}", monkeypatch, terminal=True)
    assert [line[:3].strip() != "" and line[:2] == "  " for line in lines] == [True] * len(lines)
    assert said("two\n\nlines", monkeypatch, terminal=True) == ["two", "", "lines"]
