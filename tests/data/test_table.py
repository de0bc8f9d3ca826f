"""Rows of numbers from CSV files, as regression and as classification."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import fairsilo
from fairsilo.data import load
from fairsilo.data.dataset import TEST, TRAIN
from fairsilo.data.table import is_table
from fairsilo.errors import FairsiloError

HEADER = "domain,silo,split,age,dose,sex,attribute_ward,target\n"
ROWS = "north,n1,train,40,0.5,f,7,120.5\nsouth,s1,test,50,1e-1,m,8,130\nnorth,n2,,61,2,m,7,99\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "table.csv"
    file.write_text(text)
    return file


def test_numbers_are_inputs_and_texts_attributes(tmp_path: Path) -> None:
    dataset = load(folder=str(written(tmp_path, HEADER + ROWS)))
    assert dataset.task == "regress"
    assert dataset.classes == ()
    north = dataset.domains["north"]
    assert torch.equal(north.samples.inputs, torch.tensor([[40, 0.5], [61, 2]]))
    assert north.targets.tolist() == [120.5, 99]
    assert north.silo == ("n1", "n2")
    assert north.attributes == {"sex": ("f", "m"), "ward": ("7", "7")}
    assert north.split.tolist() == [TRAIN, -1]
    assert dataset.domains["south"].split.tolist() == [TEST]


def test_labels_are_classes(tmp_path: Path) -> None:
    dataset = load(folder=str(written(tmp_path, "label,domain,x\nill,a,1\nwell,b,2\nill,b,3\n")))
    assert dataset.task == "classify"
    assert dataset.classes == ("ill", "well")
    assert dataset.domains["b"].targets.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("target,x\n1,2\n", "has no column 'domain'"),
        ("target,label,domain,x\n1,a,n,2\n", "a column target and a column label"),
        ("target,domain,x\n1,a,2\n,b,3\n", "Row 2 of table .* has no target"),
        ("target,domain,x\n1,a,2\n2,b,\n", "Row 2 of table .* has x '', but it must be a finite number"),
        ("target,domain,x\n1,a,2\nnan,b,3\n", "Row 2 of table .* has target 'nan'"),
        ("target,domain,x\n1,a,two\n2,b,three\n", "no column of numbers besides target"),
        ("target,domain,split,x\n1,a,,2\n2,b,later,3\n", "has split 'later'"),
        ("target,domain,x\n1,a,2\n2,a,3\n", "only the domain 'a'"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match=words):
        load(folder=str(written(tmp_path, text)))


def test_an_index_of_images_is_no_table(tmp_path: Path) -> None:
    assert not is_table(written(tmp_path, "path,label,domain\na.png,x,d\n"))
    assert not is_table(written(tmp_path, "pth,label,domain\na.png,x,d\n"))
    assert not is_table(tmp_path / "none.csv")
    with pytest.raises(FairsiloError, match="has no column 'path'"):
        load(folder=str(written(tmp_path, "pth,label,domain\na.png,x,d\n")))


def test_a_table_is_learnt(tmp_path: Path) -> None:
    """Columns of very different units, targets far from zero: networks see them on one scale."""
    stream = random.Random(0)
    lines = []
    for domain, shift in (("a", 0.0), ("b", 1.0), ("c", 0.5)):
        for _ in range(120):
            x, y = stream.gauss(shift, 1), stream.gauss(0, 1)
            lines.append(f"{domain},{5000 + 1000 * x:.3f},{0.001 * y:.6f},{300 + 20 * x - 10 * y:.3f}")
    file = written(tmp_path, "domain,big,small,target\n" + "\n".join(lines) + "\n")
    run = fairsilo.run(
        method="fedavg",
        out=tmp_path / "run",
        data={"folder": str(file), "held_out": "c"},
        task={"offset": 300.0, "scale": 20.0},
        train={"rounds": 8, "epochs": 3, "lr": 0.05},
        evaluate={"metric": "r2"},
        engine={"name": "sequential"},
    )
    assert run.summary["generalisation"]["mean"] > 0.8
    assert fairsilo.load(tmp_path / "run").predict(torch.tensor([[6000.0, 0.0]])).item() == pytest.approx(320, abs=8)
