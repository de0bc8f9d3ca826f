"""Metrics of another package, whose names say nothing to fairsilo: their unit and direction go with the results."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import fairsilo
from fairsilo.analysis.metrics import summarise
from fairsilo.errors import FairsiloError
from fairsilo.report.comparison_page import write_comparison
from fairsilo.report.groups import group_tables
from fairsilo.report.page import read_run
from fairsilo.report.tables import run_table, runs_table
from fairsilo.report.tuning_page import page as tuning_page
from fairsilo.report.tuning_page import tuning_table, write_tuning
from fairsilo.report.units import shown_as, shown_in, unit
from fairsilo.reproduction.blocks import source_of
from fairsilo.reproduction.contest import Contest
from fairsilo.runs.inventory import kept
from fairsilo.watch.places import Places
from fairsilo.watch.two_runs import pair_page
from other_tasks import GROUNDS
from test_crossings import runs, source
from test_groups import SEXES, labelled

GROUND = GROUNDS["regress"]
OWN = "test_task_runs:Distances"  # reports mean-distance: less is better, and it is no share
SETTINGS: dict[str, Any] = {
    "model": GROUND.network,
    "train": {"rounds": 1, "epochs": 1, "lr": 0.01},
    "engine": {"name": "sequential"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in which the second method has clearly smaller errors: the first hardly learns."""
    people = dataclasses.replace(GROUND.federation(), task=OWN)
    out = tmp_path_factory.mktemp("own") / "c"
    methods = ["fedavg @ lr=0.000001", "fedavg @ lr=0.05"]
    fairsilo.compare(methods, held_out=None, seeds=[0], federation=people, out=out, **SETTINGS)
    write_comparison(out)
    return out


def cells(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "comparison.json").read_text())["cells"]
    return found


def test_a_summary_says_which_end_is_better(folder: Path) -> None:
    assert all((one["summary"]["share"], one["summary"]["higher_is_better"]) == (False, False) for one in cells(folder))
    run = folder / cells(folder)[0]["folder"]
    assert read_run(run).summary["higher_is_better"] is False
    assert kept(run).higher is False
    assert summarise([])["higher_is_better"] is None


def test_fewer_errors_are_better_wherever_a_comparison_is_told(folder: Path) -> None:
    worse, better = (one["summary"]["generalisation"]["mean"] for one in cells(folder))
    assert better < worse
    page = (folder / "comparison.html").read_text()
    assert "fedavg @ lr=0.05 generalises better than fedavg @ lr=0.000001 by" in page
    assert "Better is left and down." in page
    assert "Better is right" not in page
    assert "% mean distance, lower is better, one run" in (folder / "comparison.tex").read_text()


def test_fewer_errors_are_better_where_runs_are_shown_side_by_side(folder: Path) -> None:
    first, second = (folder / one["folder"] for one in cells(folder))
    page = pair_page(Places(folder), {"second": second, "first": first})
    answer = page.partition("Generalisation")[2].partition("</tr>")[0]
    assert '<small class="difference good">' in answer
    assert '<small class="difference bad">' not in answer


def test_what_has_its_unit_in_one_place_has_it_in_all(folder: Path) -> None:
    run = folder / cells(folder)[1]["folder"]
    summary = cells(folder)[1]["summary"]
    assert str(run_table("fedavg", summary).title).startswith("fedavg — mean distance, lower is better; ")
    (results,) = [list(one.cells) for one in runs_table([kept(run)], folder, 0.0).columns if one.header == "results"]
    assert str(results[0]).startswith(f"{summary['generalisation']['mean']:.4g} / ")


def test_groups_are_in_the_metrics_unit_too(tmp_path: Path) -> None:
    people = dataclasses.replace(GROUND.federation(), task=OWN)
    silos = tuple(labelled(silo, sex=list(SEXES[silo.name])) for silo in people.silos)
    people = dataclasses.replace(people, silos=silos, unseen=())
    run = fairsilo.run(method="fedavg", federation=people, out=tmp_path / "run", evaluate={"groups": "sex"}, **SETTINGS)
    (table,) = group_tables([("fedavg", run.summary)])
    assert str(table.title).startswith("by sex — mean distance, lower is better")
    found = run.summary["groups"]["sex"]["values"]["f"]["global"]
    assert f"{found:.4g}" in str(next(iter(table.columns[2].cells)))


def test_a_contest_refuses_errors_whatever_they_are_called(folder: Path) -> None:
    """As it refuses fairsilo's own: ranked like shares the most errors would come first."""
    said = "is measured by mean-distance; only shares of which more is better are compared here"
    with pytest.raises(FairsiloError, match=said):
        Contest.of([source_of(str(folder))])
    with pytest.raises(FairsiloError, match="is measured by error-rate"):
        Contest.of([source("one", runs(metric="error-rate", share=True, higher_is_better=False))])
    with pytest.raises(FairsiloError, match="is measured by kappa"):
        Contest.of([source("one", runs(metric="kappa", share=False, higher_is_better=True))])
    known = Contest.of([source("one", runs(metric="kappa", share=True, higher_is_better=True))])
    assert known.ranks


def test_what_an_older_folder_does_not_say_its_metrics_name_tells() -> None:
    for name, number, higher in (("accuracy", False, True), ("mae", True, False), ("ece", False, False)):
        with shown_as({"metric": name}):
            assert ((unit().factor == 1), unit().higher) == (number, higher)
    with shown_in("error-count", False):
        assert unit().title == "error count"
    with shown_in("error-count", False, False):
        assert unit().title == "error count, lower is better"
    with shown_in("mae", None, True):  # somebody else's metric of that name
        assert unit().higher
    old = [{**one, "share": None, "higher_is_better": None} for one in runs(metric="hd95")]
    with pytest.raises(FairsiloError, match="is measured by hd95"):
        Contest.of([source("one", old)])


def test_a_search_is_in_the_metrics_unit_and_older_ones_still_open(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs the extra tune")
    people = dataclasses.replace(GROUND.federation(), task=OWN)
    found = fairsilo.tune(["fedavg", "fedprox"], federation=people, out=tmp_path / "t", trials=2, **SETTINGS)
    assert found.metric == {"name": "mean-distance", "higher_is_better": False, "share": False}
    content = json.loads((tmp_path / "t" / "tuning.json").read_text())
    assert content["metric"] == found.metric
    (domain,) = content["found"]
    usual = content["found"][domain]["fedavg"]["usual"]
    page = write_tuning(tmp_path / "t").read_text()
    assert f'<td class="number">{usual:.4g}</td>' in page
    assert "; less is better" in page
    assert next(iter(tuning_table(content).columns[2].cells)) == f"{usual:.4g}"
    del content["metric"]
    assert f'<td class="number">{100 * usual:.1f}\u00a0%</td>' in tuning_page(content)
