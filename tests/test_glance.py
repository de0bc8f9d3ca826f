"""What a comparison opens with: paired differences with intervals, sentences, and pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fairsilo.analysis.paired import (
    Compared,
    Difference,
    compare_cells,
    compared,
    from_pairs,
    holm,
    paired_cells,
    together,
)
from fairsilo.report.comparison_page import page
from fairsilo.report.forest import Effect, forest_chart, sure_key
from fairsilo.report.glance import glance, sentence, surely, trades
from fairsilo.report.scatters import scatter_chart
from fairsilo.report.series import Series, emphasised, legend, marker
from fairsilo.report.units import shown_in
from test_comparison import fabricated

NOISE = {"a": (0.01, 0.02, 0.03), "b": (0.03, 0.05, 0.07)}  # held-out domain -> a method minus the first, by seed


def cell(method: str, held_out: str, seed: int, outside: float, home: float = 0.5, even: float = 0.1) -> dict[str, Any]:
    fairness = {"std_silos": even, "mean": home, "worst_tenth": 0.1, "best_tenth": 0.9, "variance_silos": even**2}
    summary = {
        "about": "global",
        "metric": "accuracy",
        "generalisation": {"mean": outside},
        "personalisation": {"mean": home},
        "fairness": {"global": fairness},
    }
    return {"method": method, "held_out": held_out, "seed": seed, "summary": summary}


def cells(noise: dict[str, tuple[float, ...]], name: str = "new") -> list[dict[str, Any]]:
    places = [(domain, seed, one) for domain, some in noise.items() for seed, one in enumerate(some)]
    return [
        made
        for domain, seed, one in places
        for made in (cell("fedavg", domain, seed, 0.4), cell(name, domain, seed, 0.4 + one))
    ]


def comparison(found: list[dict[str, Any]], *methods: str) -> dict[str, Any]:
    held_out = list(dict.fromkeys(one["held_out"] for one in found))
    return {"methods": ["fedavg", *methods], "held_out": held_out, "seeds": [0, 1, 2], "cells": found}


def test_pairs_are_of_one_held_out_domain_and_one_seed() -> None:
    found = cells(NOISE)
    del found[-1]  # without a partner
    pairs = paired_cells(found, "new", "fedavg", "generalisation")
    wanted = {("a", 0): 0.01, ("a", 1): 0.02, ("a", 2): 0.03, ("b", 0): 0.03, ("b", 1): 0.05}
    assert pairs == pytest.approx(wanted)


def test_each_domain_counts_once_and_the_interval_is_over_seeds() -> None:
    one = compared(cells(NOISE), "new", "fedavg", "generalisation")
    assert one is not None
    assert one.difference.mean == pytest.approx((0.02 + 0.05) / 2)
    wanted = stats.ttest_1samp([0.02, 0.035, 0.05], 0)  # the seeds' means
    interval = wanted.confidence_interval(0.95)
    assert one.difference.margin == pytest.approx((interval.high - interval.low) / 2)
    assert one.difference.p == pytest.approx(wanted.pvalue)
    assert (one.pairs, one.seeds) == (6, 3)


@pytest.mark.parametrize("noise", [{"a": (0.3,)}, {"a": (0.31,), "b": (0.33,), "c": (0.32,), "d": (0.36,)}])
def test_one_seed_has_no_interval_and_is_never_sure(noise: dict[str, tuple[float, ...]]) -> None:
    """However many domains were held out: its runs share silos and initial weights."""
    one = compared(cells(noise), "new", "fedavg", "generalisation")
    assert one is not None
    assert one.difference.mean == pytest.approx(sum(some[0] for some in noise.values()) / len(noise))
    assert (one.difference.margin, one.difference.p, one.seeds, one.sure) == (None, None, 1, False)


def found_by_chance(stream: np.random.Generator, missing: int, shared: float, tries: int = 1500) -> float:
    """How often a difference that is none is called sure: four domains and three seeds, some runs not there.

    Args:
        stream: The draws.
        missing: How many of the last seed's runs are not there.
        shared: The share of a difference's variance that the runs of one seed have in common.
        tries: How often.
    """
    sure = 0
    for _ in range(tries):
        of_seed, own = stream.normal(size=3), stream.normal(size=(4, 3))
        values = shared**0.5 * of_seed + (1 - shared) ** 0.5 * own
        pairs = {
            (str(domain), seed): values[domain, seed]
            for domain in range(4)
            for seed in range(3)
            if seed < 2 or domain >= missing
        }
        one = from_pairs(pairs)
        assert one is not None
        sure += one.sure
    return sure / tries


def test_runs_of_one_seed_may_move_together() -> None:
    """Counted as independent looks, they would find what is not there in far more than one of twenty cases."""
    stream = np.random.default_rng(0)
    for shared in (0.0, 0.5, 0.9):
        assert 0.035 < found_by_chance(stream, 0, shared) < 0.065
        assert found_by_chance(stream, 3, shared) < 0.065


def test_everything_that_is_looked_at_is_corrected_together() -> None:
    found = cells(NOISE) + [one for one in cells({"a": (0.2, 0.21, 0.2)}, "other") if one["method"] == "other"]
    alone = [compared(found, name, "fedavg", "generalisation") for name in ("new", "other")]
    both = together(["fedavg", "new", "other"], found)["generalisation"]
    wanted = holm([one and one.difference.p for one in alone], 6)  # the other two answers too, in which nothing differs
    assert [both[name].difference.p for name in ("new", "other")] == pytest.approx(wanted)
    assert both["other"].sure


def test_the_spread_of_a_method_at_chance_is_compared_with_none() -> None:
    found = cells(NOISE)
    found[1]["summary"]["fairness"]["global"]["at_chance"] = True
    told = together(["fedavg", "new"], found)
    assert set(told) == {"generalisation", "personalisation"}
    assert compare_cells(["fedavg", "new"], found)[1]["fairness"]["difference"] is None


@pytest.mark.parametrize(
    ("key", "mean", "p", "told"),
    [
        ("generalisation", 0.025, 0.01, "new generalises better than old by 2.5 ± 1.0 points: sure"),
        ("personalisation", -0.025, 0.01, "new personalises worse than old by 2.5 ± 1.0 points: sure"),
        ("fairness", -0.025, 0.2, "new is more even than old by 2.5 ± 1.0 points: may be chance"),
        ("fairness", 0.025, 0.01, "new is less even than old by 2.5 ± 1.0 points: sure"),
    ],
)
def test_a_comparison_in_words(key: str, mean: float, p: float | None, told: str) -> None:
    assert sentence("new", "old", key, Compared(Difference(mean, 0.01, p), 6, 3)) == told


def test_equal_results_are_told_as_such() -> None:
    one = Compared(Difference(0.0, None, None), 6, 3)
    assert sentence("new", "old", "generalisation", one) == "new generalises as well as old"
    assert sentence("new", "old", "fairness", one) == "new is as even as old"


def test_words_know_metrics_of_which_less_is_better() -> None:
    with shown_in("mae"):
        one = Compared(Difference(-0.25, 0.1, 0.01), 6, 3)
        assert (
            sentence("new", "old", "generalisation", one)
            == "new generalises better than old by 0.250 ± 0.100 mae: sure"
        )
        assert sentence("new", "old", "fairness", one).startswith("new is more even than old")


def test_a_terminal_is_told_what_is_sure() -> None:
    noise = {"a": (0.2, 0.21, 0.2), "b": (0.19, 0.2, 0.2)}
    assert surely(comparison(cells(noise), "new")) == [
        "new generalises better than fedavg by 20.0 ± 1.2 points: sure",
        "sure is corrected for all 3 comparisons; an interval (± 95 %) is of one alone",
    ]
    (told,) = surely(comparison(cells({"a": (0.2, -0.2, 0.1)}), "new"))
    assert told == "nothing differs from fedavg for sure (3 comparisons, corrected for their number)"
    same = comparison(cells({"a": (0.2, 0.2, 0.2)}), "new")  # nothing to tell chance by
    assert surely(same) == ["nothing differs from fedavg for sure (3 comparisons, corrected for their number)"]
    assert surely(comparison(cells({"a": (0.2,)}), "new")) == []


def test_the_page_opens_with_a_picture_for_each_answer() -> None:
    shown = page(fabricated(("fedavg", "fedprox", "fedheal"), domains=("a", "b"), seeds=(0, 1, 2)))
    assert re.findall(r'<section id="([^"]*)"', shown)[0] == "glance"
    opening = shown.partition('id="glance"')[2].partition("</section>")[0]
    assert [one.partition(":")[0] for one in re.findall(r"<svg [^>]*aria-label=\"([^\"]*)\"", opening)] == [
        "Generalise",
        "Personalise",
        "Fair",
        "Outside and at home. 3 points",
        "At home and how even. 3 points",
    ]
    assert opening.rpartition("<details>")[2].count("<li>") == 6
    assert "corrected for all 6 comparisons" in opening


def test_what_is_sure_stands_above_the_pictures_and_all_is_told_below() -> None:
    with shown_in("accuracy"):
        opening = glance(comparison(cells({"a": (0.2, 0.21, 0.2), "b": (0.19, 0.2, 0.2)}), "new"))
        plain = glance(comparison(cells({"a": (0.2, -0.2, 0.1)}), "new"))
        single = glance(comparison(cells({"a": (0.2,)}), "new"))
    above, below = (opening.partition("<svg")[0], opening.rpartition("</svg>")[2])
    assert re.findall("<li>(.*?)</li>", above) == ["new generalises better than fedavg by 20.0 ± 1.2 points: sure"]
    assert len(re.findall("<li>(.*?)</li>", below)) == 3
    assert "Nothing differs from fedavg for sure." in plain
    assert "No difference has an interval" in single
    assert "one seed, which may be chance" in single


LONG = ["fedprox(mu=0.1) | fedheal", "fedprox(mu=0.01) | fedheal"]


def drawn(chart: str) -> dict[str, list[tuple[str, str]]]:
    """The kind of a text or a dot -> each with its words, or its height."""
    root = ElementTree.fromstring(chart)
    found: dict[str, list[tuple[str, str]]] = {}
    for one in root.iter():
        found.setdefault(str(one.get("class")), []).append((str(one.text), str(one.get("y") or one.get("cy"))))
    return found


def test_names_in_a_forest_are_whole_above_their_rows_where_long() -> None:
    wide = f"fedprox(mu=0.01) | {'fedheal(tau=0.4, beta=0.2) | ' * 2}afl"
    found = drawn(forest_chart([Effect(name, 1.0, 0.5) for name in (*LONG, wide)], title="t", x_label="points"))
    assert "name" not in found
    lines = [words for words, _ in found["name above"]]
    assert lines[:2] == LONG
    assert " ".join(lines[2:]) == wide
    assert max(map(len, lines)) <= 52
    names = [float(y) for _, y in found["name above"]]
    dots = [float(y) for _, y in found["dot"]]
    assert names[0] < dots[0] < names[1] < dots[1] < names[2] < names[-1] < dots[2]
    assert dots[0] - names[0] + 5 < names[1] - dots[0]  # a name is clearly nearer to its own row
    short = drawn(forest_chart([Effect("faa", 1.0), Effect("ga", 2.0)], title="t", x_label="points"))
    assert [words for words, _ in short["name"]] == ["faa", "ga"]
    assert "name above" not in short


def test_a_full_dot_is_sure_and_a_hollow_one_is_not() -> None:
    effects = [Effect("a", 2.0, 1.0, sure=True), Effect("b", 1.0, 0.5, sure=False)]
    chart = forest_chart(effects, title="t", x_label="points")
    rows = ElementTree.fromstring(chart).findall("g[@class='s1']")
    assert [row.findtext("title") for row in rows] == ["a: +2.0 ± 1.0, sure", "b: +1.0 ± 0.5, may be chance"]
    assert [[dot.get("class") for dot in row.findall("circle")] for row in rows] == [["dot"], ["dot hollow"]]
    assert chart.csv == "name,points,margin (95 %),sure\na,2,1,yes\nb,1,0.5,no\n"
    style = files("fairsilo.report").joinpath("page.css").read_text(encoding="utf-8")
    assert "svg .dot.hollow { fill: var(--card); stroke: var(--own);" in style
    assert "hollow" not in forest_chart([Effect("a", 2.0, 1.0)], title="t", x_label="points")  # nobody judged
    some, none = sure_key(6), sure_key(0)
    assert re.findall("<span>(.*?)</span>", some) == ["sure, corrected for all 6 comparisons", "may be chance"]
    assert re.findall('circle class="(.*?)"', some) == ["dot", "dot hollow"]
    assert re.findall("<span>(.*?)</span>", none) == ["may be chance"]


def test_dots_of_a_comparison_are_full_where_it_is_sure_and_the_key_stands_below() -> None:
    with shown_in("accuracy"):
        opening = glance(comparison(cells({"a": (0.2, 0.21, 0.2), "b": (0.19, 0.2, 0.2)}), "new"))
    pictures, below = re.split('<ul class="legend"><li class="s1"><svg[^>]*><path class="line"', opening, maxsplit=1)
    dots = re.findall('<circle class="(dot[^"]*)"[^>]*r="4"/></g>', pictures)
    assert dots == ["dot", "dot hollow", "dot hollow"]
    assert "each of a single comparison" in below.partition("</p>")[0]


def test_points_have_no_line_in_their_key() -> None:
    series = emphasised({f"m{n}": [(float(n), float(n))] for n in range(12)})
    points, lines = legend(series, points=True), legend(series)
    assert 'class="line' not in points
    assert points.count('class="dot"') == 7
    assert "6 others in between" in points
    triangle = marker(0, 13, 6)
    assert triangle in points.rpartition("<li")[2]
    assert 'class="line' in lines.rpartition("<li")[2]


def test_points_without_a_name_in_the_key_have_no_cross() -> None:
    series = [Series("a", [(1.0, 2.0)], 1), Series("b", [(2.0, 3.0)], 0)]
    chart = scatter_chart(series, title="t", x_label="x", y_label="y", reach={"a": (9.0, 1.0), "b": (90.0, 1.0)})
    root = ElementTree.fromstring(chart)
    assert [group.get("class") for group in root.findall("g") if "reach" in str(ElementTree.tostring(group))] == ["s1"]
    ticks = [float(one.text.replace("−", "-")) for one in root.findall("text[@class='tick']") if one.text]
    assert max(ticks) == 10  # as far as the cross of a reaches, and not that of b
    assert chart.csv == "name,x,y,margin of x,margin of y\na,1,2,9,1\nb,2,3,90,1\n"


def test_trades_are_paired_differences_with_their_intervals() -> None:
    found = cells({"a": (0.1, 0.2, 0.3)})
    for one in found[1::2]:
        one["summary"]["personalisation"]["mean"] -= 0.05
    with shown_in("accuracy"):
        outside, even = trades(comparison(found, "new"))
    with shown_in("mae", False):
        other = trades(comparison(found, "new"))[0]
    titles = re.findall(r"<g><title>(.*?)</title>", outside)
    assert titles == ["fedavg: 0, 0.0", "new: -5, 20.0"]
    assert 'class="line' not in outside.partition('<ul class="legend">')[2]
    assert re.findall(r'class="grid zero" d="M[\d.]+ [\d.]+([HV])', outside) == ["H", "V"]
    (cross,) = re.findall(r'<path class="reach" d="M([\d.]+) [\d.]+H([\d.]+)M[\d.]+ ([\d.]+)V([\d.]+)"', outside)
    left, right, low, high = map(float, cross)
    assert left == right  # always the same at home
    zero = float(re.findall(r'grid zero" d="M[\d.]+ ([\d.]+)H', outside)[0])
    # the mean is 20, and its margin Student's t of two degrees (4.303) times 10 / sqrt(3): 24.8
    assert (low - zero) / (zero - high) == pytest.approx((24.8 - 20) / (24.8 + 20), abs=0.02)
    assert "Better is right and up." in outside
    assert "Better is right and down." in even
    assert "Better is left and down." in other
    with shown_in("accuracy"):
        single = trades(comparison(cells({"a": (0.2,)}), "new"))[0]
    assert 'class="reach"' not in single
    assert "One seed, so that nothing shows the spread." in single
    with shown_in("accuracy"):
        alike = trades(comparison(cells({"a": (0.2, 0.2)}), "new"))[0]
    assert 'class="reach"' not in alike
    assert "No difference varies from seed to seed, so that nothing shows the spread." in alike
    assert "What is sure, the forest plots show." in outside
    assert "forest plots" not in alike


def test_where_no_runs_can_be_paired_the_page_says_so() -> None:
    with shown_in("accuracy"):
        opening = glance(comparison([one for one in cells(NOISE) if one["method"] == "new"], "new"))
    assert "Nothing to compare: no method has a result where fedavg has one, by domain and seed." in opening
    assert "In words" not in opening


def test_a_method_without_a_comparable_spread_is_named_below_the_picture() -> None:
    found = cells(NOISE) + [one for one in cells(NOISE, "other") if one["method"] == "other"]
    for one in found:
        one["summary"]["fairness"]["global"]["at_chance"] = one["method"] == "other"
    with shown_in("accuracy"):
        outside, even = trades(comparison(found, "other", "new"))
    assert "Without a comparable spread: other." in even
    assert "Without" not in outside
    # and the others keep their colours
    colours = [re.findall(r'<li class="s(\d)">.*?<span[^>]*>(.*?)</span>', one) for one in (outside, even)]
    assert colours == [[("1", "fedavg"), ("2", "other"), ("3", "new")], [("1", "fedavg"), ("3", "new")]]


def at_chance_in(found: list[dict[str, Any]], *names: str, runs: int = 9) -> list[dict[str, Any]]:
    for name in names:
        for one in [one for one in found if one["method"] == name][:runs]:
            one["summary"]["fairness"]["global"]["at_chance"] = True
    return found


@pytest.mark.parametrize(
    ("guessed", "runs", "told"),
    [
        ([], 9, ""),
        (["fedavg"], 9, "Fairness is not compared: fedavg is at chance level, and"),
        (["fedavg", "new"], 9, "Fairness is not compared: fedavg is at chance level, and"),
        (["new", "other"], 9, "Fairness is not compared: new, other are at chance level, and"),
        (["new"], 9, "Fairness of new is not compared: at chance level, and"),
        (["fedavg"], 1, "Fairness is not compared: fedavg is at chance level in some runs, and"),
    ],
)
def test_a_fairness_that_is_not_compared_is_said_with_the_reason(guessed: list[str], runs: int, told: str) -> None:
    found = cells(NOISE) + [one for one in cells(NOISE, "other") if one["method"] == "other"]
    with shown_in("accuracy"):
        opening = glance(comparison(at_chance_in(found, *guessed, runs=runs), "new", "other"))
    said = re.findall(r"<p>(Fairness .*?)</p>", opening)
    assert said == ([f"{told} an even result there is not fair."] if told else [])
    pictures = re.findall(r'<svg [^>]*aria-label="Fair: [^"]*"', opening)
    assert len(pictures) == (guessed in ([], ["new"]))


@pytest.mark.parametrize(
    ("apart", "told"),
    [
        ({"fedavg": [False] * 6, "new": [False] * 6}, "In no run of any method are"),
        ({"fedavg": [True] * 6, "new": [False] * 6}, "In no run of new are"),
        ({"fedavg": [False] * 6, "new": [False] * 5 + [True]}, "In no run of fedavg are"),
        ({"fedavg": [True] * 6, "new": [False] * 5 + [True]}, ""),
        ({"fedavg": [None] * 6, "new": [None] * 6}, ""),  # nobody can tell, as with a loss
        ({}, ""),  # runs from before that was noted
    ],
)
def test_a_spread_that_sizes_of_test_sets_alone_would_make_is_said(
    apart: dict[str, list[bool | None]], told: str
) -> None:
    found = cells(NOISE)
    for name, runs in apart.items():
        for number, (one, flag) in enumerate(zip([one for one in found if one["method"] == name], runs, strict=True)):
            equal = None if flag is None else 0.02 + 0.001 * number
            one["summary"]["fairness"]["global"] |= {"apart": flag, "std_if_equal": equal}
    with shown_in("accuracy"):
        opening = glance(comparison(found, "new"))
    said = re.findall(r"<p>(In no run .*?)</p>", opening)
    assert len(said) == bool(told)
    if told:
        assert said[0].startswith(told)
        assert "a standard deviation of 2.0 to 2.5 points" in said[0]


@pytest.mark.parametrize(
    ("guessed", "spared", "told"),
    [
        (("generalisation", "personalisation"), 0, "on the held-out domain and by silos' own models at home"),
        (("generalisation",), 0, "on the held-out domain"),
        (("personalisation",), 0, "by silos' own models at home"),
        (("generalisation", "personalisation"), 1, ""),  # one run is better than guessing
        ((), 0, ""),
    ],
)
def test_where_nobody_learned_that_comes_first(guessed: tuple[str, ...], spared: int, told: str) -> None:
    found = cells(NOISE)
    for one in found[spared:]:
        for key in guessed:
            one["summary"][key]["at_chance"] = True
    content = comparison(found, "new")
    with shown_in("accuracy"):
        opening = glance(content).partition("</h2>")[2].strip()
    sentence_ = f"Nothing was learned {told}: no run is better than guessing there"
    assert opening.startswith(f"<p>{sentence_}".replace("'", "&#x27;")) == bool(told)
    assert surely(content)[0].startswith(sentence_) == bool(told)
    assert len(surely(content)) > bool(told)  # what differs is told all the same


def own_and_global() -> dict[str, Any]:
    """Of which the second method is about silos' own models, which are more even."""
    found = cells({"a": (0.2, 0.21, 0.2), "b": (0.19, 0.2, 0.2)}, "ditto")
    for number, one in enumerate(found[1::2]):
        own = dict(one["summary"]["fairness"]["global"], std_silos=0.05 + 0.001 * (number % 3))
        one["summary"] |= {"about": "personal"}
        one["summary"]["fairness"]["personal"] = own
    return comparison(found, "ditto")


def test_sentences_and_pictures_say_whose_models_are_compared() -> None:
    content = own_and_global()
    told = surely(content)
    assert told[0].startswith("ditto generalises better than fedavg by")
    assert told[1] == "ditto (own models) is more even than fedavg (global model) by 4.9 ± 0.2 points: sure"
    with shown_in("accuracy"):
        opening = glance(content)
    labels = re.findall(r'<svg [^>]*aria-label="([^"]*)"', opening)
    assert "ditto (own models)" in labels[2]
    assert "minus fedavg (global model)" in labels[2]
    assert "own models)" not in labels[0] + labels[1]
    assert "ditto (own models)" in opening.rpartition("<figure>")[2].partition("</figure>")[0]
    assert "fedavg (global model), which is at zero" in opening
    both = own_and_global()
    for one in both["cells"]:
        one["summary"]["fairness"]["personal"] = {**one["summary"]["fairness"]["global"], "std_silos": 0.1}
        one["summary"]["about"] = "personal"
    with shown_in("accuracy"):
        assert "ditto (own models) is as even as fedavg (own models)" in glance(both)


def test_one_method_has_nothing_to_be_compared_with() -> None:
    assert glance(fabricated(("fedavg",), domains=("a",))) == ""
