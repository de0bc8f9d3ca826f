"""On every page a full dot is sure after correction and a hollow one may be chance; the key beside says so."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from fairsilo.analysis.paired import SURE
from fairsilo.report.advice_page import page as advice_page
from fairsilo.report.contested import page as contest_page
from fairsilo.report.crossed_page import page as crossed_page
from fairsilo.report.reproduced_page import page as reproduced_page
from fairsilo.reproduction.blocks import Source
from fairsilo.reproduction.contest import Contest
from fairsilo.reproduction.crossing import Crossing
from fairsilo.reproduction.standing import Standing
from fairsilo.reproduction.tables import read_table
from test_advice import cells, content
from test_crossings import gained, source
from test_reproduction import folder
from test_reproduction import record as of_table

__all__ = ["folder"]

ROW = re.compile(r'<title>([^<]*)</title><path class="line" [^>]*/><circle class="(dot[^"]*)"')
STEADY = {("c", seed): 0.2 + 0.0001 * seed for seed in range(4)}


def dots(page: str) -> dict[str, str]:
    """What a row says when pointed at -> the kind of its dot, in all forest plots of a page."""
    return {html.unescape(said): kind for said, kind in ROW.findall(page)}


def keys(page: str) -> list[list[str]]:
    """What every key of dots says."""
    found = re.findall(r'<ul class="legend">(.*?)</ul>', page, re.DOTALL)
    return [re.findall("<span>(.*?)</span>", one) for one in found if "may be chance" in one]


def kinds(page: str) -> set[tuple[str, str]]:
    """How dots look and how their rows end."""
    return {(kind, said.rpartition(", ")[2]) for said, kind in dots(page).items()}


BOTH = {("dot", "sure"), ("dot hollow", "may be chance")}


def test_of_crossings_as_their_tests_say() -> None:
    found = Crossing.of([source("one", gained(STEADY))])
    page = crossed_page(found)
    (local, _) = found.contributions["unseen"]
    assert local["fedprox"].p is not None
    assert local["fedprox"].p < SURE
    assert local["fedsam"].p is None  # nothing differs
    said = dots(page)
    assert {said[one] for one in said if one.startswith("fedprox:") and one.endswith("sure")} == {"dot"}
    assert {said[one] for one in said if one.startswith("fedsam:")} == {"dot hollow"}
    assert kinds(page) == BOTH
    compared = 3 * len(found.answers)  # two rows and a column
    assert keys(page) == [[f"sure, corrected for all {compared} comparisons", "may be chance"]]


def test_of_one_look_nothing_is_tested_and_nothing_full() -> None:
    page = crossed_page(Crossing.of([source("one", gained({("c", 0): 0.2, ("d", 0): 0.2}))]))
    assert kinds(page) == {("dot hollow", "may be chance")}
    assert keys(page) == [["may be chance"]]
    assert 'class="dot"' not in page  # nor on the picture of the front
    assert "Hollow, as nothing is tested here." in page


def contest(*gains: float) -> Contest:
    """Seed by seed how far faa is ahead; ga is now better and now worse."""
    records = []
    for seed, gain in enumerate(gains):
        values = {"fedavg": 0.5, "faa": 0.5 + gain, "ga": 0.5 + 0.01 * (-1) ** seed}
        for one in gained({("c", seed): 0.0}):
            if one["method"] in ("fedavg", "afl", "fedsam"):
                name = {"afl": "faa", "fedsam": "ga"}.get(one["method"], "fedavg")
                records.append({**one, "method": name, "generalisation": values[name]} | of_unseen(one, values[name]))
    return Contest.of([Source("one", ("fedavg", "faa", "ga"), records)])


def of_unseen(one: dict[str, Any], value: float) -> dict[str, Any]:
    return {"silos": {**one["silos"], "c": {**one["silos"]["c"], "global": value}}}


def test_of_a_contest_as_its_tests_say() -> None:
    found = contest(0.2, 0.2001, 0.2002)
    page = contest_page(found)
    assert found.differences["unseen"]["faa"].sure
    assert not found.differences["unseen"]["ga"].sure
    assert kinds(page) == BOTH
    assert [kind for said, kind in dots(page).items() if said.startswith("faa: +20.0")] == ["dot"]
    assert keys(page) == [[f"sure, corrected for all {2 * len(found.blocks.answers)} comparisons", "may be chance"]]
    single = contest_page(contest(0.2))
    assert (kinds(single), keys(single)) == ({("dot hollow", "may be chance")}, [["may be chance"]])


SOME: dict[str, Any] = {
    "fedavg": (0.5, 0.6, 0.1, "global"),
    "good": (0.7, 0.6, 0.1, "global"),
    "ditto": (0.5, 0.8, 0.1, "personal"),
}


@pytest.mark.parametrize(("goal", "compared"), [("all", [6, 6, 6]), ("generalise", [2, 4, 4]), ("fair", [4, 4, 2])])
def test_of_advice_as_its_tests_say(goal: str, compared: list[int]) -> None:
    """What counts is corrected together, and so is what does not count."""
    found = content(cells(**SOME), goal=goal)
    page = advice_page(found)
    tested = [one["difference"]["p"] for some in found["verdict"]["compared"].values() for one in some.values()]
    wanted = ["dot" if p is not None and p < SURE else "dot hollow" for p in tested]
    assert [kind for _, kind in ROW.findall(page)] == wanted
    assert kinds(page) == BOTH
    assert keys(page) == [[f"sure, corrected for all {count} comparisons", "may be chance"] for count in compared]


def test_of_advice_silos_alone_count_too() -> None:
    """They are compared at home with the shared model, and corrected for with the rest."""
    found = content(cells(**SOME, local=(None, 0.9, 0.1, "personal")))
    assert found["verdict"]["alone"] is not None
    compared = sum(map(len, found["verdict"]["compared"].values())) + 1
    assert keys(advice_page(found)) == [[f"sure, corrected for all {compared} comparisons", "may be chance"]] * 3


def test_of_a_table_as_its_tests_say(folder: Path) -> None:
    records = [of_table("fedavg", seed, 0.5) for seed in range(3)]
    sure = [of_table("fedprox", seed, 0.6 + 0.0001 * seed) for seed in range(3)]
    standing = Standing.of(read_table("some/table1"), [*records, *sure])
    page = reproduced_page(standing)
    assert standing.sure("fedprox", "unseen")
    assert not standing.sure("fedprox", "average")  # nothing differs
    assert kinds(page) == BOTH
    assert keys(page) == [[f"sure, corrected for all {standing.comparisons} comparisons", "may be chance"]]
    single = reproduced_page(Standing.of(read_table("some/table1"), [records[0], sure[0]]))
    assert (kinds(single), keys(single)) == ({("dot hollow", "may be chance")}, [["may be chance"]])
