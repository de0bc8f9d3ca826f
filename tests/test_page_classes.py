"""What the page shows class by class and image by image: shares, confusion matrices, outlines of masks."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fairsilo
import tiny
from fairsilo.core.samples import SiloData, Split
from fairsilo.errors import FairsiloError
from fairsilo.report import classes
from fairsilo.report.examples import COLOURS
from fairsilo.report.outlines import edges, picture
from fairsilo.report.page import write_report
from fairsilo.runs.examples import SIDE, SILOS, _chosen, answers, dices
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.pictures import Example, read_examples
from fairsilo.runs.trained import Trained
from other_tasks import GROUNDS
from test_report_page import check_well_formed, make, part, read, words

SETTINGS: dict[str, Any] = {"train": {"rounds": 2, "epochs": 1, "lr": 0.05}, "engine": {"name": "sequential"}}
NAMES = ("cat", "dog", "<eel>")
TABLES = {  # silo -> confusion, so that all silos differ
    "art": [[6, 2, 0], [1, 3, 0], [0, 0, 0]],
    "clipart": [[8, 0, 0], [0, 4, 0], [0, 0, 0]],
    "photo": [[5, 0, 3], [0, 4, 0], [0, 0, 2]],
    "sketch": [[1, 7, 0], [0, 4, 0], [1, 1, 0]],
}


def counted(folder: Path, tables: dict[str, Any], names: tuple[str, ...] = NAMES, **options: Any) -> Path:
    """A made-up run whose rows have counts; those of earlier rounds and of other models are all wrong."""
    made = make(folder, roster={"classes": list(names), **ROSTER}, **options)
    rows = RunFolder(made).rows("metrics")
    wanted = options.get("about", "global")
    for row in rows:
        table = tables[row["silo"]]
        model = "global" if row["unseen"] else wanted
        if (row["round"], row["model"], row["split"]) != (6, model, "test"):
            table = [[0] * len(table) for _ in table[1:]] + [[99] * len(table)]
        row["per_class"] = {"samples": [sum(line) for line in table], "right": [table[i][i] for i in range(len(table))]}
        row["per_pair"] = {"confusion": table}
    RunFolder(made).write_text("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return made


ROSTER: dict[str, Any] = {"name": "x", "shape": [1, 2, 2], "dtype": "uint8", "silos": [], "unseen": []}


# -------------------------------------------------------------------------------------------------------------- classes
@pytest.mark.parametrize("about", ["global", "personal"])
def test_shares_of_classes_are_those_of_the_selected_round_and_model(tmp_path: Path, about: str) -> None:
    content = read(counted(tmp_path / "run", TABLES, about=about))
    check_well_formed(content)
    shown = words(part(content, "classes"))
    own = "own" if about == "personal" else "global"
    assert "test data of round 6" in shown
    assert f"art {own} 75.0 % 8 75.0 % 4 –" in shown
    assert f"photo {own} 62.5 % 8 100.0 % 4 100.0 % 2" in shown
    assert "sketch unseen global 12.5 % 8 100.0 % 4 0.0 % 2" in shown
    assert "<eel>" in shown
    assert "99" not in shown


def test_confusion_is_folded_shaded_and_says_what_is_taken_for_what(tmp_path: Path) -> None:
    found = part(read(counted(tmp_path / "run", TABLES)), "classes")
    folded = re.findall(r'<details class="silo"><summary>(.*?)</summary>(.*?)</details>', found, re.DOTALL)
    assert [summary for summary, _ in folded] == [
        "art: 3 of 12 wrong; most often cat taken for dog (2), dog taken for cat (1)",
        "clipart: all 12 right",
        "photo: 3 of 14 wrong; most often cat taken for &lt;eel&gt; (3)",
        "sketch: 9 of 14 wrong; most often cat taken for dog (7), &lt;eel&gt; taken for cat (1)",
    ]
    cat = re.findall(r'<td class="([^"]*)" style="--heat: ([\d.]+)%">(\d+)</td>', folded[0][1])[:3]
    strongest = classes.STRONGEST  # shaded by the share of the row, mistakes in another colour
    assert cat == [
        ("number", f"{strongest * 6 / 8:.1f}", "6"),
        ("number wrong", f"{strongest * 2 / 8:.1f}", "2"),
        ("number wrong", "0.0", "0"),
    ]


def test_of_many_classes_the_hardest_and_the_most_confused_pairs_are_shown(tmp_path: Path) -> None:
    names = tuple(f"kind{number}" for number in range(20))
    table = [[number if i == j else 0 for j in range(20)] for i, number in enumerate([10] * 20)]
    for hard in range(15):  # one more mistake each
        table[hard][19] += 15 - hard
    found = part(read(counted(tmp_path / "run", dict.fromkeys(TABLES, table), names)), "classes")
    shown = words(found)
    assert "Of 20 classes these are the 12 with the lowest mean" in shown
    head = found[: found.index("</thead>")]
    assert [name for name in names if f">{name}<" in head] == list(names[:12])
    assert "the 10 pairs that are confused most often" in shown
    first = words(re.search(r"<tbody>(.*?)</tbody>", found[found.index("<details") :], re.DOTALL)[1])  # type: ignore[index]
    assert first.startswith(" kind0 kind19 15 60.0 %")
    assert first.count("kind19") == 10


def test_of_many_silos_some_matrices_are_left_out_and_the_page_says_so(tmp_path: Path) -> None:
    silos = tuple(f"site{number:02d}" for number in range(40))
    tables = dict.fromkeys((*silos, "sketch"), TABLES["art"])
    found = part(read(counted(tmp_path / "run", tables, silos=silos, rounds=6)), "classes")
    assert found.count("<details") == classes.SILOS
    assert "<summary>sketch:" in found  # unseen silos always have theirs
    assert f"{41 - classes.SILOS} more silos are in metrics.jsonl" in found
    assert words(found[: found.index("<h3>")]).count("site") == 40  # the table has all


def test_rows_without_counts_have_no_such_section(tmp_path: Path) -> None:
    """Old folders, and tasks that have no classes."""
    assert 'id="classes"' not in read(make(tmp_path / "run"))
    ground = GROUNDS["regress"]
    run = fairsilo.run(
        method="fedavg", federation=ground.federation(), model=ground.network, out=tmp_path / "r", **SETTINGS
    )
    assert 'id="classes"' not in (run.folder / "report.html").read_text()


def test_a_real_run_shows_its_rows(tmp_path: Path) -> None:
    run = fairsilo.run(
        method="fedavg", federation=tiny.federation(), model=tiny.TinyNet, out=tmp_path / "r", **SETTINGS
    )
    found = part((run.folder / "report.html").read_text(), "classes")
    row = RunFolder(run.folder).rows("metrics")[-1]
    shares = [
        right / count for right, count in zip(*(row["per_class"][key] for key in ("right", "samples")), strict=True)
    ]
    expected = " ".join(
        f"{100 * share:.1f} % {count:.0f}" for share, count in zip(shares, row["per_class"]["samples"], strict=True)
    )
    assert f"u unseen global {expected}" in words(found)
    assert not (run.folder / "examples.safetensors").exists()


# ------------------------------------------------------------------------------------------------------------- examples
def segmented(folder: Path, how: str = "fedavg", **more: Any) -> Path:
    ground = GROUNDS["segment"]
    run = fairsilo.run(method=how, federation=ground.federation(), model=ground.network, out=folder, **SETTINGS, **more)
    return run.folder


@pytest.mark.parametrize(
    ("how", "models"),
    [("fedavg", ("global", "global")), ("fedbn", ("global", "personal")), ("fedavg | tent", ("adapted", "global"))],
)
def test_examples_are_of_the_model_that_was_evaluated(how: str, models: tuple[str, str], tmp_path: Path) -> None:
    """Every test image has a square, so the mean Dice of images is the Dice that the last round's row has."""
    folder = segmented(tmp_path / "run", how)
    people = GROUNDS["segment"].federation()
    trained = Trained(folder, model=GROUNDS["segment"].network)
    rows = RunFolder(folder).rows("metrics")
    found, left_out = read_examples(folder)
    assert ([one.silo for one in found], left_out) == (["u", "a", "b", "c"], 0)
    for one in found:
        assert (one.unseen, one.model) == (one.silo == "u", models[0] if one.silo == "u" else models[1])
        test = people[one.silo].test
        each = dices(answers(trained, people[one.silo], one.model), test.targets.long())
        (row,) = [
            row
            for row in rows
            if (row["round"], row["silo"], row["model"], row["split"]) == (2, one.silo, one.model, "test")
        ]
        assert float(each.mean()) == pytest.approx(row["metrics"]["dice"], abs=1e-6)
        places = {each_.place: each_ for each_ in one.images}
        ranked = each.sort().values
        expected = {"best": ranked[-1], "median": ranked[len(ranked) // 2], "worst": ranked[0]}
        assert {place: shown.dice for place, shown in places.items()} == pytest.approx(
            {place: float(value) for place, value in expected.items()}
        )
        for shown in one.images:
            assert float(dices(shown.said[None], shown.truth[None])) == pytest.approx(shown.dice)
            assert any(torch.equal(shown.image, image) for image in test.inputs)


def test_the_page_shows_them_without_the_data(tmp_path: Path) -> None:
    folder = segmented(tmp_path / "run")
    (folder / "report.html").unlink()
    content = write_report(folder).read_text()
    check_well_formed(content)
    found = part(content, "examples")
    kept, _ = read_examples(folder)
    for one in kept:
        for each in one.images:
            assert f"{one.silo}, {each.place} test image: Dice {100 * each.dice:.1f}\u00a0%" in found
    assert found.count("<img") == found.count('alt="') == found.count('class="caption"') == 12
    assert set(re.findall(r'src="([^,]*),', found)) == {"data:image/jpeg;base64"}
    assert "outline of the truth" in found
    shown = words(part(content, "classes"))
    assert "Dice of each structure" in shown
    assert "background" not in shown


def test_a_run_may_keep_no_examples(tmp_path: Path) -> None:
    folder = segmented(tmp_path / "run", evaluate={"examples": False})
    assert not (folder / "examples.safetensors").exists()
    assert 'id="examples"' not in (folder / "report.html").read_text()
    with pytest.raises(FairsiloError, match=r"evaluate\.examples=false has no effect here"):
        fairsilo.run(
            method="fedavg",
            federation=tiny.federation(),
            model=tiny.TinyNet,
            out=tmp_path / "r",
            evaluate={"examples": False},
        )


def test_a_method_without_a_global_model_has_examples_of_its_silos(tmp_path: Path) -> None:
    found, _ = read_examples(segmented(tmp_path / "run", "local"))
    assert [(one.silo, one.model) for one in found] == [("a", "personal"), ("b", "personal"), ("c", "personal")]


def test_silos_past_the_limit_are_counted(tmp_path: Path) -> None:
    ground = GROUNDS["segment"]
    silos = [
        SiloData(f"s{n:02d}", f"s{n:02d}", *(ground.samples(4, 0.0, 3 * n + i) for i in range(3))) for n in range(SILOS)
    ]
    people = fairsilo.Federation("x", ground.classes, tuple(silos), (ground.federation()["u"],), "segment")
    run = fairsilo.run(method="fedavg", federation=people, model=ground.network, out=tmp_path / "run", **SETTINGS)
    found, left_out = read_examples(run.folder)
    assert (found[0].silo, len(found), left_out) == ("u", SILOS, 1)
    assert "Of 1 more silos no examples were kept." in (run.folder / "report.html").read_text()


def test_the_dice_of_an_image_is_over_what_it_shows_or_is_said_to_show() -> None:
    true = torch.tensor([[[1, 1], [0, 0]], [[1, 2], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]])
    said = torch.tensor([[[1, 0], [0, 0]], [[1, 0], [0, 0]], [[2, 0], [0, 0]], [[0, 0], [0, 0]]])
    found = dices(said, true)
    assert found[:3].tolist() == pytest.approx([2 / 3, 1 / 2, 0.0])
    assert found[3].isnan()


@pytest.mark.parametrize(("count", "places"), [(1, ["best"]), (2, ["best", "worst"]), (3, ["best", "median", "worst"])])
def test_few_images_are_shown_once_and_large_ones_reduced(count: int, places: list[str]) -> None:
    """Images as floats of two channels, of which all but `count` show no structure."""
    inputs, targets = torch.randn(5, 2, 2 * SIDE, SIDE), torch.zeros(5, 2 * SIDE, SIDE, dtype=torch.uint8)
    targets[:count, : SIDE // 2] = 1
    said = targets.long()
    for number in range(count):
        said[number, 0, :number] = 0
    split = Split(inputs, targets)
    found = _chosen(SiloData("a", "a", split, split, split), said)
    assert [one["place"] for one in found] == places
    for one in found:
        assert (tuple(one["image"].shape), tuple(one["truth"].shape)) == ((1, SIDE, SIDE // 2), (SIDE, SIDE // 2))
        assert one["image"].dtype == torch.uint8
        assert one["truth"].float().mean() == pytest.approx(0.25)


def test_outlines_are_drawn_on_both_sides_of_a_change() -> None:
    mask = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]])
    assert edges(mask, 1).int().tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]
    assert edges(torch.ones(4, 4), 1).int().tolist() == [[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 1, 1]]
    assert edges(torch.zeros(4, 4), 2).sum() == 0


def test_a_picture_has_three_colours_of_outlines() -> None:
    truth, said = torch.zeros(2, 64, 64).unbind()
    truth[8:40, 8:40], said[8:40, 24:56] = 1, 1
    image = torch.full((1, 64, 64), 60, dtype=torch.uint8)
    drawn = np.asarray(
        Image.open(io.BytesIO(picture(Example("best", 0.5, image, truth, said), COLOURS))).convert("RGB")
    )
    assert drawn.shape == (320, 320, 3)
    for key, (row, column) in {"truth": (24, 8), "said": (24, 56), "both": (8, 32)}.items():
        near = drawn[5 * row - 1 : 5 * row + 1, 5 * column - 1 : 5 * column + 1].reshape(-1, 3)
        assert np.abs(near.astype(int) - COLOURS[key]).max() < 60, key  # JPEG is not exact
    assert abs(int(drawn[160, 10, 0]) - 60) < 10
