"""Every figure of every page has its numbers beside it as CSV, and they are the numbers of the run."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from fairsilo.data.federation import Federation
from fairsilo.report import sections
from fairsilo.report.bars import Bar, bar_chart
from fairsilo.report.blocks import figure, image
from fairsilo.report.comparison_page import page as comparison_page
from fairsilo.report.contested import write_contest
from fairsilo.report.crossed_page import write_crossed
from fairsilo.report.downloads import csv_link
from fairsilo.report.forest import Effect, forest_chart
from fairsilo.report.lines import line_chart
from fairsilo.report.page import read_run
from fairsilo.report.reproduced_page import write_reproduced
from fairsilo.report.scatters import scatter_chart
from fairsilo.report.series import Series
from fairsilo.reproduction.contest import Contest
from fairsilo.reproduction.crossing import Crossing
from fairsilo.reproduction.standing import Standing
from fairsilo.reproduction.tables import read_table
from test_advice import advised, federation, silo
from test_comparison import fabricated
from test_contest import ONE, TWO
from test_crossings import runs, source
from test_report_page import make, read
from test_reproduction import folder, record
from test_tuning import early, tuned

__all__ = ["early", "folder"]

REPORT = Path(sections.__file__).parent
Rows = list[dict[str, str]]


def numbers_beside(page: str) -> dict[str, Rows]:
    """The rows of each figure's CSV, by the name of the file it is saved as; every figure must have some."""
    found: dict[str, Rows] = {}
    drawings = 0
    for block in re.findall(r"<figure.*?</figure>", page, re.DOTALL):
        drawn = len(re.findall(r'<svg [^>]*role="img"|<img src="data:image/svg', block))
        drawings += drawn
        links = re.findall(
            r'<a class="csv" download="([a-z0-9-]+\.csv)" href="data:text/csv;charset=utf-8,(.*?)"', block
        )
        assert len(links) == (0 if "nothing was recorded" in block else drawn), block[:200]
        for name, data in links:
            rows = list(csv.DictReader(unquote(data).splitlines()))
            assert rows, name
            found[name] = rows
    assert drawings == len(re.findall(r'<svg [^>]*role="img"|<img src="data:image/svg', page))  # none outside a figure
    return found


# --------------------------------------------------------------------------------------------------------- every page
def test_of_a_run_with_its_baseline(tmp_path: Path) -> None:
    where = make(tmp_path / "run")
    make(where / "baseline", "fedavg", shift=-0.1)
    drawn = where / "figures"
    drawn.mkdir()
    (drawn / "t-sne.svg").write_text('<svg viewBox="0 0 10 10"></svg>', encoding="utf-8")
    (drawn / "t-sne.json").write_text('{"title": "Features", "about": "Where."}', encoding="utf-8")
    (drawn / "t-sne.csv").write_text("x,y\n0.25,3\n", encoding="utf-8")
    found = numbers_beside(read(where))
    assert len(found) == 13
    assert {"weights-of-faa.csv", "weights-of-fedavg.csv"} <= set(found)
    assert found["features.csv"] == [{"x": "0.25", "y": "3"}]

    run = read_run(where)
    unseen = [one["silo"] for one in run.summary["silos"] if one["unseen"]]
    wanted = sections.means_of(sections.history(run, "global", "test"), unseen, 100.0)
    rows = found["generalisation-global-model-unseen-domain.csv"]
    assert list(rows[0]) == ["round", "faa", "fedavg"]
    assert [float(row["round"]) for row in rows] == [number for number, _ in wanted]
    assert [float(row["faa"]) for row in rows] == pytest.approx([value for _, value in wanted], rel=1e-4)
    assert float(rows[-1]["faa"]) == pytest.approx(100 * run.summary["generalisation"]["mean"], rel=1e-4)

    bars = found["global-model-by-domain.csv"]
    for one in run.summary["silos"]:
        row = next(row for row in bars if (row["group"], row["name"]) == (one["domain"], "faa"))
        assert float(list(row.values())[-1]) == pytest.approx(100 * one["global"], rel=1e-4)


def test_of_a_comparison() -> None:
    found = numbers_beside(comparison_page(fabricated(("fedavg", "fedprox"), domains=("a", "b"), seeds=(0, 1))))
    assert len(found) == 5
    assert [row["sure"] for row in found["fair.csv"]] == ["no"]
    margins = [row["margin of held-out domain, difference in points"] for row in found["outside-and-at-home.csv"]]
    assert (margins[0], float(margins[1]) > 0) == ("", True)


@pytest.mark.usefixtures("early")
@pytest.mark.slow
def test_of_a_search(people: Federation, tmp_path: Path) -> None:
    tuned(tmp_path, people, trials=3)
    found = numbers_beside((tmp_path / "tuning.html").read_text(encoding="utf-8"))
    course = next(rows for name, rows in found.items() if name.startswith("best-validation-result-so-far"))
    assert [row["trial"] for row in course] == ["1", "2", "3"]


def test_of_an_advice(tmp_path: Path) -> None:
    people = federation(silo("a", 30, 0), silo("b", 30, 1))
    advised(people, tmp_path, ["fedprox"], pilot_rounds=1, seeds=1)
    found = numbers_beside(next(tmp_path.glob("*.html")).read_text(encoding="utf-8"))
    assert all([row["name"] for row in rows] == ["fedprox"] for rows in found.values())
    assert found


@pytest.mark.usefixtures("folder")
def test_of_a_reproduced_table(tmp_path: Path) -> None:
    records = [record("fedavg", seed, value) for seed, value in enumerate((0.2, 0.5))]
    records += [record("fedprox", seed, value) for seed, value in enumerate((0.3, 0.64))]
    page = write_reproduced(Standing.of(read_table("some/table1"), records), tmp_path / "page")
    found = numbers_beside(page.read_text(encoding="utf-8"))
    (row,) = next(rows for rows in found.values() if rows[0].get("paper") == "5")
    assert (row["name"], float(row["difference"])) == ("fedprox", pytest.approx(12))
    assert float(row["margin (95 %)"]) == pytest.approx(25.412, rel=1e-4)


def test_of_a_crossing_and_of_a_contest(tmp_path: Path) -> None:
    crossed = write_crossed(Crossing.of([source("one", runs()), source("two", runs()[:2])]), tmp_path / "crossed")
    assert "the-front.csv" in numbers_beside(crossed.read_text(encoding="utf-8"))
    contest = write_contest(Contest.of([ONE, TWO]), tmp_path / "contest")
    assert numbers_beside(contest.read_text(encoding="utf-8"))


def test_nobody_draws_a_figure_by_hand() -> None:
    """One place makes figures and one makes drawings; example images, which have no numbers, are the exception."""
    found = REPORT.parent.rglob("*.py")
    sources = {path.relative_to(REPORT.parent).as_posix(): path.read_text(encoding="utf-8") for path in found}
    assert {name for name, text in sources.items() if re.search(r"""["'>]<figure""", text)} == {
        "report/blocks.py",
        "report/examples.py",
        "report/page.py",  # makes a figure of `blocks` wide
    }
    assert {name for name, text in sources.items() if re.search(r'<svg [^>]*role="img"', text)} == {
        "report/axes.py",
        "report/figures/drawing.py",  # files of `fairsilo figure`, which writes their CSV
    }


# -------------------------------------------------------------------------------------------------------- every chart
def test_lines_share_a_column_of_rounds_whatever_their_names() -> None:
    lines = [Series("a", [(1, 0.123456789), (2, None)]), Series("a", [(2, float("nan")), (3, 1234567.0)], 2)]
    assert line_chart(lines, title="t", y_label="y").csv == "round,a,a\n1,0.12346,\n2,,\n3,,1234567\n"


def test_points_bars_and_differences() -> None:
    points = [Series("=a", [(1.5, 2.0)])]
    assert scatter_chart(points, title="t", x_label="x", y_label="y").csv == "name,x,y\n'=a,1.5,2\n"
    bars = [("g", [Bar("m", 0.5), Bar("n", None, 2)])]
    chart = bar_chart(bars, title="t", x_label="x", band=(0.25, 0.75), means=[Bar("mean", 0.5)])
    ends = ",lower end of the band,0.25\n,upper end of the band,0.75\n"
    assert chart.csv == f"group,name,x\ng,m,0.5\ng,n,\n,mean,0.5\n{ends}"
    effects = [Effect("a", 1.0, 0.5), Effect("b", -2.0)]
    assert forest_chart(effects, title="t", x_label="points").csv == "name,points,margin (95 %)\na,1,0.5\nb,-2,\n"


def test_an_empty_drawing_offers_nothing() -> None:
    assert "<a" not in figure("t", line_chart([], title="t", y_label="y"))


def test_names_cannot_leave_the_link() -> None:
    name = '"><script>alert(1)</script> https://example.org/ é\ud800'
    link = csv_link(image("<svg/>", "t", f"{name}\n1\n"), name)
    found = re.fullmatch(
        r'<a class="csv" download="([a-z0-9-]+\.csv)" href="data:text/csv;charset=utf-8,([^"<>]+)">CSV</a>', link
    )
    assert found
    assert unquote(found[2]) == name.replace("\ud800", "?") + "\n1\n"
    assert "//" not in found[2]


def test_a_page_of_many_silos_and_rounds_grows_little(tmp_path: Path) -> None:
    where = make(tmp_path / "run", rounds=60, silos=tuple(f"hospital-{place:02d}" for place in range(30)))
    page = read(where)
    assert sum(map(len, re.findall(r'<a class="csv".*?</a>', page))) < 0.15 * len(page)
