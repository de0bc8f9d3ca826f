"""Compositions of halves: the two-way analysis, the front, the choice, and how they are shown."""

from __future__ import annotations

import csv
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fairsilo.analysis.crossings import contributions, shares
from fairsilo.analysis.paired import Difference, corrected, front, holm, mean_ranks, over_values
from fairsilo.errors import FairsiloError
from fairsilo.report.crossed import about, crossed_markdown, sources_of
from fairsilo.report.crossed_page import write_crossed
from fairsilo.report.reproduced import ledger_page
from fairsilo.reproduction import ledger, tables
from fairsilo.reproduction.blocks import Source, source_of
from fairsilo.reproduction.crossing import Crossing, crossed
from fairsilo.reproduction.standing import Standing
from fairsilo.runs.comparison import Grid
from test_cli import call, here, packed
from test_report_page import check_well_formed
from test_reproduction import own_tables

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
def left_over(values: np.ndarray, *sets: str) -> float:
    """What least squares leaves over when levels of these combinations of row, column and block are fitted."""
    place = np.array(list(np.ndindex(values.shape)))
    design = []
    for letters in sets:
        number = np.zeros(len(place), dtype=int)
        for letter in letters:
            axis = "rcb".index(letter)
            number = number * values.shape[axis] + place[:, axis]
        design.append(np.eye(number.max() + 1)[number])
    found = np.linalg.lstsq(np.hstack(design), values.reshape(-1), rcond=None)[0]
    return float(np.square(values.reshape(-1) - np.hstack(design) @ found).sum())


def test_shares_and_tests_are_those_of_nested_least_squares() -> None:
    values = np.random.default_rng(3).normal(size=(4, 3, 5)) + np.arange(4)[:, None, None] + 2 * np.arange(5)
    fits = [("b",), ("b", "r"), ("b", "r", "c"), ("b", "rc"), ("rc", "rb"), ("rc", "rb", "cb")]
    left = [left_over(values, *sets) for sets in fits]
    rows, columns, together, row_by_block, column_by_block = (a - b for a, b in itertools.pairwise(left))
    found = shares(values)
    wanted = {
        "rows": rows,
        "columns": columns,
        "together": together,
        "looks": row_by_block + column_by_block + left[-1],
    }
    assert found.of == pytest.approx({name: value / left[0] for name, value in wanted.items()})
    assert found.p == pytest.approx(
        {
            "rows": stats.f.sf((rows / 3) / (row_by_block / 12), 3, 12),
            "columns": stats.f.sf((columns / 2) / (column_by_block / 8), 2, 8),
            "together": stats.f.sf((together / 6) / (left[-1] / 24), 6, 24),
        }
    )


def test_one_block_tells_nothing_beyond_itself() -> None:
    values = np.random.default_rng(4).normal(size=(4, 3, 1))
    found = shares(values)
    assert found.of["looks"] == pytest.approx(0.0)
    assert set(found.p.values()) == {None}
    for half in contributions(values, "abcd", "xyz"):
        assert all(one.p is None and one.margin is not None for one in half.values())


def test_halves_that_only_add_up_do_nothing_together() -> None:
    rows, columns, blocks = np.array([0.0, 3, -1]), np.array([0.0, 5]), np.array([10.0, 40])
    values = rows[:, None, None] + columns[:, None] + blocks
    found = shares(values)
    assert found.of["together"] == pytest.approx(0.0, abs=1e-12)
    # 2 x 2 columns and blocks times the squares around the rows' mean, 3 x 2 rows and blocks times those of columns
    assert found.of["rows"] == pytest.approx(4 * np.square(rows - rows.mean()).sum() / (4 * 26 / 3 + 6 * 12.5))
    assert set(found.p.values()) == {None}  # nothing differs between blocks, not even by chance
    local, server = contributions(values, ROWS, COLUMNS)
    assert {name: one.mean for name, one in local.items()} == pytest.approx({"fedprox": 3.0, "fedsam": -1.0})
    assert {name: one.mean for name, one in server.items()} == pytest.approx({"afl": 5.0})
    assert server["afl"].margin is None


def test_rounding_is_no_difference() -> None:
    values = np.full((9, 9, 2), 48.7) + 1e-9 * np.random.default_rng(0).normal(size=(9, 9, 2))
    assert shares(values).of == {}
    assert all(one.p is None for half in contributions(values, "abcdefghi", "abcdefghi") for one in half.values())


def test_a_contribution_is_tested_over_blocks() -> None:
    """A half that helps one federation and harms the other has shown nothing, however alike its neighbours are."""
    by_block = np.array([12.0, -10, 11, -9])
    values = np.zeros((2, 3, 4)) + np.arange(3)[:, None]
    values[1] += by_block + np.array([[0.0], [0.1], [-0.1]])
    local, server = contributions(values, ("plain", "new"), ("", "b", "c"))
    new = local["new"]
    assert (new.mean, new.p) == (pytest.approx(1.0), pytest.approx(stats.ttest_1samp(by_block, 0).pvalue))
    assert new.margin == pytest.approx(stats.t.ppf(0.975, 3) * by_block.std(ddof=1) / 2)
    assert [one.mean for one in server.values()] == pytest.approx([1.05, 1.95])
    alone = contributions(values[:, :, :1], ("plain", "new"), ("", "b", "c"))[0]["new"]
    assert alone.margin == pytest.approx(stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3))  # over what it stands beside


def test_holm_corrects_step_by_step() -> None:
    assert holm([0.01, 0.04, None, 0.03], 3) == pytest.approx([0.03, 0.06, None, 0.06])
    assert holm([0.01, 0.04, None, 0.03], 4) == pytest.approx([0.04, 0.09, None, 0.09])
    assert holm([0.9, 0.8], 2) == [1.0, 1.0]


def test_what_seeds_do_not_change_counts_as_looked_at_and_a_single_seed_does_not() -> None:
    """Else a method that happens to give the same with every seed would make the others look surer."""
    found = [Difference(1.0, 1.0, p) for p in (0.01, 0.04)]
    same, single = over_values([0.5, 0.5, 0.5]), over_values([0.5])
    assert (same.p, single.p) == (None, None)
    assert [one.p for one in corrected([*found, single])] == pytest.approx([0.02, 0.04, None])
    assert [one.p for one in corrected([*found, same])] == pytest.approx([0.03, 0.08, None])
    assert [one.p for one in corrected([*found, over_values([0.0, 0.0])])] == pytest.approx([0.03, 0.08, None])
    rows, _ = contributions(np.zeros((2, 3, 1)), ("plain", "new"), ("", "b", "c"))
    assert not rows["new"].repeated  # one look, however many halves it stands beside


def test_the_front_is_what_nobody_beats() -> None:
    points = {"a": (1.0, 5.0), "b": (2.0, 4.0), "c": (1.0, 4.0), "d": (0.5, 6.0), "e": (2.0, 4.0)}
    scores = [{name: point[place] for name, point in points.items()} for place in (0, 1)]
    assert front(scores) == ["a", "b", "d", "e"]  # c is beaten by a; b and e are the same
    assert front([scores[0], {name: -value for name, value in scores[1].items()}]) == ["b", "e"]
    assert front([{"a": 62.725, "b": 62.725 - 7e-15}, {"a": 1.0, "b": 2.0}]) == [
        "b"
    ]  # sums of the same, otherwise added


def test_ranks_are_averaged_and_shared() -> None:
    scores = [{"a": 1.0, "b": 3.0, "c": 3.0}, {"a": 0.3, "b": 0.2, "c": 0.1}]
    assert mean_ranks(scores) == {"a": 2.0, "b": 1.75, "c": 2.25}


# ----------------------------------------------------------------------------------------------------------- the runs
def source(name: str, records: list[dict[str, Any]], grid: Grid = GRID) -> Source:
    return Source(name, grid.methods, records, grid)


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


def test_a_crossing_reads_values_by_row_column_and_block() -> None:
    better = [{**one, "seed": 3, "generalisation": one["generalisation"] + 0.1} for one in runs()]
    better[2]["generalisation"] += 0.0004  # fedprox alone
    found = Crossing.of([source("one", runs()), source("two", better)])
    assert str(found.blocks) == "one, c held out, seed 0; two, c held out, seed 3"
    assert found.answers["unseen"][:, :, 0] == pytest.approx(np.array([[50.0, 55], [52, 56], [50, 55]]))
    assert found.answers["unseen"][:, :, 1] == pytest.approx(np.array([[60.0, 65], [62.04, 66], [60, 65]]))
    assert found.means("worst") == dict.fromkeys(GRID.methods, 50.0)
    local, server = found.contributions["unseen"]
    prox, sam, afl = local["fedprox"], local["fedsam"], server["afl"]
    assert (prox.mean, sam.mean) == (pytest.approx((1.5 + 1.52) / 2), 0.0)
    alone = [stats.ttest_1samp(some, 0).pvalue for some in ([1.5, 1.52], [14 / 3, 13.96 / 3])]
    looked = 3 * len(found.answers)  # also where nothing differs
    assert (prox.p, afl.p) == pytest.approx(((looked - 1) * alone[0], looked * alone[1]))
    assert (looked - 1) * alone[0] < 0.2  # and not the 1 that all large ones are
    assert found.front() == ["fedprox | afl"]
    assert "what differs between federations, and chance" in sources_of(found, "unseen")
    assert sources_of(found, "worst") == "worst domain: all compositions are the same."


def gained(gains: dict[tuple[str, int], float]) -> list[dict[str, Any]]:
    """Runs by held-out domain and seed; rows with fedprox gain so much more there."""
    records = []
    for (held_out, seed), gain in gains.items():
        for one in runs(seed=seed, held_out=held_out):
            one["generalisation"] += gain * one["method"].startswith("fedprox")
            records.append(one)
    return records


def test_of_one_federation_seeds_are_looks() -> None:
    """Each with the mean over its domains; a seed that lacks one does not count, whatever it would add."""
    gains = {("c", 0): 0.02, ("d", 0): 0.06, ("c", 1): 0.07, ("d", 1): 0.05, ("c", 2): 0.9}
    found = Crossing.of([source("one", gained(gains))])
    assert (len(found.blocks.whole), list(found.looks), found.over) == (5, ["seed 0", "seed 1"], "seeds")
    prox = found.contributions["unseen"][0]["fedprox"]
    wanted = stats.ttest_1samp([5.5, 7.5], 0).confidence_interval(0.95)  # 1.5 without any gain
    assert (prox.mean, prox.margin) == pytest.approx((6.5, (wanted.high - wanted.low) / 2))
    assert "over the 2 seeds" in about(found)
    assert found.shares("unseen").of == pytest.approx(shares(found._by_look(found.answers["unseen"])).of)
    assert found._by_look(found.answers["unseen"]).shape == (3, 2, 2)
    alone = Crossing.of([source("one", gained({("c", 0): 0.02, ("d", 0): 0.06, ("c", 1): 0.07}))])
    assert (list(alone.looks), alone.contributions["unseen"][0]["fedprox"].p) == (["one"], None)
    # c counts once with 2 and 7 points, d with 6
    assert alone.contributions["unseen"][0]["fedprox"].mean == pytest.approx(1.5 + (4.5 + 6) / 2)
    assert alone.means("unseen")["fedprox"] == pytest.approx(52 + (4.5 + 6) / 2)


def test_of_several_federations_each_is_one_look_however_many_seeds_it_has() -> None:
    one = gained({("c", 0): 0.02, ("c", 1): 0.04, ("d", 0): 0.01})
    found = Crossing.of([source("one", one), source("two", gained({("c", 0): 0.1}))])
    assert (list(found.looks), found.over) == (["one", "two"], "federations")
    prox = found.contributions["unseen"][0]["fedprox"]
    wanted = stats.ttest_1samp([1.5 + 2, 1.5 + 10], 0).confidence_interval(0.95)
    assert (prox.mean, prox.margin) == pytest.approx((7.5, (wanted.high - wanted.low) / 2))
    assert set(found.shares("unseen").of) == {"rows", "columns", "together", "looks"}


def test_what_the_others_are_compared_with_comes_first() -> None:
    turned = Grid(("fedprox", "fedavg", "fedsam"), ("afl", ""))
    found, plain = (Crossing.of([source("one", runs(), grid)]) for grid in (turned, GRID))
    assert (found.grid.rows[0], found.columns[0]) == ("fedavg", "mean")
    assert found.contributions == plain.contributions
    other = Grid(("fedsam", "fedprox"), ("", "afl"))
    assert "(fedsam; mean)" in about(Crossing.of([source("one", runs(), other)]))


def test_blocks_that_lack_something_do_not_count() -> None:
    some = [{**one, "generalisation": None} if one["method"] == "afl" else one for one in runs()]
    none = [{**one, "generalisation": math.nan} for one in runs()]
    sources = [source(name, found) for name, found in (("a", runs()), ("b", runs()[:4]), ("c", some), ("d", none))]
    found = Crossing.of(sources)
    assert str(found.blocks) == "a, c held out, seed 0"
    assert {str(block): why for block, why in found.blocks.incomplete.items()} == {
        "b, c held out, seed 0": "4 of 6 methods were run",
        "c, c held out, seed 0": "5 of 6 have held-out domain",
        "d, c held out, seed 0": "no run has held-out domain",
    }
    alone = Crossing.of(sources[3:])  # nobody was held out: the other answers are there
    assert list(alone.answers) == ["personal", "worst", "deviation"]
    assert alone.blocks.judged == ["personal", "worst"]
    foreign = [*runs()[:5], record("scaffold", 0.5)]
    for records, said in (
        (runs()[:4], "4 of 6 methods were run"),
        (foreign, "5 of 6"),
        ([], "no held-out domain"),
    ):
        with pytest.raises(FairsiloError, match=said):
            Crossing.of([source("two", records)])


def test_sources_that_do_not_go_together_are_refused() -> None:
    one = source("one", runs())
    with pytest.raises(FairsiloError, match="have different methods"):
        Crossing.of([one, source("two", runs(), Grid(ROWS[:2], COLUMNS))])
    with pytest.raises(FairsiloError, match="is there twice"):
        Crossing.of([one, one])
    with pytest.raises(FairsiloError, match="is measured by mae; only shares of which more is better are"):
        Crossing.of([source("one", runs(metric="mae"))])


def test_the_choice_sees_validation_samples_only() -> None:
    plain = Crossing.of([source("one", runs())])
    assert list(plain.chosen(2)) == ["fedsam", "fedavg"]
    other = [{**one, "generalisation": 1 - one["generalisation"], "personalisation": 0.1} for one in runs()]
    for one in other:
        one["silos"] = {
            name: {**silo, "global": 0.3 + 0.1 * len(one["method"]) / 20, "personal": 0.2}
            for name, silo in one["silos"].items()
        }
    assert Crossing.of([source("one", other)]).chosen(6) == plain.chosen(6)
    bare = [{**one, "silos": {k: {**v, "validation": None} for k, v in one["silos"].items()}} for one in runs()]
    without = Crossing.of([source("one", bare)])
    assert not without.blocks.choosable
    with pytest.raises(FairsiloError, match="no results on validation samples"):
        without.chosen(2)


# ------------------------------------------------------------------------------------------------------- what is shown
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_tables(tmp_path / "experiments", monkeypatch, "crossings/some", TABLE)


def test_the_page_shows_halves_cells_front_and_choice(tmp_path: Path) -> None:
    found = Crossing.of([source("one", runs()), source("two", runs()[:2])])
    page = write_crossed(found, tmp_path / "new", choose=2)
    html = page.read_text(encoding="utf-8")
    check_well_formed(html)
    for said in (
        "What each half contributes",
        "One look at one federation",
        "Chosen to go on",
        "two, c held out, seed 0 (2 of 6",
        "fedprox | afl",
    ):
        assert said in html
    rows = list(csv.DictReader((page.parent / "crossings.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 6 * len(found.answers)
    (value,) = (
        row["value"] for row in rows if (row["row"], row["column"], row["measure"]) == ("fedprox", "afl", "unseen")
    )
    assert float(value) == pytest.approx(56.0)
    assert r"row & fedprox & $+1.5 \pm 6.4$" in (page.parent / "crossings.tex").read_text(encoding="utf-8")


def test_the_command_reads_tables_of_the_ledger(folder: Path, capsys: Any) -> None:
    code, _, err = call(capsys, "crossings", "crossings/some")
    assert (code, err) == (
        2,
        "error: crossings/some has no held-out domain and seed with all methods (nothing was run)\n",
    )
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
    assert crossed(table, [*runs(), *runs(tuned="fedavg @ lr=1")]) is None  # the usual table has a column for those


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
    assert str(found.blocks) == "made, stamp held out, seed 0"
    summary = json.loads((here / "made" / "fedprox-afl" / "stamp-seed0" / "summary.json").read_text())
    assert found.means("unseen")["fedprox | afl"] == pytest.approx(100 * summary["generalisation"]["mean"], abs=1e-3)
    assert len(found.blocks.choosable) == 3
    assert "fedprox" in "\n".join(crossed_markdown(found, 2))
