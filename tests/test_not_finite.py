"""Results that are infinite or no numbers: every drawing leaves them out, and the page is there."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from fairsilo.analysis.paired import Compared, Difference
from fairsilo.report.bars import Bar, bar_chart
from fairsilo.report.comparison_page import page
from fairsilo.report.downloads import Chart
from fairsilo.report.forest import Effect, forest_chart
from fairsilo.report.glance import sentence
from fairsilo.report.heat import heat_table
from fairsilo.report.lines import line_chart
from fairsilo.report.scatters import scatter_chart
from fairsilo.report.series import Series
from fairsilo.runs.comparison import Grid
from test_comparison import fabricated
from test_report_page import check_well_formed

ODD = (math.inf, -math.inf, math.nan)
odd = pytest.mark.parametrize("value", ODD)


def drawn(chart: Chart) -> str:
    """The places of all that is drawn: what a browser must read as numbers."""
    places = [f"{name}={value}" for one in ElementTree.fromstring(chart).iter() for name, value in one.attrib.items()]
    return " ".join(place for place in places if not place.startswith("aria-label"))


def ticks(chart: Chart) -> list[float]:
    found = ElementTree.fromstring(chart).findall("text[@class='tick']")
    return [float((one.text or "").replace("−", "-")) for one in found]


@odd
@pytest.mark.parametrize("place", ["mean", "margin", "other"])
def test_a_forest_has_the_rows_that_can_be_drawn(place: str, value: float) -> None:
    strange = Effect("strange", **{"mean": 1.0, "margin": 0.5, "other": 1.5, place: value})
    chart = forest_chart([Effect("plain", 2.0, 1.0), strange], title="t", x_label="points")
    assert (min(ticks(chart)), max(ticks(chart))) == (0, 3)
    assert not re.search("nan|inf", drawn(chart))
    assert chart.count("<circle") == (1 if place == "mean" else 2)
    said = {"mean": "strange –", "margin": "strange +1.0", "other": "strange +1.0 ± 0.5"}[place]
    assert f'{said}"><title>' in chart
    alone = forest_chart([Effect("strange", value)], title="t", x_label="points")
    assert "nothing was recorded" in alone


@odd
def test_points_and_crosses_that_are_nowhere_are_left_out(value: float) -> None:
    series = [
        Series("plain", [(1.0, 2.0)], 1),
        Series("strange", [(value, 1.0), (1.0, value)], 2),
        Series("far", [(3.0, 4.0)], 3),
    ]
    reach = {"plain": (value, 1.0), "strange": (1.0, 1.0), "far": (1.0, value)}
    chart = scatter_chart(series, title="t", x_label="x", y_label="y", reach=reach)
    assert not re.search("nan|inf", drawn(chart))
    assert "2 points" in chart
    assert (min(ticks(chart)), max(ticks(chart))) == (1, 4)


@odd
def test_bars_means_and_bands_that_are_nowhere_are_left_out(value: float) -> None:
    groups = [("a", [Bar("one", 2.0)]), ("b", [Bar("one", value)])]
    chart = bar_chart(groups, title="t", x_label="x", band=(value, 1.0), means=[Bar("mean", value)])
    assert not re.search("nan|inf", drawn(chart))
    assert chart.count('class="bar"') == 1
    assert 'class="band"' not in chart


@odd
def test_lines_are_interrupted_there(value: float) -> None:
    chart = line_chart([Series("a", [(1.0, 2.0), (2.0, value), (3.0, 4.0)])], title="t", y_label="y", include=[value])
    assert not re.search("nan|inf", drawn(chart))


@odd
def test_a_table_of_shades_ranks_what_is_a_number(value: float) -> None:
    grid = {"rows": ["fedavg", "fedprox"], "columns": ["", "afl"]}
    values = {"fedavg": 0.5, "afl": 0.7, "fedprox": value, "fedprox | afl": 0.6}
    shown = heat_table(grid, ("Avg", values), None, max)
    cells = re.findall(r"--heat: ([^%]*)%\"><span>(.*?)</span>", shown)
    assert [shade for shade, _ in cells] == ["0.0", "42.0", "0.0", "21.0"]
    assert cells[2][1] == "–"
    assert "<sup>RC</sup><strong>70.0</strong>" in cells[1][1]


@odd
def test_a_comparison_with_such_a_result_has_its_page(value: float) -> None:
    for content in (
        fabricated(("fedavg", "fedprox", "fedheal"), domains=("a", "b"), seeds=(0, 1)),
        fabricated(grid=Grid(("fedavg", "fedprox"), ("", "afl")), domains=("a",)),
    ):
        summary = content["cells"][-1]["summary"]
        summary["generalisation"]["mean"] = summary["personalisation"]["mean"] = value
        for model in ("global", "personal"):
            even = summary["fairness"][model]
            summary["fairness"][model] = {key: value if isinstance(one, float) else one for key, one in even.items()}
        shown = page(content)
        check_well_formed(shown)
        pictures = re.findall("<svg.*?</svg>", shown, re.DOTALL)
        assert pictures
        assert not any(re.search("nan|inf", drawn(Chart(one, "", ""))) for one in pictures)
        assert "--heat: nan" not in shown
        last = content["methods"][-1]
        assert f"{last} cannot be compared with fedavg (generalise): a result is no finite number" in shown


@odd
def test_no_method_is_better_or_worse_by_what_is_no_number(value: float) -> None:
    said = sentence("new", "old", "fairness", Compared(Difference(value, None, None), 1, 1))
    assert said == "new cannot be compared with old (fair): a result is no finite number"
