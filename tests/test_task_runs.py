"""Whole runs of tasks that are no classification of images: folder, page, and what a trained run is asked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fairsilo
from fairsilo.core.task import Measure, Metric
from fairsilo.report.comparison_page import write_comparison
from fairsilo.report.page import write_report
from fairsilo.report.tables import run_table
from fairsilo.tasks.regress import Regress
from other_tasks import GROUNDS


@pytest.mark.parametrize("task", GROUNDS)
def test_a_run_has_its_page_and_answers(task: str, tmp_path: Path) -> None:
    ground = GROUNDS[task]
    people = ground.federation()
    run = fairsilo.run(
        method="fedavg",
        baseline="ditto",
        federation=people,
        model=ground.network,
        out=tmp_path / "run",
        train={"rounds": 2, "epochs": 1, "lr": 0.01},
        engine={"name": "sequential"},
    )
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    assert run.summary["generalisation"]["mean"] is not None
    _shown_in_its_unit(run, (tmp_path / "run" / "report.html").read_text(), task)
    trained = fairsilo.load(tmp_path / "run", model=ground.network)
    test = people["u"].test
    said = trained.predict(test.inputs)
    shapes = {"segment": (18, 2, 8, 8), "next-character": (18, 5), "regress": (18,)}
    assert tuple(said.shape) == shapes[task]
    if task != "regress":
        torch.testing.assert_close(said.sum(1), torch.ones_like(said.sum(1)))
    (row,) = trained.evaluate({"u": test})
    assert row["metric"] == pytest.approx(run.summary["generalisation"]["per_domain"]["u"])


def _shown_in_its_unit(run: Any, page: str, task: str) -> None:
    """Shares in percent; errors as they are, on the page and in the terminal's table."""
    value = run.summary["generalisation"]["mean"]
    shown = f"{value:.4g}" if task == "regress" else f"{100 * value:.1f}\u00a0%"
    assert shown in page
    silos = page.partition("Silo by silo")[2].partition("Round by round")[0].replace("95 % interval", "")
    assert ("%" in silos) == (task != "regress")
    table = run_table(run.method, run.summary)
    measured = {
        "regress": "mae, lower is better",
        "segment": "dice in percent",
        "next-character": "accuracy in percent",
    }
    assert str(table.title).startswith(f"fedavg — {measured[task]}; ")
    assert shown.partition("\u00a0")[0] in list(table.columns[1].cells)


def test_a_comparison_of_errors_is_in_their_unit(tmp_path: Path) -> None:
    ground = GROUNDS["regress"]
    found = fairsilo.compare(
        ["fedavg", "local"],
        seeds=[0],
        federation=ground.federation(),
        model=ground.network,
        out=tmp_path / "c",
        train={"rounds": 1, "epochs": 1, "lr": 0.01},
        engine={"name": "sequential"},
    )
    page = write_comparison(found.folder).read_text()
    assert "In mae," in page
    assert "variance, mae²" in page
    assert "In percent" not in page
    assert "% mae, lower is better, one run" in (found.folder / "comparison.tex").read_text()


class Distances(Regress):
    """A task of another package, whose metric no table of fairsilo knows."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (Metric("mean-distance", "in millimetres", False, share=False),)

    @property
    def reported(self) -> Metric:
        return self.metrics[0]

    def measure(self, tally: torch.Tensor) -> Measure:
        found = Regress().measure(tally)
        return Measure(found.loss, found.metric, found.samples, {"mean-distance": found.metric})


def test_a_metric_of_another_package_is_shown_in_its_unit(tmp_path: Path) -> None:
    ground = GROUNDS["regress"]
    people = dataclasses.replace(ground.federation(), task="test_task_runs:Distances")
    run = fairsilo.run(
        method="fedavg",
        federation=people,
        model=ground.network,
        out=tmp_path / "run",
        train={"rounds": 1, "epochs": 1, "lr": 0.01},
        engine={"name": "sequential"},
    )
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["metric"] == {"name": "mean-distance", "higher_is_better": False, "share": False}
    assert f"{run.summary['generalisation']['mean']:.4g}<" in (tmp_path / "run" / "report.html").read_text()
    assert str(run_table(run.method, run.summary).title).startswith("fedavg — mean distance, lower is better; ")
    # a folder of an older version does not say it, and keeps being shown in percent
    del told["metric"]["share"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(told))
    assert f"{100 * run.summary['generalisation']['mean']:.1f}\u00a0%" in write_report(tmp_path / "run").read_text()


class Wrong(nn.Module):
    """Predicts maps, or none, whatever it is given."""

    def __init__(self, classes: int, maps: bool) -> None:
        super().__init__()
        self.bias, self.maps = nn.Parameter(torch.zeros(classes)), maps

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = self.bias.expand(len(inputs), -1)
        return found[:, :, None, None].expand(-1, -1, 8, 8) if self.maps else found


@pytest.mark.parametrize(("task", "network"), [("segment", "regress"), ("next-character", "segment")])
def test_a_network_for_another_task_is_refused_before_anything_is_written(task: str, network: str) -> None:
    ground = GROUNDS[task]
    people = ground.federation()
    made = dataclasses.replace(ground, network=lambda classes, _: Wrong(classes, network == "segment"))
    with pytest.raises(fairsilo.FairsiloError, match=f"the task '{task}' needs a network that predicts"):
        made.plan("fedavg", people).check(people.roster, server_data=False)


def test_data_of_a_task_choose_their_network(tmp_path: Path) -> None:
    """`auto` takes the U-Net for masks, which is told from what the images are."""
    people = GROUNDS["segment"].federation()
    with pytest.raises(fairsilo.FairsiloError, match="unet"):  # the images are 8x8, and it takes multiples of 16
        fairsilo.run(method="fedavg", federation=people, out=tmp_path / "run")
