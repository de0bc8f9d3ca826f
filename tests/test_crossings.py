"""Compositions of halves: the two-way analysis, the front, the choice, and how they are shown."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fairsilo.analysis.crossings import contributions, front, holm, mean_ranks, shares
from fairsilo.errors import FairsiloError
from fairsilo.report.crossed import crossed_markdown, sources_of
from fairsilo.report.crossed_page import write_crossed
from fairsilo.report.reproduced import ledger_page
from fairsilo.reproduction import ledger, tables
from fairsilo.reproduction.crossing import Crossing, Source, crossed, source_of
from fairsilo.reproduction.standing import Standing
from fairsilo.runs.comparison import Grid
from test_cli import call, here, packed
from test_report_page import check_well_formed

__all__ = ["here", "packed"]

ROWS, COLUMNS = ("fedavg", "fedprox", "fedsam"), ("", "afl")
GRID = Grid(ROWS, COLUMNS)
TABLE = """
grid: {rows: [fedavg, fedprox, fedsam], columns: ["", afl]}
seeds: [0]
held_out_domains: [c]
data: {name: glyphs}
paper: {of: "Halves", measures: [unseen]}
"""


# ------------------------------------------------------------------------------------------------------ the analysis
def squares_by_regression(values: np.ndarray) -> list[float]:
    """The sums of squares once more: by how much each further set of columns lowers what least squares leaves over."""
    rows, columns, blocks = values.shape
    place = np.array(list(np.ndindex(values.shape)))
    sets = [
        np.eye(blocks)[place[:, 2]],
        np.eye(rows)[place[:, 0]],
        np.eye(columns)[place[:, 1]],
        np.eye(rows * columns)[place[:, 0] * columns + place[:, 1]],
    ]
    left = []
    for last in range(1, len(sets) + 1):
        design = np.hstack(sets[:last])
        found = np.linalg.lstsq(design, values.reshape(-1), rcond=None)[0]
        left.append(float(np.square(values.reshape(-1) - design @ found).sum()))
    return [left[0] - left[1], left[1] - left[2], left[2] - left[3], left[3]]


def test_shares_are_those_of_nested_least_squares() -> None:
    values = np.random.default_rng(3).normal(size=(4, 3, 5)) + np.arange(4)[:, None, None] + 2 * np.arange(5)
    wanted, found = squares_by_regression(values), shares(values)
    assert list(found.of.values()) == pytest.approx([one / sum(wanted) for one in wanted])
    ratio = (wanted[0] / 3) / (wanted[3] / (4 * 11))
    assert found.p["rows"] == pytest.approx(stats.f.sf(ratio, 3, 44))
    ratio = (wanted[2] / 6) / (wanted[3] / 44)
    assert found.p["together"] == pytest.approx(stats.f.sf(ratio, 6, 44))


def test_with_one_block_rows_are_held_against_what_is_left() -> None:
    values = np.random.default_rng(4).normal(size=(4, 3, 1))
    found, wanted = shares(values), squares_by_regression(values)
    assert found.of["chance"] == pytest.approx(0.0)
    assert found.p["together"] is None
    assert found.p["columns"] == pytest.approx(stats.f.sf((wanted[1] / 2) / (wanted[2] / 6), 2, 6))


def test_halves_that_only_add_up_do_nothing_together() -> None:
    rows, columns, blocks = np.array([0.0, 3, -1]), np.array([0.0, 5]), np.array([10.0, 40])
    values = rows[:, None, None] + columns[:, None] + blocks
    found = shares(values)
    assert found.of["together"] == pytest.approx(0.0, abs=1e-12)
    # 2 x 2 columns and blocks times the squares around the rows' mean, 3 x 2 rows and blocks times those of columns
    assert found.of["rows"] == pytest.approx(4 * np.square(rows - rows.mean()).sum() / (4 * 26 / 3 + 6 * 12.5))
    local, server = contributions(values, ROWS, COLUMNS)
    assert [(one.name, one.mean) for one in local] == [("fedprox", pytest.approx(3.0)), ("fedsam", pytest.approx(-1.0))]
    assert [(one.name, one.mean) for one in server] == [("afl", pytest.approx(5.0))]
    assert server[0].margin is None  # it is the same beside every row


def test_a_contribution_is_paired_over_the_other_halves() -> None:
    values = np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 5.0]])[:, :, None]
    local, server = contributions(values, ("plain", "new"), ("", "b", "c"))
    differences = [2.0, 3.0, 1.0]
    assert local[0].mean == pytest.approx(2.0)
    assert local[0].margin == pytest.approx(stats.t.ppf(0.975, 2) * 1.0 / math.sqrt(3))
    alone = [stats.ttest_1samp(some, 0).pvalue for some in (differences, [1.0, 2.0], [3.0, 2.0])]
    assert [one.p for one in (*local, *server)] == pytest.approx(holm(alone))


def test_holm_corrects_step_by_step() -> None:
    assert holm([0.01, 0.04, None, 0.03]) == pytest.approx([0.03, 0.06, None, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_the_front_is_what_nobody_beats() -> None:
    points = {"a": (1.0, 5.0), "b": (2.0, 4.0), "c": (1.0, 4.0), "d": (0.5, 6.0), "e": (2.0, 4.0)}
    assert front(points, (True, True)) == ["a", "b", "d", "e"]  # c is beaten by a; b and e are the same
    assert front(points, (True, False)) == ["b", "e"]


def test_ranks_are_averaged_and_shared() -> None:
    scores = [{"a": 1.0, "b": 3.0, "c": 3.0}, {"a": 0.1, "b": 0.2, "c": 0.3}]
    assert mean_ranks(scores, (True, False)) == {"a": 2.0, "b": 1.75, "c": 2.25}


# ----------------------------------------------------------------------------------------------------------- the runs
def record(method: str, unseen: float, worst: float = 0.5, validation: float = 0.4, **more: Any) -> dict[str, Any]:
    def silo(domain: str, result: float) -> dict[str, Any]:
        found = {"global": validation, "personal": validation}
        return {"domain": domain, "unseen": False, "global": result, "personal": 0.9, "validation": found}

    silos = {"a": silo("a", worst), "b": silo("b", 0.8), "c": {"domain": "c", "unseen": True, "global": unseen}}
    whole = {"method": method, "seed": 0, "held_out": "c", "silos": silos, "generalisation": unseen}
    rounding = {"rounding": {"precision": "float32"}, "seconds": 1.0, "commit": "abc", "gap_variance": 0.0}
    return {**whole, **rounding, "personalisation": 0.9, **more}


def runs(**more: Any) -> list[dict[str, Any]]:
    """fedprox adds two points, afl five; together fedprox and afl lose one of them."""
    unseen = {"fedavg": 0.5, "afl": 0.55, "fedprox": 0.52, "fedprox | afl": 0.56, "fedsam": 0.5, "fedsam | afl": 0.55}
    validation = {"fedsam": 0.9, "fedavg": 0.8}
    return [record(name, value, validation=validation.get(name, 0.4), **more) for name, value in unseen.items()]


def test_a_crossing_reads_values_by_row_and_column() -> None:
    found = Crossing.of([Source("one", GRID, runs()), Source("two", GRID, runs(seed=3))])
    assert found.blocks == ("one, c held out, seed 0", "two, c held out, seed 3")
    assert found.answers["unseen"][:, :, 0] == pytest.approx(np.array([[50.0, 55], [52, 56], [50, 55]]))
    assert found.means("worst") == dict.fromkeys(GRID.methods, 50.0)
    assert [one.mean for one in found.contributions("unseen")[0]] == pytest.approx([1.5, 0.0])
    assert found.front() == ["fedprox | afl"]
    assert "local halves" in sources_of(found, "unseen")


def test_blocks_with_missing_runs_do_not_count() -> None:
    found = Crossing.of([Source("one", GRID, runs()), Source("two", GRID, runs()[:4])])
    assert found.blocks == ("one, c held out, seed 0",)
    assert found.incomplete == {"two, c held out, seed 0": 4}
    with pytest.raises(FairsiloError, match="of 6 at most 4 are there"):
        Crossing.of([Source("two", GRID, runs()[:4])])
    with pytest.raises(FairsiloError, match="other rows or columns"):
        Crossing.of([Source("one", GRID, runs()), Source("two", Grid(ROWS[:2], COLUMNS), runs())])


def test_the_choice_sees_validation_samples_only() -> None:
    plain = Crossing.of([Source("one", GRID, runs())])
    assert list(plain.chosen(2)) == ["fedsam", "fedavg"]
    other = [{**one, "generalisation": 1 - one["generalisation"], "personalisation": 0.1} for one in runs()]
    for one in other:
        one["silos"] = {
            name: {**silo, "global": 0.3 + 0.1 * len(one["method"]) / 20, "personal": 0.2}
            for name, silo in one["silos"].items()
        }
    assert Crossing.of([Source("one", GRID, other)]).chosen(6) == plain.chosen(6)
    bare = [{**one, "silos": {k: {**v, "validation": None} for k, v in one["silos"].items()}} for one in runs()]
    without = Crossing.of([Source("one", GRID, bare)])
    assert not without.can_choose
    with pytest.raises(FairsiloError, match="no results on validation samples"):
        without.chosen(2)


# ------------------------------------------------------------------------------------------------------- what is shown
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    where = tmp_path / "experiments"
    (where / "crossings").mkdir(parents=True)
    (where / "crossings" / "some.yaml").write_text(TABLE, encoding="utf-8")
    monkeypatch.setattr(tables, "FOLDER", where)
    monkeypatch.setattr(ledger, "RESULTS", where / "results")
    return where


def test_the_page_shows_halves_cells_front_and_choice(tmp_path: Path) -> None:
    found = Crossing.of([Source("one", GRID, runs()), Source("two", GRID, runs()[:2])])
    page = write_crossed(found, tmp_path / "new", choose=2)
    html = page.read_text(encoding="utf-8")
    check_well_formed(html)
    for said in ("What each half contributes", "One federation", "Chosen to go on", "two, c held out", "fedprox | afl"):
        assert said in html
    rows = list(csv.DictReader((page.parent / "crossings.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 6 * len(found.answers)
    assert {"local": "fedprox", "server": "afl", "measure": "unseen", "value": "56.00000000000001"}.items() <= next(
        row for row in rows if (row["local"], row["server"]) == ("fedprox", "afl")
    ).items()
    assert r"local & fedprox & $+1.5 \pm 6.4$" in (page.parent / "crossings.tex").read_text(encoding="utf-8")


def test_the_command_reads_tables_of_the_ledger(folder: Path, capsys: Any) -> None:
    code, _, err = call(capsys, "crossings", "crossings/some")
    assert (code, err) == (2, "error: crossings/some has no held-out domain and seed with all compositions run\n")
    ledger.append("crossings/some", [*runs(), *runs(seed=1, settings={"train.lr": "3"})])
    code, text, err = call(capsys, "crossings", "crossings/some", "--choose", "1", "-o", str(folder / "out"))
    assert (code, err) == (0, "")
    assert "+1.5 ± 6.4" in text
    assert (folder / "out" / "crossings.html").exists()
    code, text, _ = call(capsys, "crossings", "crossings/some", "--choose", "1", "--json")
    assert json.loads(text)["chosen"] == {"fedsam": 1.0}
    assert json.loads(text)["front"] == ["fedprox | afl"]
    code, text, err = call(capsys, "reproduce", "crossings/some", "--show")
    assert (code, err) == (0, "")
    assert "what each half contributes" in text
    table = tables.read_table("crossings/some")
    told = ledger_page([Standing.of(table)], {table.name: ledger.read(table.name)})
    assert "| fedprox | 52.0 | 56.0\\* |" in told
    assert "| fedsam | 1" in told.partition("Chosen by")[2]
    assert crossed(table, runs()[:3]) is None


def test_what_is_no_grid_is_refused(folder: Path, capsys: Any) -> None:
    (folder / "crossings" / "flat.yaml").write_text(TABLE.replace(', columns: ["", afl]', ', columns: [""]'))
    for name, said in (
        ("crossings/flat", "has no grid of halves"),
        ("crossings/sume", "did you mean 'crossings/some'"),
    ):
        code, _, err = call(capsys, "crossings", name)
        assert code == 2
        assert said in err


def test_a_comparison_of_the_users_own_is_read(here: Path, packed: Path, capsys: Any) -> None:
    (here / "grid.yaml").write_text('grid: {rows: [fedavg, fedprox], columns: ["", afl]}\nheld_out_domains: [stamp]\n')
    settings = [f"data.packed={packed}", "rounds=1", "epochs=1", "model=my_net:make", "engine.name=sequential"]
    code, _, err = call(capsys, "compare", "-c", "grid.yaml", *settings, "-o", "made")
    assert (code, err) == (0, "")
    found = Crossing.of([source_of("made")])
    assert found.blocks == ("made, stamp held out, seed 0",)
    summary = json.loads((here / "made" / "fedprox-afl" / "stamp-seed0" / "summary.json").read_text())
    assert found.means("unseen")["fedprox | afl"] == pytest.approx(100 * summary["generalisation"]["mean"], abs=1e-3)
    assert found.can_choose
    assert "fedprox" in "\n".join(crossed_markdown(found, 2))
