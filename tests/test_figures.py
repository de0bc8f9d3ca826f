"""The figures: files that are complete, reproducible and safe to show, for ordinary and for odd runs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fairsilo.analysis.diagnostics.a_distance import ADistance, ADistances
from fairsilo.analysis.diagnostics.attention import Attention, DomainAttention
from fairsilo.analysis.diagnostics.gap_variance import RULES, gap_variance
from fairsilo.analysis.diagnostics.loss_surface import LossSurface, SurfaceModel
from fairsilo.analysis.diagnostics.update_consistency import update_consistency
from fairsilo.errors import FairsiloError
from fairsilo.report.figures import loss_surface
from fairsilo.report.figures.captions import CAPTIONS
from fairsilo.report.figures.drawing import palette
from fairsilo.report.figures.drawn import figures_in
from fairsilo.report.figures.files import figures_of, write_figure
from fairsilo.report.figures.registry import FIGURES
from test_diagnostics import NAMES, Fake, cloud, vector

QUICK: dict[str, dict[str, Any]] = {"t-sne": {"limit": 4}, "loss-surface": {"steps": 4}}


def bowl(model: Tensor, silo: str) -> float:
    """A quadratic whose bottom lies elsewhere for every silo."""
    bottom = vector(*(0.3 * ord(silo[-1]) % (1 + place) for place in range(3)))
    return 0.1 + float((model - bottom).square().sum())


def see(model: Tensor, silo: str) -> tuple[Tensor, Tensor]:
    return cloud(12, float(model.sum()), seed=ord(silo[-1])), torch.arange(12) % 3


def replay(rounds: int = 4, silos: tuple[str, ...] = NAMES, unseen: tuple[str, ...] = ("u",), **others: Any) -> Fake:
    """Local models that wander, the same at every call."""
    stream = torch.Generator().manual_seed(1)
    local = [{silo: torch.randn(3, generator=stream, dtype=torch.float64) for silo in silos} for _ in range(rounds)]
    samples = dict.fromkeys(silos, 10)

    def attend(domain: str) -> Tensor:
        return torch.randn(5, len(silos), generator=torch.Generator().manual_seed(ord(domain[-1]))).softmax(1)

    given: dict[str, Any] = {"silos": silos, "unseen": unseen, "samples": samples, **others}
    return Fake(local, bowl, see, attend, last=vector(0.1, 0.2, 0.3), **given)


def draw(name: str, folder: Path, run: Fake | None = None) -> list[Path]:
    return write_figure(name, run or replay(), folder, **QUICK.get(name, {}))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Every figure once, in one folder that did not exist, the last one first."""
    folder = tmp_path_factory.mktemp("run") / "figures"
    return {name: draw(name, folder) for name in reversed(FIGURES)}


def test_every_figure_has_a_caption_in_the_same_order() -> None:
    assert list(CAPTIONS) == list(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_four_files(name: str, drawn: dict[str, list[Path]]) -> None:
    numbers, drawing, image, about = paths = drawn[name]
    assert [path.name for path in paths] == [f"{name}.{kind}" for kind in ("csv", "svg", "png", "json")]
    assert sorted(numbers.parent.glob(f"*{name}.*")) == sorted(paths)  # nothing half-written is left
    with numbers.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    result = FIGURES[name].compute(replay(), **QUICK.get(name, {}))
    computed = result.rows()
    assert [list(row) for row in rows[:1]] == [list(computed[0])]
    assert rows == [{key: "" if value is None else str(value) for key, value in row.items()} for row in computed]
    assert ElementTree.fromstring(drawing.read_text(encoding="utf-8")).tag == "{http://www.w3.org/2000/svg}svg"
    assert json.loads(about.read_text(encoding="utf-8")) == {
        "title": CAPTIONS[name].title,
        "about": CAPTIONS[name].about,
        "numbers": result.numbers(),
    }
    with Image.open(image) as picture:
        assert picture.width >= 800
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
        assert len(np.unique(np.asarray(picture.convert("L")))) > 20


@pytest.mark.parametrize("name", FIGURES)
def test_the_same_run_gives_the_same_bytes(name: str, drawn: dict[str, list[Path]], tmp_path: Path) -> None:
    for one, other in zip(drawn[name], draw(name, tmp_path), strict=True):
        assert one.read_bytes() == other.read_bytes()
    svg = drawn[name][1].read_text(encoding="utf-8")
    assert "dc:date" not in svg
    assert "Matplotlib v" not in svg


def test_drawing_leaves_no_global_state(tmp_path: Path) -> None:
    before = matplotlib.rcParams.copy()
    draw("gap-variance", tmp_path)
    assert matplotlib.rcParams.copy() == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_an_unknown_name_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match="no figure is named 'tsne'; did you mean 't-sne'"):
        write_figure("tsne", replay(), tmp_path / "figures")
    with pytest.raises(FairsiloError, match="nothing to draw for gap-variance"):
        write_figure("gap-variance", replay(rounds=0), tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_figures_of_a_folder_stand_in_one_page(drawn: dict[str, list[Path]], tmp_path: Path) -> None:
    names = list(FIGURES)
    for path in (path for paths in drawn.values() for path in paths):
        shutil.copy(path, tmp_path)
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "broken.svg").write_text("<svg/>", encoding="utf-8")
    (tmp_path / "other.json").write_text('{"title": 3}', encoding="utf-8")
    (tmp_path / "other.svg").write_text("<svg/>", encoding="utf-8")
    (tmp_path / "undrawn.json").write_text('{"title": "", "about": ""}', encoding="utf-8")
    found = figures_in(tmp_path)
    assert [item.name for item in found] == names
    assert [(item.title, item.about) for item in found] == [CAPTIONS[name] for name in names]
    seen: set[str] = set()
    for item in found:
        assert item.svg.startswith("<svg ")
        assert "<style" not in item.svg  # a rule in there would hold for the whole page
        ids = re.findall(r'\bid="([^"]*)"', item.svg)
        assert not seen & set(ids)
        seen |= set(ids)
        assert set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', item.svg)) <= {(i, "") for i in ids} | {
            ("", i) for i in ids
        }


def test_no_folder_holds_no_figures(tmp_path: Path) -> None:
    assert figures_in(tmp_path / "nowhere") == []


@pytest.mark.parametrize("name", FIGURES)
def test_odd_names_and_short_runs_are_drawn(name: str, tmp_path: Path) -> None:
    odd = ("_hidden", "$x^$", "a <b> & \n c", "very long name of a hospital in a town far away, ward 17")
    run = replay(rounds=1, silos=odd, unseen=("u$",))
    assert len(draw(name, tmp_path, run)) == 4
    assert ElementTree.fromstring((tmp_path / f"{name}.svg").read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "loss-surface"])
def test_one_silo_many_silos_and_no_unseen_one(name: str) -> None:
    alone, many = replay(rounds=2, silos=("a",), unseen=()), replay(rounds=2, silos=tuple("abcdefghijkl"))
    for run in (alone, many):
        figure = FIGURES[name].draw(FIGURES[name].compute(run, **QUICK.get(name, {})))
        assert all(axes.has_data() for axes in figure.axes)


def lines_of(figure: Any) -> dict[str, list[list[float]]]:
    (axes,) = figure.axes
    return {line.get_label(): [list(line.get_xdata()), list(line.get_ydata())] for line in axes.get_lines()}


def test_the_lines_are_the_numbers() -> None:
    found = gap_variance(replay())
    drawn = lines_of(FIGURES["gap-variance"].draw(found))
    assert drawn == {rule: [list(column) for column in zip(*found.curve(rule), strict=True)] for rule in RULES}

    distances = ADistances(
        (
            ADistance(1, "a", "sent", 9, 0.5),
            ADistance(2, "a", "sent", 9, None),
            ADistance(3, "a", "sent", 9, 2.0),
        )
    )
    ((rounds, values),) = lines_of(FIGURES["a-distance"].draw(distances)).values()
    assert rounds == [1, 2, 3]
    assert np.array_equal(values, [0.5, np.nan, 2.0], equal_nan=True)  # a gap in the line, not a zero


def test_the_bars_are_the_means_over_silos() -> None:
    found = update_consistency(replay(rounds=30))
    figure = FIGURES["update-consistency"].draw(found)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "first 10 rounds",
        "all 30 rounds",
        "last 10 rounds",
    ]
    first = [item.shares for item in found.found if item.window == "first 10 rounds"]
    heights = [float(bar.get_bbox().height) for bar in figure.axes[0].patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx([100 * sum(column) / 3 for column in zip(*first, strict=True)])


def test_the_segments_of_a_bar_are_the_attention_of_a_domain() -> None:
    shares = {"a": 0.62, "b": 0.35, "c": 0.03}
    found = Attention(
        (
            DomainAttention("a", False, 4, shares),
            DomainAttention("u", True, 9, {"a": 0.25, "b": 0.5, "c": 0.25}),
        )
    )
    (axes,) = FIGURES["attention"].draw(found).axes
    widths = [[float(bar.get_bbox().width) for bar in bars] for bars in axes.containers]
    assert np.allclose(widths, [[62, 25], [35, 50], [3, 25]])
    starts = [[float(bar.get_bbox().x0) for bar in bars] for bars in axes.containers]
    assert np.allclose(starts, [[0, 0], [62, 25], [97, 75]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "u (unseen)"]
    assert axes.yaxis_inverted()  # the first domain on top
    assert [text.get_text() for text in axes.texts] == ["62.0", "25.0", "35.0", "50.0", "", "25.0"]


def test_all_figures_of_a_run_are_those_of_its_attention_or_of_its_local_models() -> None:
    assert figures_of(replay(attends=True)) == ["attention"]
    assert figures_of(replay()) == [name for name in FIGURES if name != "attention"]


def surface(losses: list[list[float]]) -> LossSurface:
    models = [SurfaceModel(name, x, y, 1.5) for name, x, y in (("global", 0, 0), ("a", 1, 0), ("b", 0, 1))]
    grid = tuple(float(x) for x in range(len(losses)))
    return LossSurface(1, "u", "after", tuple(models), grid, grid, tuple(map(tuple, losses)))


@pytest.mark.parametrize(
    "losses",
    [
        [[1.0, 2.0, 3.0]] * 3,
        [[1.5] * 3] * 3,  # nothing to see
        [[1.0, 2.0, 3.0], [2.0, 3.0, float("inf")], [1.0, float("nan"), 1e12]],  # a loss that explodes
        [[0.0] * 3] * 3,
        [[1e-4, 1.0, 90.0]] * 3,
    ],
)
def test_any_surface_is_drawn_and_its_scale_shows_the_models(losses: list[list[float]]) -> None:
    found = surface(losses)
    levels, _ = loss_surface._levels(found)
    assert levels[0] <= 1.5 <= levels[-1]
    assert levels[-1] < 1000
    assert list(levels) == sorted(set(levels))
    axes, scale = FIGURES["loss-surface"].draw(found).axes
    assert [text.get_text() for text in axes.texts] == ["global 1.5", "a 1.5", "b 1.5"]
    assert scale.get_ylabel() == "loss on the test data of u"


def test_colours_come_from_the_page() -> None:
    assert palette()[:3] == ("#848d97", "#0068a8", "#c65200")
    assert len(palette()) == 9
