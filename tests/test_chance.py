"""Intervals from the size of test sets, chance levels from their class counts, and no praise for what guesses."""

from __future__ import annotations

import csv
import io
import math
import random
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.table import Table

import tiny
from fairsilo.analysis.chance import (
    GUESSED,
    EvaluationSet,
    Judge,
    evaluation_set,
    evaluation_sets,
    judged,
    pooled_size,
    wilson,
)
from fairsilo.analysis.metrics import at_chance, headline, summarise, variance
from fairsilo.analysis.paired import compare_cells
from fairsilo.report.comparison_page import page
from fairsilo.report.latex import comparison_latex
from fairsilo.report.tables import (
    comparison_csv,
    comparison_table,
    held_out_tables,
    run_table,
)

COUNTS = (60, 30, 10)


def rows(values: dict[str, float], own: dict[str, float] | None = None, counts: Any = COUNTS) -> list[dict[str, Any]]:
    """One evaluation; silo `u` is unseen."""
    found = []
    for model, numbers in (("global", values), ("personal", own or {})):
        for silo, metric in numbers.items():
            place = {"round": 1, "silo": silo, "domain": silo, "unseen": silo == "u", "model": model, "split": "test"}
            more = {"per_class": {"samples": list(counts)}} if counts else {}
            found.append({**place, "loss": 1.0, "metric": metric, "samples": 100, **more})
    return found


# ------------------------------------------------------------------------------------------------------------ intervals
@pytest.mark.parametrize(
    ("share", "samples", "interval"),
    [(0.8, 10, (0.4901625, 0.9433178)), (0.0, 10, (0.0, 0.2775328)), (1.0, 10, (0.7224672, 1.0)), (0.5, 100, None)],
)
def test_wilson_by_known_values(share: float, samples: int, interval: tuple[float, float] | None) -> None:
    # at one half the interval is symmetric, with half-width z / (2 sqrt(n + z^2))
    half = 1.959964 / (2 * math.sqrt(100 + 1.959964**2))
    assert wilson(share, samples) == pytest.approx(interval or (0.5 - half, 0.5 + half), abs=1e-6)


def test_the_mean_over_domains_is_a_share_of_all_their_samples() -> None:
    two = [EvaluationSet("a", 100), EvaluationSet("b", 100)]
    assert pooled_size(two) == pytest.approx(200)
    # the variance of the mean of two shares is (1/100 + 1/50) / 4 of p (1 - p)
    assert pooled_size([EvaluationSet("a", 100), EvaluationSet("b", 50)]) == pytest.approx(4 / (1 / 100 + 1 / 50))


def test_silos_of_one_domain_count_as_tested_on_the_same_samples() -> None:
    assert pooled_size([EvaluationSet("a", 100)] * 5) == pytest.approx(100)
    # weights 2/3 and 1/3 of domains with 100 samples each
    three = [EvaluationSet("a", 100), EvaluationSet("a", 80), EvaluationSet("b", 100)]
    assert pooled_size(three) == pytest.approx(1 / ((4 / 9 + 1 / 9) / 100))


def test_balanced_accuracy_is_as_sure_as_its_rarest_classes_allow() -> None:
    found = evaluation_set("a", 100, (90, 10, 0), "balanced-accuracy")
    assert found.size == pytest.approx(4 / (1 / 90 + 1 / 10))
    assert (found.majority, found.uniform) == (pytest.approx(1 / 2), pytest.approx(1 / 3))


# -------------------------------------------------------------------------------------------------------- chance levels
def test_what_guessing_reaches_follows_from_the_counts() -> None:
    found = evaluation_set("a", 100, COUNTS, "accuracy")
    assert (found.size, found.majority, found.uniform, found.level) == (100, 0.6, pytest.approx(1 / 3), 0.6)
    assert evaluation_set("a", 100, None, "accuracy").level is None


def test_counts_come_from_the_rows_or_from_the_run() -> None:
    (found,) = evaluation_sets(rows({"a": 0.5}), "accuracy", {"a": (1, 0, 0)}).values()
    assert (found.majority, found.size) == (0.6, 100)
    (found,) = evaluation_sets(rows({"a": 0.5}, counts=None), "accuracy", {"a": (80, 20)}).values()
    assert found.majority == 0.8
    assert evaluation_sets(rows({"a": 0.5}), "auroc") == {}


def test_the_roster_counts_the_classes_in_everybodys_test_data() -> None:
    people = tiny.federation()
    everybody = [*people.silos, *people.unseen]
    counted = {one.name: tuple(torch.bincount(one.test.targets, minlength=3).tolist()) for one in everybody}
    assert people.roster.tested == counted


def test_a_real_run_knows_what_guessing_reaches(tmp_path: Path) -> None:
    import fairsilo

    people = tiny.federation()
    settings: dict[str, Any] = {"rounds": 1, "epochs": 1, "lr": 1e-9, "engine": {"name": "sequential"}}
    result = fairsilo.run(method="fedavg", model=tiny.TinyNet, federation=people, out=tmp_path / "r", **settings)
    for found in result.summary["silos"]:
        targets = people[found["silo"]].test.targets
        counts = torch.bincount(targets, minlength=len(people.classes))
        uniform = pytest.approx(1 / len(people.classes))
        assert found["chance"] == {"majority": pytest.approx(int(counts.max()) / len(targets)), "uniform": uniform}
    even = result.summary["fairness"]["global"]
    assert even["chance"] == pytest.approx(1 / 3)
    assert at_chance(result.summary)["fairness"] == (even["interval"][0] <= even["chance"])
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert ("At chance level" in page) == any(at_chance(result.summary).values())


@pytest.mark.parametrize(("value", "guessed"), [(0.2, True), (0.6, True), (0.65, True), (0.72, False), (0.9, False)])
def test_near_is_within_the_interval_from_the_test_size(value: float, guessed: bool) -> None:
    found = judged({"a": value}, evaluation_sets(rows({"a": value}), "accuracy"))
    assert found["at_chance"] is guessed
    assert (found["interval"][0] <= 0.6) is guessed
    assert found["chance"] == pytest.approx(0.6)


def test_a_result_without_counts_is_neither_at_chance_nor_above() -> None:
    found = summarise(rows({"a": 0.1, "u": 0.1}, counts=None))
    assert found["generalisation"]["interval"] == pytest.approx(wilson(0.1, 100))
    assert found["generalisation"]["at_chance"] is None
    assert found["silos"][0]["chance"] is None
    assert summarise(rows({"a": 0.1}), metric="auroc")["fairness"]["global"]["interval"] is None


def test_the_summary_marks_each_answer_by_itself() -> None:
    found = summarise(rows({"a": 0.9, "b": 0.9, "u": 0.5}, {"a": 0.61, "b": 0.62}))
    assert at_chance(found) == {"generalisation": True, "personalisation": True, "fairness": False}
    assert at_chance({**found, "about": "personal"})["fairness"] is True
    a, b, u = found["silos"]
    assert (a["at_chance"], b["at_chance"], u["at_chance"]) == (["personal"], ["personal"], ["global"])
    assert a["chance"] == {"majority": 0.6, "uniform": pytest.approx(1 / 3)}
    assert a["intervals"] == {"global": pytest.approx(wilson(0.9, 100)), "personal": pytest.approx(wilson(0.61, 100))}
    # two domains of 100 samples
    assert found["fairness"]["global"]["interval"] == pytest.approx(wilson(0.9, 200))
    assert found["personalisation"]["interval"] == pytest.approx(wilson(0.615, 200))


# ------------------------------------------------------------------------------------------- nobody calls a guess fair
def comparison() -> dict[str, Any]:
    """`fedavg` learns and is uneven, `afl` is a little better and more even, `q-ffl` names one class everywhere."""
    values = {
        "fedavg": {"a": 0.95, "b": 0.75, "u": 0.85},
        "afl": {"a": 0.95, "b": 0.85, "u": 0.85},
        "q-ffl": {"a": 0.6, "b": 0.6, "u": 0.6},
        "afl | q-ffl": {"a": 0.97, "b": 0.75, "u": 0.8},
    }
    cells = [
        {"method": name, "held_out": held_out, "seed": 0, "summary": summarise(rows(numbers))}
        for name, numbers in values.items()
        for held_out in ("u", "v")
    ]
    grid = {"rows": ["fedavg", "afl"], "columns": ["", "q-ffl"]}
    return {"methods": list(values), "held_out": ["u", "v"], "seeds": [0], "cells": cells, "grid": grid}


@pytest.mark.parametrize(
    ("sizes", "domains"),
    [((8, 14, 30, 60, 200, 1000), "abcdef"), ((100, 100, 100, 100), "abcd"), ((50, 50, 200, 200), "aabc")],
)
def test_equally_good_silos_differ_by_as_much_as_it_says(sizes: tuple[int, ...], domains: str) -> None:
    """Test data drawn at random, one set a domain, for a model that is right in six of ten cases everywhere."""
    stream, names = random.Random(0), [f"silo {number}" for number in range(len(sizes))]
    sets = {name: EvaluationSet(*of) for name, of in zip(names, zip(domains, sizes, strict=True), strict=True)}
    squares, expected, apart = [], [], 0
    for _ in range(1500):
        right = {of: sum(stream.random() < 0.6 for _ in range(n)) / n for of, n in zip(domains, sizes, strict=True)}
        values = {name: right[of] for name, of in zip(names, domains, strict=True)}
        found = Judge(sets).apart(values, {}, 1)
        squares.append(variance(values.values(), 1))
        expected.append(found["std_if_equal"] ** 2)
        apart += found["apart"]
    assert statistics.fmean(expected) == pytest.approx(statistics.fmean(squares), rel=0.05)
    assert apart / 1500 == pytest.approx(0.05, abs=0.02)


def test_silos_that_differ_are_found_to_be_further_apart() -> None:
    sets = {name: EvaluationSet(name, 400) for name in "abcd"}
    # p (1 - p) / 400 at the mean of 0.75, and three of four degrees of freedom are left
    equal = math.sqrt(0.75 * 0.25 / 400 * 3 / 4)
    even = Judge(sets).apart({"a": 0.74, "b": 0.76, "c": 0.75, "d": 0.75}, {}, 0)
    assert even == {"std_if_equal": pytest.approx(equal), "apart": False}
    assert Judge(sets).apart({"a": 0.65, "b": 0.85, "c": 0.75, "d": 0.75}, {}, 0) == {**even, "apart": True}
    # chi^2 with three degrees has its 95 % point at 7.815: of four silos two by that much from their mean
    edge = math.sqrt(7.815 / 2 * 0.75 * 0.25 / 400)
    for further in (0.97, 1.03):
        moved = {"a": 0.75 - edge * further, "b": 0.75 + edge * further, "c": 0.75, "d": 0.75}
        assert Judge(sets).apart(moved, {}, 0)["apart"] is (further > 1)


def test_of_other_metrics_the_errors_of_the_silos_say_it() -> None:
    judge = Judge({}, {"a": "a", "b": "b"}, share=True)
    values = {"a": 0.8, "b": 0.9}
    found = judge.apart(values, {"a": 0.03, "b": 0.04}, 0)
    # sqrt((9 + 16) / 4) / 100; the difference has the error 0.05, of which it is twice as much, and 1.9 times below
    assert found == {"std_if_equal": pytest.approx(0.025), "apart": True}
    assert judge.apart({"a": 0.8, "b": 0.895}, {"a": 0.03, "b": 0.04}, 0)["apart"] is False
    assert judge.apart(values, {"a": 0.03}, 0) == {"std_if_equal": None, "apart": None}
    assert Judge({}, {"a": "a", "b": "a"}).apart(values, {"a": 0.03, "b": 0.04}, 0)["std_if_equal"] is None  # one set
    assert judge.apart({"a": 0.8}, {"a": 0.03}, 1)["apart"] is None


def test_the_summary_says_how_far_apart_equal_silos_would_be() -> None:
    found = summarise(rows({"a": 0.9, "b": 0.7, "u": 0.5}))["fairness"]["global"]
    assert found["std_if_equal"] == pytest.approx(math.sqrt(0.8 * 0.2 / 100 / 2))
    assert found["apart"] is True


def test_a_spread_at_chance_is_compared_with_none() -> None:
    fedavg, afl, guessing, _ = compare_cells(comparison()["methods"], comparison()["cells"])
    assert guessing["fairness"]["mean"] == 0  # as even as can be
    assert (guessing["fairness"]["difference"], guessing["fairness"]["at_chance"]) == (None, 2)
    assert guessing["generalisation"]["difference"] == pytest.approx(-0.25)
    assert afl["fairness"]["difference"] == pytest.approx(-0.05)
    assert (afl["fairness"]["at_chance"], fedavg["fairness"]["at_chance"]) == (0, 0)
    assert afl["at_home"]["mean"] == pytest.approx(0.9)


def test_one_run_at_chance_is_enough_to_be_left_out_of_the_ranking() -> None:
    content = comparison()
    content["cells"][5]["summary"] = summarise(rows({"a": 0.9, "b": 0.9, "u": 0.85}))
    guessing = compare_cells(content["methods"], content["cells"])[2]
    assert (guessing["fairness"]["difference"], guessing["fairness"]["at_chance"]) == (None, 1)
    assert "(75.0) ≈ chance in 1 of 2 runs" in rendered(comparison_table(content))
    assert heats(page(content), "Shaded by the spread over domains")["0.0"] == (0.0, False)
    # neither is anybody compared with a first method that guesses
    content["methods"] = ["q-ffl", "afl"]
    content["cells"] = [cell for cell in content["cells"] if cell["method"] in content["methods"]]
    assert compare_cells(content["methods"], content["cells"])[1]["fairness"]["difference"] is None


def heats(shown: str, title: str) -> dict[str, tuple[float, bool]]:
    """Large number -> shade and whether it is called the best of its row or column, of one heat table."""
    body = shown.partition(title)[2].partition("</table>")[0]
    found = re.findall(r'<td class="number" style="--heat: ([\d.]+)%"><span>(.*?)</span>', body)
    return {re.sub(r"<sup>.*?</sup>|<.*?>", "", main): (float(heat), "<sup>" in main) for heat, main in found}


def test_the_grid_neither_shades_nor_ranks_a_guess() -> None:
    shown = page(comparison())
    spread = heats(shown, "Shaded by the spread over domains")
    assert spread["0.0"] == (0.0, False)
    assert spread["5.0"] == (42.0, True)  # the most even of those that learned
    average = heats(shown, "Shaded by the average")
    assert average["60.0"] == (0.0, False)
    assert average["85.0"] == (0.0, False)  # the lowest of those that learned
    assert average["90.0"] == (42.0, True)
    assert shown.count("<small>≈ chance</small>") >= 4


def test_of_an_error_the_lowest_average_is_the_best() -> None:
    content = comparison()
    for cell in content["cells"]:
        cell["summary"] = {**cell["summary"], "metric": "mae", "share": False}
    average = heats(page(content), "Shaded by the average")
    assert average["0.85"] == (42.0, True)
    assert average["0.9"] == (0.0, False)


def test_without_a_guess_the_grid_says_nothing_of_chance() -> None:
    content = comparison()
    for cell in content["cells"]:
        if cell["method"] == "q-ffl":
            cell["summary"] = summarise(rows({"a": 0.9, "b": 0.9, "u": 0.9}))
    assert GUESSED not in page(content)
    assert heats(page(content), "Shaded by the spread over domains")["0.0"] == (42.0, True)


def rendered(*tables: Table) -> str:
    text = io.StringIO()
    for table in tables:
        Console(file=text, width=250).print(table)
    return text.getvalue()


def test_every_table_shows_a_spread_with_its_mean_and_marks_a_guess() -> None:
    content = comparison()
    shown = rendered(comparison_table(content))
    assert "0.0 (60.0) ≈ chance" in shown
    assert "5.0 (90.0) " in shown
    assert "no better than always naming the most frequent class" in shown
    by_domain = rendered(*held_out_tables(content))
    assert by_domain.count("0.0 (60.0) ≈ chance") == 3  # two domains and their mean
    one = rendered(run_table("q-ffl", content["cells"][4]["summary"], ("fedavg", content["cells"][0]["summary"])))
    assert "0.0 (60.0) ≈ " in one
    assert "10.0 (85.0) " in one
    assert "≈ chance" not in rendered(run_table("fedavg", content["cells"][0]["summary"]))


def test_files_hold_the_mean_and_the_mark_too() -> None:
    content = comparison()
    lines = {line["method"]: line for line in csv.DictReader(io.StringIO(comparison_csv(content)))}
    assert float(lines["q-ffl"]["fairness_mean"]) == headline(content["cells"][4]["summary"])["at_home"]
    assert (lines["q-ffl"]["fairness_at_chance"], lines["afl"]["fairness_at_chance"]) == ("True", "False")
    assert float(lines["q-ffl"]["fairness_chance_level"]) == pytest.approx(0.6)
    latex = comparison_latex(content)
    assert r"q-ffl & $60.0\;(0.0)^{\dagger}$ & $-$ & $60.0\;(0.0)^{\dagger}$ & $0.0\;(0.0)^{\dagger}$ & " in latex
    assert r"afl & $85.0\;(0.0)$ & $-$ & $90.0\;(0.0)$ & $5.0\;(0.0)$ & $85.0\;(0.0)$ & " in latex
    assert r"% \dagger: no better than always naming" in latex
