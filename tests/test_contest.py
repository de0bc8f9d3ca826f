"""The same methods on several federations: paired differences, ranks, and how they are shown."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fairsilo.analysis.paired import Difference, holm, over_federations, over_values
from fairsilo.errors import FairsiloError
from fairsilo.report.contested import write_contest
from fairsilo.reproduction import ledger
from fairsilo.reproduction.blocks import Source
from fairsilo.reproduction.contest import Contest
from test_cli import call
from test_crossings import folder, record
from test_report_page import check_well_formed

__all__ = ["folder"]

METHODS = ("fedavg", "faa", "ga")


def runs(method: str, *unseen: float, worst: float = 0.5) -> list[dict[str, Any]]:
    return [record(method, value, worst=worst, seed=seed) for seed, value in enumerate(unseen)]


RUNS = {
    "one": [*runs("fedavg", 0.50, 0.52, 0.54), *runs("faa", 0.53, 0.56, 0.56), *runs("ga", 0.4, 0.4, 0.4)],
    "two": [*runs("fedavg", 0.80, 0.81), *runs("faa", 0.79, 0.82), *runs("ga", 0.90, 0.91, worst=0.6)],
}
ONE, TWO = (Source(name, METHODS, found) for name, found in RUNS.items())


def over(*federations: list[float]) -> Difference:
    """Of federations with one held-out domain, seed by seed."""
    return over_federations([{("a", seed): value for seed, value in enumerate(some)} for some in federations])


def test_one_federation_is_a_paired_t_test() -> None:
    found, wanted = over_values([1.0, 2.0, 4.0]), stats.ttest_1samp([1.0, 2.0, 4.0], 0)
    interval = wanted.confidence_interval(0.95)
    assert (found.mean, found.p) == (pytest.approx(7 / 3), pytest.approx(wanted.pvalue))
    assert found.margin == pytest.approx((interval.high - interval.low) / 2)


def test_two_federations_are_welch_s_test() -> None:
    """The mean of two means is half the difference of one and the other turned round."""
    one, two = [1.0, 2.0, 4.0, 2.5], [3.0, 8.0]
    found = over(one, two)
    wanted = stats.ttest_ind(one, [-value for value in two], equal_var=False)
    assert (found.mean, found.p) == (pytest.approx((np.mean(one) + np.mean(two)) / 2), pytest.approx(wanted.pvalue))


def test_a_single_pair_or_none_that_differs_tells_no_margin() -> None:
    assert over([1.0, 2.0], [3.0]) == Difference(2.25, None, None, repeated=False)
    assert over([1.5, 1.5], [3.0, 3.0]) == Difference(2.25, None, None, repeated=True)


def test_the_level_is_kept() -> None:
    """Three federations without any difference, of unlike spread: about one in twenty intervals misses zero."""
    stream = np.random.default_rng(0)
    tries = [over(*(list(stream.normal(0, width, 4)) for width in (0.5, 1.0, 3.0))) for _ in range(2000)]
    assert 0.03 < np.mean([one.p is not None and one.p < 0.05 for one in tries]) < 0.065


def test_each_federation_counts_once() -> None:
    found = Contest.of([ONE, TWO])
    assert found.reference == "fedavg"
    wanted = {"fedavg": (52 + 80.5) / 2, "faa": (55 + 80.5) / 2, "ga": (40 + 90.5) / 2}
    assert found.means("unseen") == pytest.approx(wanted)
    alone = [over(*some) for some in ([[3.0, 4, 2], [-1, 1]], [[-10.0, -12, -14], [10, 10]])]
    both = [found.differences["unseen"][name] for name in ("faa", "ga")]
    looked = 2 * len(found.blocks.answers)
    assert [one.mean for one in both] == pytest.approx([1.5, -1.0])
    assert [one.margin for one in both] == pytest.approx([one.margin for one in alone])
    assert [one.p for one in both] == pytest.approx(holm([one.p for one in alone], looked))  # no other one varies
    # unseen: faa 1, 2.5; fedavg 2, 2.5; ga 3, 1. personal: all alike. worst: alike in one, ga ahead in two
    ranks = {"fedavg": 2 + 2.5 + 2 + 2 + 2 + 2.5, "faa": 1 + 2.5 + 2 + 2 + 2 + 2.5, "ga": 3 + 1 + 2 + 2 + 2 + 1}
    assert found.ranks == pytest.approx({name: rank / 6 for name, rank in ranks.items()})
    assert found.front() == ["faa", "ga"]
    assert Contest.of([ONE, TWO], "ga").differences["unseen"]["faa"].mean == pytest.approx((15 - 10) / 2)


def test_each_held_out_domain_counts_once_and_margins_are_over_seeds() -> None:
    gains = {("c", 0): 0.02, ("c", 1): 0.04, ("c", 2): 0.09, ("d", 0): -0.06, ("d", 1): -0.01}
    records = []
    for (held_out, seed), gain in gains.items():
        for name in METHODS:
            records.append(record(name, 0.5 + gain * (name == "faa"), seed=seed, held_out=held_out))
    found = Contest.of([Source("one", METHODS, records)])
    assert found.means("unseen") == pytest.approx({"fedavg": 50, "faa": 50 + (5 - 3.5) / 2, "ga": 50})
    faa = found.differences["unseen"]["faa"]
    assert faa.mean == pytest.approx((5 - 3.5) / 2)
    # by seed what it adds: c has -3, -1, 4 around its mean, over three seeds and two domains; d has -2.5, 2.5, over two
    added = [-3 / 6 - 2.5 / 4, -1 / 6 + 2.5 / 4, 4 / 6]
    error = math.sqrt(sum(one**2 for one in added) * 2)  # two seeds count, as d has no more
    assert faa.margin == pytest.approx(stats.t.ppf(0.975, 1) * error)
    assert found.front() == ["faa"]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(FairsiloError, match="'fa' is none of the methods; did you mean 'faa'"):
        Contest.of([ONE], "fa")
    with pytest.raises(FairsiloError, match="have different methods"):
        Contest.of([ONE, Source("three", METHODS[:2], [])])
    with pytest.raises(FairsiloError, match="takes two"):
        Contest.of([Source("three", METHODS[:1], runs("fedavg", 0.5))])


def test_it_is_shown_in_terminal_page_and_csv(folder: Path, tmp_path: Path, capsys: Any) -> None:
    page = write_contest(Contest.of([ONE, TWO]), tmp_path / "out")
    html = page.read_text(encoding="utf-8")
    check_well_formed(html)
    assert "67.8 (+1.5 ± " in html
    assert "faa*" in html
    rows = list(csv.DictReader(page.with_suffix(".csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 4 * 3 * 5
    assert {"method": "ga", "source": "two", "held_out": "c", "seed": "1", "measure": "unseen"}.items() <= {
        key: value for row in rows if math.isclose(float(row["value"]), 91.0) for key, value in row.items()
    }.items()
    text = "methods: [fedavg, faa, ga]\nseeds: [0]\nheld_out_domains: [c]\ndata: {name: glyphs}\n"
    for one in (ONE, TWO):
        (folder / "crossings" / f"{one.name}.yaml").write_text(f"{text}model: small-cnn\nseed: {len(one.records)}\n")
        ledger.append(f"crossings/{one.name}", one.records)
    asked = ["contest", "crossings/one", "crossings/two", "--against", "ga"]
    code, output, err = call(capsys, *asked, "-o", str(tmp_path / "more"))
    assert (code, err) == (0, "")
    assert "3 methods, against ga" in output
    assert (tmp_path / "more" / "contest.html").exists()
    code, output, _ = call(capsys, *asked, "--json")
    assert json.loads(output)["front"] == ["faa", "ga"]
