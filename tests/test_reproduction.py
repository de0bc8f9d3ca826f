"""The papers' tables: their files, the ledger, and how ours stand beside the papers' numbers."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

from fairsilo.cli import app
from fairsilo.errors import FairsiloError
from fairsilo.report.figures.files import asked_figures, numbers_of
from fairsilo.report.forest import Effect, forest_chart
from fairsilo.report.reproduced import in_words, reproduced_markdown
from fairsilo.report.reproduced_page import write_reproduced
from fairsilo.reproduction import checking, ledger, tables
from fairsilo.reproduction.measures import MEASURES
from fairsilo.reproduction.standing import Estimate, Standing, runs_of
from fairsilo.reproduction.tables import read_table
from fairsilo.runs import comparison
from fairsilo.runs.comparison import read_searched
from fairsilo.runs.folder import RunFolder
from test_figures import replay as whole_replay
from test_report_page import check_well_formed

TABLE = """
methods: [fedavg, fedprox]
seeds: [0]
held_out_domains: street
data: {name: glyphs}
model: small-cnn
train: {rounds: 1, epochs: 1}
paper:
  of: "A paper, Table 1"
  differs: [other images]
  measures: [unseen, average, deviation]
  numbers: {fedavg: [50, 60.5, 3], fedprox: [55, 61.5, null]}
"""


def own_tables(where: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> Path:
    """A folder of tables with one in it, and a ledger of its own, in the place of the project's."""
    (where / name).parent.mkdir(parents=True)
    (where / f"{name}.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(tables, "FOLDER", where)
    monkeypatch.setattr(ledger, "RESULTS", where / "results")
    return where


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_tables(tmp_path / "experiments", monkeypatch, "some/table1", TABLE)


def record(method: str, seed: int, unseen: float, held_out: str = "street", **more: Any) -> dict[str, Any]:
    silos = {
        name: {"domain": domain, "unseen": domain == held_out, "global": value}
        for name, domain, value in (("a1", "a", 0.5), ("a2", "a", 0.7), ("b", "b", 0.9), ("s", held_out, unseen))
    }
    found = {"method": method, "seed": seed, "held_out": held_out, "silos": silos, "gap_variance": 0.25}
    return {**found, "generalisation": unseen, "personalisation": None, **more}


def test_numbers_of_a_run() -> None:
    """Silos of one domain count once; the unseen one is no domain of the average."""
    found = {name: measure.of(record("fedavg", 0, 0.4)) for name, measure in MEASURES.items()}
    assert {name: value for name, value in found.items() if name == "personal" or value is not None} == {
        "unseen": pytest.approx(40),
        "personal": None,
        "average": pytest.approx(75),  # of 60 and 90
        "deviation": pytest.approx(30 / math.sqrt(2)),
        "worst": pytest.approx(60),
        "silos": pytest.approx(70),  # of 50, 70 and 90
        "worst-tenth": pytest.approx(50),
        "best-tenth": pytest.approx(90),
        "variance": pytest.approx(800 / 3),
        "gap-variance": 0.25,
    }  # lines without validation results, losses and figures have no numbers of them
    judged = record("fedavg", 0, 0.4)
    for silo, value in zip(("a1", "a2", "b", "s"), (0.2, 0.5, 0.8, 0.0), strict=True):
        judged["silos"][silo]["validation"] = {"global": value, "personal": value / 2}
    found = {name: measure.of(judged) for name, measure in MEASURES.items() if "validation" in name}
    assert found == {
        "validation": pytest.approx(50),
        "validation-personal": pytest.approx(25),
        "validation-worst": pytest.approx(20),  # what is held out has no say
    }
    sized = record("fedavg", 0, 0.4, metric="accuracy")
    for silo in sized["silos"].values():
        silo["samples"] = 50
    # a mean of 0.7; two of the three silos are tested on one set: (2 - 4 / 3) + (1 - 1 / 3) of p (1 - p) / 50, by three
    assert MEASURES["variance-beyond"].of(sized) == pytest.approx(800 / 3 - 1e4 * 0.7 * 0.3 / 50 * 4 / 9)
    assert MEASURES["variance-beyond"].of({**sized, "metric": "balanced-accuracy"}) is None
    personal = record("ditto", 0, 0.4, about="personal")
    for silo, value in zip(("a1", "a2", "b"), (0.2, 0.4, 0.6), strict=True):
        personal["silos"][silo]["personal"] = value
    assert MEASURES["silos"].of(personal) == pytest.approx(40)
    assert MEASURES["average"].of(personal) == pytest.approx(75)  # of its global model
    for silo in personal["silos"].values():
        silo["global"] = None
    assert MEASURES["average"].of(personal) == pytest.approx(45)  # of 30 and 60: a method without a global model


def test_numbers_of_losses_and_figures() -> None:
    figures = {
        "weight-gap": {"slope": -0.5, "pearson": -0.9},
        "gap-variance": {"fedavg": 3.0, "ga": 2.0, "faa": 1.0},
        "loss-surface": {"global": 1.5, "local": 2.5, "rise": 4.0},
        "a-distance": {"first": 1.25, "last": 0.25, "mean": 0.75},
        "t-sne": {"mixing": 0.4},
        "update-consistency": {"first 10 rounds": 0.3, "first 10 rounds, by chance": 0.02, "last 10 rounds": 0.2},
    }
    told = record("fedavg", 0, 0.4, figures=figures, loss={"last": 0.1, "rises": 0.6})
    wanted = {"loss": 0.1, "loss-rises": 0.6, "slope": -0.5, "pearson": -0.9, "rise": 4.0, "mixing": 0.4}
    wanted |= {"gaps-fedavg": 3.0, "gaps-ga": 2.0, "gaps-faa": 1.0, "unseen-loss": 1.5, "local-loss": 2.5}
    wanted |= {"a-distance-first": 1.25, "a-distance-last": 0.25, "a-distance": 0.75}
    wanted |= {"steady-first-10": 30.0, "steady-first-10-chance": 2.0, "steady-last-10": 20.0}
    assert {name: MEASURES[name].of(told) for name in wanted} == pytest.approx(wanted)
    assert MEASURES["steady-first-100"].of(told) is None


def test_figures_that_tables_ask_for_are_there() -> None:
    """With options that they have, in runs that keep what they are made from."""
    asked = [table for table in tables.tables() if table.figures]
    assert {"fft-gp/figures-digits", "fedheal/figure2-digits", "grace/figure2-dermoscopy"} <= {
        one.name for one in asked
    }
    for table in asked:
        assert len(asked_figures(table.figures)) == len(table.figures)
        assert table.common.evaluate.keep_local
    assert asked_figures(["weight-gap(sweep=2)", "t-sne"]) == {"weight-gap": {"sweep": 2}, "t-sne": {}}
    for texts, said in (
        (["weight-gup"], "did you mean 'weight-gap'"),
        (["weight-gap(swep=2)"], "has no option 'swep'"),
        (["t-sne", "t-sne(limit=3)"], "asked for twice"),
    ):
        with pytest.raises(FairsiloError, match=said):
            asked_figures(texts)


@pytest.mark.slow
def test_measures_read_what_figures_give() -> None:
    """By the names that real diagnostics use, after 200 rounds as the table has them."""
    replay = whole_replay(200)
    figures, failed = numbers_of(
        replay, asked_figures(["update-consistency", "gap-variance", "weight-gap", "a-distance"])
    )
    assert failed == []
    told = record("fedavg", 0, 0.4, figures=figures)
    names = [f"steady-{window}{end}" for window in ("first-10", "first-100", "last-10") for end in ("", "-chance")]
    names += ["gaps-fedavg", "gaps-ga", "gaps-faa", "slope", "pearson"]
    names += ["a-distance-first", "a-distance-last", "a-distance"]
    assert [name for name in names if MEASURES[name].of(told) is None] == []


def test_a_figure_that_cannot_be_measured_costs_itself_alone() -> None:
    replay = whole_replay(2)
    replay.see = lambda *_: (torch.full((9, 2), math.nan), torch.zeros(9))
    found, failed = numbers_of(replay, asked_figures(["a-distance", "gap-variance"]))
    assert list(found) == ["gap-variance"]
    assert len(failed) == 1
    assert failed[0].startswith("a-distance: ")


def test_the_course_of_a_loss_is_followed_silo_by_silo() -> None:
    """A silo that sits out a round does not make the loss rise; what is no number does not count."""
    rounds = [{"a": 1.0, "b": 5.0}, {"a": 2.0}, {"a": 0.5, "b": 4.0}, {"a": math.nan, "b": 4.5}]
    assert ledger._course(rounds) == {"last": pytest.approx((0.5 + 4.5) / 2), "rises": pytest.approx((1.0 + 0.5) / 2)}
    assert ledger._course([{}]) == {}


def test_runs_that_tell_more_take_the_place_of_those_that_tell_less(folder: Path) -> None:
    old = record("fedavg", 0, 0.4)
    assert ledger.append("some/table1", [old]) == 1
    assert ledger.append("some/table1", [{**old, "loss": {"last": 1.0}}]) == 1
    assert ledger.append("some/table1", [{**old, "loss": {"last": 1.0}, "figures": {"t-sne": {"mixing": 1.0}}}]) == 1
    assert ledger.append("some/table1", [{**old, "loss": {"last": 2.0}}]) == 0
    (line,) = ledger.read("some/table1")
    assert line["figures"]
    other = TABLE.replace("measures: [unseen, average, deviation]", "measures: [loss-rises]")
    other = other.partition("  numbers:")[0]
    (folder / "some" / "losses.yaml").write_text(other, encoding="utf-8")
    assert runs_of(read_table("some/losses")) == []  # the same settings, and nothing of what this table is about


def test_an_estimate_is_students() -> None:
    found = Estimate.of({("a", 0): 1.0, ("a", 1): 2.0, ("a", 2): 3.0})
    assert found is not None
    assert found.mean == 2
    assert found.margin == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)  # 97.5 % of t with two degrees of freedom
    assert Estimate.of({("a", 0): 1.0}) == (1.0, None, 1, None, False)
    assert Estimate.of({}) is None


def test_each_domain_counts_once_however_many_seeds_were_run() -> None:
    found = Estimate.of({("a", 0): 1.0, ("a", 1): 3.0, ("a", 2): 2.0, ("b", 0): 6.0})
    assert found is not None
    assert (found.mean, found.runs) == (4.0, 4)
    assert found.margin is None  # b has one seed
    found = Estimate.of({("a", 0): 1.0, ("a", 1): 3.0, ("b", 0): 6.0, ("b", 1): 8.0})
    assert found is not None
    # over the seeds' means 3.5 and 5.5, of which the error is 1; one degree of freedom
    assert (found.mean, found.margin) == (4.5, pytest.approx(12.706205, rel=1e-6))


def test_rows_are_paired_with_the_first_by_domain_and_seed(folder: Path) -> None:
    base, other = [0.2, 0.5, 0.9], [0.29, 0.6, 1.01]
    records = [record("fedavg", seed, value) for seed, value in enumerate(base)]
    records += [record("fedprox", seed, value) for seed, value in enumerate(other)]
    records += [record("fedprox", 7, 0.0), record("fedprox", 0, 0.0, settings={"train.lr": 1})]
    standing = Standing.of(read_table("some/table1"), records)
    assert standing.state == "run"
    found = standing.rows[1].found["unseen"]
    assert found.ours is not None
    assert found.ours.mean == pytest.approx(47.5)
    assert found.gain is not None
    margin = pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert (found.gain.mean, found.gain.margin, found.gain.runs) == (pytest.approx(10), margin, 3)
    assert (found.paper, found.paper_gain, found.same_way) == (55, 5, True)
    assert standing.rows[1].found["deviation"].paper_gain is None
    assert standing.rows[0].found["unseen"].gain is None
    assert "| fedprox | 4 of 1 | 47.5 | 55.0 | +10.0 ± 2.5 (as the paper) | +5.0 |" in reproduced_markdown(standing)


def test_differences_are_told_in_words_and_sure_is_corrected_for_all(folder: Path) -> None:
    gains = {0: 0.1, 1: 0.11, 2: 0.105}
    records = [record("fedavg", seed, 0.5) for seed in gains]
    records += [record("fedprox", seed, 0.5 + gain) for seed, gain in gains.items()]
    standing = Standing.of(read_table("some/table1"), records)
    told = in_words(standing, only=True)
    assert told == [
        "held-out domain: fedprox is 10.5 ± 1.2 above fedavg (the paper: 5.0 above), as the paper has it; sure"
    ]
    place = ("fedprox", "unseen")
    looked = len(standing.table.measures)  # also where nothing differs
    assert standing.comparisons == looked > 1
    assert standing.corrected[place] == pytest.approx(looked * stats.ttest_1samp([10.0, 11, 10.5], 0).pvalue)
    turned = [{**one, "generalisation": 1 - one["generalisation"]} for one in records]
    (other,) = in_words(Standing.of(read_table("some/table1"), turned), only=True)
    assert "10.5 ± 1.2 below fedavg (the paper: 5.0 above), not as the paper has it" in other
    standing.corrected[place] = 0.06
    assert f"not sure as one of {looked} comparisons" in in_words(standing, only=True)[0]
    same = [record(name, seed, 0.5 + 1e-9 * seed) for name in ("fedavg", "fedprox") for seed in gains]
    assert in_words(Standing.of(read_table("some/table1"), same))[0] == "held-out domain: fedprox is where fedavg is"
    broken = [{**one, "generalisation": math.nan} if one["method"] == "fedprox" else one for one in records]
    assert Standing.of(read_table("some/table1"), broken).rows[1].found["unseen"].gain is None
    nearly = [record("fedavg", seed, 0.5) for seed in gains]
    nearly += [record("fedprox", seed, 0.5 + 1e-6 * (1 + 1e-3 * seed)) for seed in gains]  # the ledger rounds so
    assert Standing.of(read_table("some/table1"), nearly).corrected == {}
    one_seed = [one for one in records if one["seed"] == 0]
    single = Standing.of(read_table("some/table1"), one_seed)
    assert single.comparisons == 0
    assert in_words(single, only=True) == []
    assert "without an interval, so that it may be chance" in in_words(single)[0]


@pytest.mark.parametrize(
    ("gains", "said"), [([0.1, 0.11], True), ([-0.1, -0.11], False), ([0.1, -0.12], None), ([0.1], None)]
)
def test_what_may_be_chance_is_not_judged(gains: list[float], said: bool | None, folder: Path) -> None:
    records = [record("fedavg", seed, 0.5) for seed in range(len(gains))]
    records += [record("fedprox", seed, 0.5 + gain) for seed, gain in enumerate(gains)]
    assert Standing.of(read_table("some/table1"), records).rows[1].found["unseen"].same_way is said


def test_the_ledger_has_every_run_once(folder: Path) -> None:
    two = [record("fedavg", 0, 0.1), record("fedavg", 1, 0.2)]
    assert ledger.append("some/table1", two) == 2
    assert ledger.append("some/table1", [*two, record("fedavg", 1, 0.9, settings={"lr": "2"})]) == 1
    assert [line["generalisation"] for line in ledger.read("some/table1")] == [0.1, 0.2, 0.9]
    lost = record("fedavg", 2, 0.5) | {"failures": 1}
    assert ledger.append("some/table1", [lost]) == ledger.append("some/table1", [record("fedavg", 2, 0.6)]) == 1
    assert ledger.append("some/table1", [lost]) == 0  # one without failures stays
    assert [line["generalisation"] for line in ledger.read("some/table1")] == [0.1, 0.2, 0.9, 0.6]
    with ledger.file_of("some/table1").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"method": "fedprox", "error": "no memory"}) + "\n")
    assert len(ledger.read("some/table1")) == 4
    assert Standing.of(read_table("some/table1")).state == "partly run"


@pytest.mark.slow
def test_what_figures_show_is_kept_with_a_run(folder: Path, tmp_path: Path) -> None:
    text = TABLE.replace("epochs: 1}", "epochs: 1}\nevaluate: {keep_local: true}").replace("seeds: [0]", "seeds: [3]")
    text = text.replace("measures: [unseen, average, deviation]", "measures: [gaps-fedavg, slope, loss]")
    text = text.replace("differs:", "figures: [gap-variance, weight-gap(sweep=1)]\n  differs:").replace(
        "rounds: 1", "rounds: 2"
    )
    (folder / "some" / "figure1.yaml").write_text(text, encoding="utf-8")
    given = ["reproduce", "some/figure1", "engine.name=sequential", "--out", str(tmp_path / "run"), "--rows", "fedavg"]
    found = CliRunner().invoke(app, [*given, "--record"], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert found.exit_code == 0
    (line,) = ledger.read("some/figure1")
    assert set(line["figures"]) == {"gap-variance", "weight-gap"}
    rounds = RunFolder(tmp_path / "run" / "fedavg" / "street-seed3").rows("rounds")
    losses = [math.fsum(one["train_loss"].values()) / len(one["train_loss"]) for one in rounds]
    rises = max(losses[1] - losses[0], 0.0)
    assert line["loss"] == {"last": pytest.approx(losses[1], abs=1e-6), "rises": pytest.approx(rises, abs=1e-6)}
    shown = f"{MEASURES['gaps-fedavg'].of(line):.4f}"
    assert shown == f"{line['figures']['gap-variance']['fedavg']:.4f}"
    assert shown in found.output


def test_of_a_table_from_before_the_ledger_its_notes_are_shown(folder: Path) -> None:
    def shown() -> str:
        found = CliRunner().invoke(app, ["reproduce", "some/old", "--show"], catch_exceptions=False)
        assert found.exit_code == 0
        return found.output

    (folder / "some" / "old.yaml").write_text(TABLE.replace("seeds: [0]", "seeds: [5]") + "  earlier: true\n")
    notes = "FedProx is\nbetter [by far].\n\n| a | b |\n|---|---|\n| x \\| y | [1] |\n"
    (folder / "some" / "old.md").write_text(f"{notes}\n- **One** thing,\n  and more.\n- Another.\n")
    lines = shown().splitlines()
    begin = lines.index("FedProx is better [by far].")
    end = lines.index("- One thing, and more.")
    assert lines[begin - 1] == lines[end - 1] == lines[end + 2] == ""
    assert lines[end + 1] == "- Another."
    cells = [re.split("[│┃]", line)[1:3] for line in lines[begin:end] if re.match("[│┃]", line)]
    assert [[cell.strip() for cell in some] for some in cells] == [["a", "b"], ["x | y", "[1]"]]
    assert "run before the ledger" in shown()
    assert "not run" not in shown()
    ledger.append("some/old", [record("fedavg", 5, 0.5)])
    assert "before the ledger" not in shown()
    assert "1 of 1" in shown()


@pytest.mark.one_in(7)
@pytest.mark.parametrize("table", [table.name for table in tables.tables() if table.earlier])
def test_notes_read_well_in_a_terminal_of_80_columns(table: str) -> None:
    """Nothing but what is to be copied is wider, no word is cut, and items are indented."""
    asked = ["reproduce", table, "--show"]
    env = {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "dumb"}
    found = CliRunner().invoke(app, asked, env=env, catch_exceptions=False)
    assert found.exit_code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", found.output).splitlines()
    assert [line for line in lines if len(line) > 80 and "`" not in line and "fairsilo " not in line] == []
    assert not any(line.startswith("|") or "**" in line or "…" in line for line in lines)


def test_a_file_is_read_once_for_the_list_of_all_tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "some" / "table2.yaml").write_text(TABLE, encoding="utf-8")
    read, given = list[str](), tables.read_yaml

    def counted(path: Path) -> dict[str, Any]:
        read.append(path.name)
        return given(path)

    for place in (tables, comparison):
        monkeypatch.setattr(place, "read_yaml", counted)
    assert CliRunner().invoke(app, ["reproduce", "--list"], catch_exceptions=False).exit_code == 0
    assert read == ["table1.yaml", "table2.yaml"]


def test_a_table_is_run_shown_and_recorded(folder: Path, tmp_path: Path) -> None:
    runner = CliRunner()

    def called(*texts: str) -> str:
        found = runner.invoke(app, ["reproduce", *texts], env={"COLUMNS": "200"}, catch_exceptions=False)
        assert found.exit_code == 0
        return found.output

    assert "not run" in called()
    assert "0 of 1" in called("some/table1", "--show")
    given = ("some/table1", "engine.name=sequential", "--out", str(tmp_path / "run"), "--record", "--rows", "fedprox")
    output = called(*given, "--lines", str(tmp_path / "lines.jsonl"))
    assert "1 runs are new in some-table1.jsonl" in output
    assert "differs from the paper: other images" in output
    (line,) = ledger.read("some/table1")
    assert line == json.loads((tmp_path / "lines.jsonl").read_text(encoding="utf-8"))
    assert line["settings"] == {}  # where and how it ran is nobody's business
    assert line["rounding"] == {
        "precision": "float32",
        "channels_last": False,
        "convolutions": "kernels",
        "recurrence": "steps",
        "fused": False,
    }
    assert {silo["domain"] for silo in line["silos"].values()} >= {"street", "photo"}
    assert line["failures"] == 0
    assert str(tmp_path) not in json.dumps(line)
    kept = tmp_path / "run" / "fedprox" / "street-seed0" / "config.yaml"
    text = kept.read_text(encoding="utf-8")
    kept.write_text(re.sub(r"^  recurrence: .*\n", "", text, flags=re.MULTILINE), encoding="utf-8")
    assert kept.read_text(encoding="utf-8") != text
    assert "0 runs are new" in called(*given)  # the same runs again, begun before there was that setting
    found = runner.invoke(app, ["reproduce", *given, "--json"], catch_exceptions=False)
    assert json.loads(found.stdout)["name"] == "some/table1"  # one document, and nothing before it
    assert found.stderr == "0 runs are new in some-table1.jsonl\n"
    assert "page:" in output
    assert (tmp_path / "run" / "reproduced.html").exists()
    assert "page:" not in called("some/table1", "--show")
    assert json.loads(called("--list", "--json"))[0]["runs"] == 1
    shown = json.loads(called("some/table1", "--show", "--json"))
    assert shown["rows"][1]["unseen"]["ours"] == pytest.approx(100 * line["generalisation"])
    assert shown["rows"][0]["unseen"]["ours"] is None


def test_a_table_is_a_page_a_spreadsheet_and_latex(folder: Path, tmp_path: Path) -> None:
    records = [record("fedavg", seed, value) for seed, value in enumerate((0.2, 0.5))]
    records += [record("fedprox", seed, value) for seed, value in enumerate((0.3, 0.64))]
    standing = Standing.of(read_table("some/table1"), records)
    html = write_reproduced(standing, tmp_path / "page", ("with settings of your own: a=<b>",)).read_text("utf-8")
    check_well_formed(html)
    assert "a=&lt;b&gt;" in html
    assert "Differs from the paper: other images." in html
    assert "+12.0 ± 25.4" in html  # of 10 and 14, by Student's t with one degree of freedom
    rows = list(csv.DictReader((tmp_path / "page" / "reproduced.csv").read_text("utf-8").splitlines()))
    found = next(row for row in rows if (row["method"], row["measure"]) == ("fedprox", "unseen"))
    assert float(found["gain"]) == pytest.approx(12)
    assert (float(found["paper"]), float(found["paper_gain"])) == (55, 5)
    latex = (tmp_path / "page" / "reproduced.tex").read_text("utf-8")
    assert r"fedprox & 47.0 & 55.0 & $+12.0 \pm 25.4$" in latex
    assert latex.count(r"\multicolumn{3}{c}") == 3


# ---------------------------------------------------------------------------------------------------------- tuned alike
SEARCHED = """
methods: [fedavg, fedprox]
seeds: [1]
held_out_domains: [street]
data: {name: glyphs}
tuned: {street: {fedavg: fedavg @ lr=0.05, fedprox: fedprox(mu=0.1) @ lr=0.02}}
"""


def test_rows_that_were_searched_alike_are_a_second_column(folder: Path, tmp_path: Path) -> None:
    plain = [record("fedavg", seed, 0.5) for seed in (0, 1)] + [record("fedprox", seed, 0.6) for seed in (0, 1)]
    searched = [record("fedavg", seed, 0.7, tuned="fedavg @ lr=1") for seed in (1, 2)]
    searched += [record("fedprox", seed, value, tuned="fedprox @ lr=2") for seed, value in ((1, 0.66), (2, 0.68))]
    ledger.append("some/table1", [*plain, *searched])
    assert len(ledger.read("some/table1")) == 8  # one with searched settings is another run
    standing = Standing.of(read_table("some/table1"))
    found = standing.rows[1].found["unseen"]
    assert found.ours is not None
    assert found.tuned is not None
    assert found.tuned_gain is not None
    assert (found.ours.mean, found.tuned.mean) == (pytest.approx(60), pytest.approx(67))
    assert found.tuned_gain.mean == pytest.approx(-3)  # to the first row as searched, not as it is
    assert standing.rows[1].runs == 2
    assert "| 67.0 | -3.0 ± 12.7 |" in reproduced_markdown(standing)
    html = write_reproduced(standing, tmp_path / "page").read_text("utf-8")
    check_well_formed(html)
    assert "minus fedavg, tuned alike (95 %)" in html
    latex = (tmp_path / "page" / "reproduced.tex").read_text("utf-8")
    assert latex.count(r"\multicolumn{4}{c}") == 3
    assert r"$+10.0$ & 67.0" in latex
    assert not Standing.of(read_table("some/table1"), plain).searched
    assert "tuned alike" not in reproduced_markdown(Standing.of(read_table("some/table1"), plain))


@pytest.mark.slow
def test_a_table_is_run_with_what_a_search_chose(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "tuned.yaml").write_text(SEARCHED, encoding="utf-8")
    given = ["reproduce", "some/table1", "--tuned", str(tmp_path / "search"), "engine.name=sequential", "--record"]
    found = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "run"), "--json"], catch_exceptions=False)
    assert found.exit_code == 0
    shown = json.loads(found.output[found.output.index("{") :])
    assert shown["rows"][0]["unseen"]["ours"] is None
    assert shown["rows"][0]["unseen"]["tuned"] > 0
    lines = ledger.read("some/table1")
    assert [(line["tuned"], line["seed"]) for line in lines] == [
        ("fedavg @ lr=0.05", 1), ("fedprox(mu=0.1) @ lr=0.02", 1)
    ]  # fmt: skip
    (tmp_path / "search" / "tuned.yaml").write_text(
        SEARCHED.replace(", fedprox: fedprox(mu=0.1) @ lr=0.02", ""), "utf-8"
    )
    for file, said in (
        (tmp_path / "search", "has no settings of 'fedprox' with street held out"),
        (folder / "some" / "table1.yaml", "is no file of `fairsilo tune`"),
    ):
        with pytest.raises(FairsiloError, match=said):
            read_searched(file, ["fedavg", "fedprox"])


def place(chart: str, name: str) -> float:
    """Where a row's dot is, from left to right."""
    drawn = chart.partition(f"<title>{name}:")[2]
    return float(re.findall(r'cx="([\d.]+)"', drawn)[0])


def test_a_forest_has_each_difference_in_its_place() -> None:
    effects = [Effect("up", 2.0, 1.0, other=-1.0), Effect("down", -2.0, None), Effect("none", None)]
    chart = forest_chart(effects, title="t", x_label="difference")
    zero = float(re.findall(r'class="grid zero" d="M([\d.]+)', chart)[0])
    assert place(chart, "down") < zero < place(chart, "up")
    assert place(chart, "up") - zero == pytest.approx(zero - place(chart, "down"), abs=0.2)
    low, high = map(float, re.findall(r'd="M([\d.]+) [\d.]+H([\d.]+)"', chart.partition("<title>up:")[2])[0])
    assert (low + high) / 2 == pytest.approx(place(chart, "up"), abs=0.1)
    assert high - low == pytest.approx(place(chart, "up") - zero, abs=0.2)  # as wide as the difference is far
    diamond = float(re.findall(r'hollow" d="M([\d.]+)', chart)[0])
    assert zero - diamond == pytest.approx((place(chart, "up") - zero) / 2, abs=0.2)
    assert "+2.0 ± 1.0" in chart
    assert "nothing was recorded" in forest_chart([Effect("none", None)], title="t", x_label="x")


@pytest.mark.parametrize(("more", "told"), [([], "with --out FOLDER"), (["--out", "kept"], "go on with: fairsilo")])
@pytest.mark.usefixtures("folder")
def test_an_interrupted_check_says_how_to_go_on_only_where_something_is_kept(
    more: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checking, "ROWS", {"some/table1": ("fedavg",)})

    def interrupted(*_: Any, **__: Any) -> None:
        stop = KeyboardInterrupt()
        stop.add_note("go on with: fairsilo")
        raise stop

    monkeypatch.setattr("fairsilo.api.compare", interrupted)
    found = CliRunner().invoke(app, ["reproduce", "--check", *more], catch_exceptions=False)
    assert found.exit_code == 130
    assert told in found.output
    assert found.output.count("interrupted") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--show"], "--show is about one table"),
        (["--rows", "fedavg"], "--rows is about one table"),
        (["--seeds", "0"], "--seeds is about one table"),
        (["--check", "--track", "tensorboard"], "keep them with --out"),
        (["--check", "--rows", "fedavg"], "--rows has no effect with --check"),
        (["--check", "fedheal/table2-glyphs"], "--check is about all tables"),
        (["--list", "--record"], "--record has no effect with --list"),
        (["fedheal/table2-glyphs", "--show", "--held-out", "x"], "--held-out has no effect with --show"),
    ],
)
def test_what_would_be_passed_over_is_refused(given: list[str], said: str) -> None:
    with pytest.raises(FairsiloError, match=said):
        CliRunner().invoke(app, ["reproduce", *given], catch_exceptions=False)


@pytest.mark.slow
def test_small_rows_are_held_against_the_ledger(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "ROWS", {"some/table1": ("fedavg",)})
    given = ["reproduce", "--check", "engine.name=sequential", "--out", str(tmp_path / "run"), "--json"]

    def called() -> tuple[int, list[dict[str, Any]]]:
        found = CliRunner().invoke(app, given, catch_exceptions=False)
        return found.exit_code, json.loads(found.output.splitlines()[-1])

    code, found = called()
    assert code == 1  # the ledger does not have the run
    assert {one["ledger"] for one in found} == {None}
    now = {one["measure"]: one["now"] for one in found}
    assert set(now) == {"unseen", "average", "deviation"}
    same = ["--out", str(tmp_path / "run" / "some" / "table1"), "--rows", "fedavg", "engine.name=sequential"]
    CliRunner().invoke(app, ["reproduce", "some/table1", "--record", *same], catch_exceptions=False)
    code, found = called()
    assert code == 0
    assert all(one["holds"] and one["ledger"] == pytest.approx(one["now"]) for one in found)
    lines = [{**line, "generalisation": line["generalisation"] + 0.03} for line in ledger.read("some/table1")]
    ledger.file_of("some/table1").write_text(json.dumps(lines[0]) + "\n", encoding="utf-8")
    code, found = called()
    assert code == 1
    assert [one["measure"] for one in found if not one["holds"]] == ["unseen"]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["some/table2"], "no table is called 'some/table2'; did you mean 'some/table1'?"),
        (["some/table1", "other"], "one table at a time"),
        (["some/table1", "--rows", "moon"], "some/table1 has no row 'moon'; it has: fedavg; fedprox"),
    ],
)
def test_what_there_is_not_is_a_sentence(texts: list[str], said: str, folder: Path) -> None:
    found = CliRunner().invoke(app, ["reproduce", *texts])
    assert isinstance(found.exception, FairsiloError)
    assert said in str(found.exception)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("of:", "from:", r"paper\.from is unknown"),
        ("[unseen, average", "[unsee, average", "no measure is called 'unsee'"),
        (
            "[50, 60.5, 3]",
            "[50, 60.5]",
            r"paper\.numbers of fedavg must be a number for each",
        ),
    ],
)
def test_a_table_with_a_mistake_is_a_sentence(before: str, after: str, said: str, folder: Path) -> None:
    (folder / "some" / "table1.yaml").write_text(TABLE.replace(before, after), encoding="utf-8")
    with pytest.raises(FairsiloError, match=said):
        read_table("some/table1")


def test_tables_of_the_same_settings_share_their_runs(folder: Path) -> None:
    (folder / "some" / "table2.yaml").write_text(TABLE.replace("[fedavg, fedprox]", "[fedavg, moon]"), encoding="utf-8")
    (folder / "some" / "table3.yaml").write_text(TABLE.replace("rounds: 1", "rounds: 2"), encoding="utf-8")
    ledger.append("some/table1", [record("fedavg", 0, 0.1), record("fedprox", 0, 0.2)])
    ledger.append("some/table2", [record("fedavg", 0, 0.3)])
    found = {
        name: [one["generalisation"] for one in runs_of(read_table(f"some/{name}"))] for name in ("table1", "table2")
    }
    assert found == {"table1": [0.1, 0.2], "table2": [0.3]}  # its own first
    ledger.file_of("some/table2").unlink()
    assert [one["generalisation"] for one in runs_of(read_table("some/table2"))] == [0.1]
    assert runs_of(read_table("some/table3")) == []
    (folder / "some" / "table4.yaml").write_text(TABLE.replace("seeds: [0]", "seeds: [7, 8]"), encoding="utf-8")
    ledger.append("some/table1", [record("fedprox", 7, 0.4)])
    assert [one["generalisation"] for one in runs_of(read_table("some/table4"))] == [0.4]  # of its seeds alone


@pytest.mark.parametrize("table", tables.tables(), ids=lambda table: table.name)
def test_the_tables_of_the_papers(table: tables.Table) -> None:
    """Numbers are of rows that the table has, and the ledger's runs too, none of them twice or lost."""
    methods = table.comparison.methods
    assert set(table.numbers) <= set(methods)
    lines = ledger.read(table.name)
    assert {line["method"] for line in lines} <= set(methods)
    assert len({ledger.key(line) for line in lines}) == len(lines)
    assert all(line["commit"] and line["rounding"]["precision"] for line in lines)
    assert table.of or table.earlier


@pytest.mark.parametrize(
    ("name", "domains"),
    [
        ("fft-gp/glyphs", 5),  # all of the data that come along
        ("fft-gp/tables2-3-pacs", 4),  # all of a public data set
        ("fft-gp/clip-digits", 5),  # all that the file names
        ("fedag/vit-glyphs", 1),  # two at once
        ("fedheal/table2-digits", 1),  # none
        ("crossings/office", 1),
    ],
)
def test_a_table_knows_how_many_domains_it_holds_out(name: str, domains: int) -> None:
    table = read_table(name)
    assert table.held_out == domains
    rows = Standing.of(table, []).rows
    assert {row.wanted for row in rows} == {domains * len(table.comparison.seeds)}


@pytest.mark.slow
def test_this_checkout_finds_what_the_ledger_says() -> None:
    found = CliRunner().invoke(app, ["reproduce", "--check"], catch_exceptions=False, env={"COLUMNS": "150"})
    assert found.exit_code == 0, found.output
    assert found.output.count("holds") == 6  # three rows, two measures
