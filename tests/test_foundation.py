"""Every system on a frozen backbone, end to end and offline: the shipped tiny CLIP and tiny ViT on a few glyphs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

import fairsilo
from fairsilo import config
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.federation import Federation
from fairsilo.models.networks import Staged
from fairsilo.report.tables import comparison_csv, comparison_table, run_table
from fairsilo.runs.setup import federation_of

FEW = 10  # training images a silo has, one of each class


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """On some processors oneDNN takes longer to set up a tiny network's layers than they take to compute; and images
    go through a frozen stage in blocks that are filled up, which are too large for these few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", False)
        patch.setattr(Staged, "block", 8)
        yield


@pytest.fixture(scope="module")
def people() -> Federation:
    whole = federation_of(config.experiment({"data": {"name": "glyphs", "held_out": "photo"}}))

    def few(split: Split, count: int) -> Split:
        order = torch.randperm(len(split), generator=torch.Generator().manual_seed(1))
        turn = torch.zeros(len(split), dtype=torch.long)  # the first of each class, then the second of each, ...
        for label in split.targets.unique():
            members = order[split.targets[order] == label]
            turn[members] = torch.arange(len(members))
        return split.subset(order[turn[order].argsort(stable=True)][:count])

    def smaller(silo: SiloData) -> SiloData:
        return dataclasses.replace(
            silo,
            train=few(silo.train, FEW),
            validation=few(silo.validation, 4),
            test=few(silo.test, 30 if len(silo.train) == 0 else 8),
        )

    return dataclasses.replace(whole, silos=tuple(map(smaller, whole.silos)), unseen=tuple(map(smaller, whole.unseen)))


def settings(how: str) -> dict[str, object]:
    return {
        "method": how,
        "data": {"name": "glyphs", "held_out": "photo", **({"synthetic": "glyphs"} if how in TUNED else {})},
        "train": {"rounds": 2, "epochs": 1, "batch_size": 4, "optimizer": "adam", "lr": 0.001, "weight_decay": 0.0},
        "evaluate": {"every": 2},
        "engine": {"name": "sequential"},
    }


TUNED = ("fedavg-ft", "fedprox-ft", "fedclip-ft", "fedot-ft", "fedag")  # on synthetic images, at the server
ON_VIT = [
    "vpt",
    "vpt | afl(step_size=0.1, carry=false, start=samples)",
    "vpt(prompts=6) | q-ffl",
    "vpt | term(t=0.01)",
    "vpt | harmofl",
    "vpt | fedsam",
    "vpt | fedmix(group=2)",
    "fedgr",
    "fedgc(under=local)",
    "fedgcr",
    "fedgcr(variant=released)",
    "vit-central",
    "fedavg-ft",
    "fedprox-ft",
]
ON_CLIP = [
    "clip-zero-shot",
    *(
        f"{frame}{with_}"
        for frame in ("fedclip", "promptfl")
        for with_ in ("", " | fedprox", " | ditto", " | per-fedavg", " | ga", " | grace", " | fft-gp")
    ),
    "fedclip(adapter_width=8)",
    "fedclip-ft",
    "clip-adapter",
    "clip-lora",
    "fedlora",
    "fedlora | fft-gp",
    "clip-per-domain",
    "fedot",
    "fedot-ft",
    "fedag",
]


@pytest.mark.one_in(15)
@pytest.mark.parametrize("how", [*ON_VIT, *ON_CLIP])
def test_every_system_runs_offline_on_the_shipped_backbones(how: str, people: Federation, tmp_path: Path) -> None:
    backbone = "tiny-vit" if how in ON_VIT or how == "fedag" else "tiny-clip"
    result = fairsilo.run(model=backbone, federation=people, out=tmp_path / "run", **settings(how))  # type: ignore[arg-type]
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["status"] == "finished"
    rows = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert not any(row["failures"] for row in rows)
    about = "personalisation" if how == "clip-per-domain" else "generalisation"  # which has no model for the unseen
    found = result.summary[about]["mean"]
    assert math.isfinite(found)
    if how in ON_CLIP:
        assert found > 0.35  # chance is 0.1, and zero-shot about 0.6: what CLIP knows is not lost
    if facts["bytes_sent"]:
        assert facts["bytes_sent"] < facts["bytes_model"] or how in ("vit-central", "fedavg-ft", "fedprox-ft", "fedag")


def test_clustering_accuracy_is_shown_wherever_results_are(people: Federation, tmp_path: Path) -> None:
    result = fairsilo.run(model="tiny-vit", federation=people, out=tmp_path / "run", **settings("fedgr"))  # type: ignore[arg-type]
    found = result.summary["clustering_accuracy"]
    assert found == 1.0  # by default a cluster for each of the four silos, which have a domain each
    page = (tmp_path / "run" / "report.html").read_text()
    assert re.search(r"Clustering accuracy: 100\.0\s% of the silos are in a cluster of their domain\.", page)

    def shown(table: object) -> str:
        console = Console(file=io.StringIO(), width=250)
        console.print(table)
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]

    lines = shown(run_table("fedgr", result.summary)).splitlines()
    assert any("clustering accuracy" in line and "100.0" in line for line in lines)
    plain = {key: value for key, value in result.summary.items() if key != "clustering_accuracy"}
    half = {**plain, "clustering_accuracy": 0.5}
    cells = [
        {"method": "vpt", "held_out": "photo", "seed": 0, "summary": plain},
        {"method": "fedgr", "held_out": "photo", "seed": 0, "summary": result.summary},
        {"method": "fedgr", "held_out": "photo", "seed": 1, "summary": half},
    ]
    comparison = {"methods": ["vpt", "fedgr"], "held_out": ["photo"], "seeds": [0, 1], "cells": cells}
    lines = shown(comparison_table(comparison)).splitlines()
    assert next(line for line in lines if line.startswith("│ fedgr")).rstrip(" │").endswith("75.0")
    assert "clustering accuracy" not in shown(comparison_table({**comparison, "methods": ["vpt"], "cells": cells[:1]}))
    listed = list(csv.DictReader(io.StringIO(comparison_csv(comparison))))
    assert [row["clustering_accuracy"] for row in listed] == ["", "1.0", "0.5"]
