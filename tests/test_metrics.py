"""From evaluation rows to the three answers, by numbers small enough to check by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsilo.analysis.chance import wilson
from fairsilo.analysis.metrics import (
    deviation,
    fairness,
    gaps,
    headline,
    mean,
    results,
    select_rounds,
    summarise,
    tail_means,
    variance,
)
from fairsilo.analysis.paired import compare_cells
from fairsilo.tasks.classify import Classify


def row(
    number: int, silo: str, metric: float, model: str = "global", split: str = "test", **more: Any
) -> dict[str, Any]:
    place = {"round": number, "silo": silo, "domain": more.pop("domain", silo), "unseen": silo == "u"}
    return {**place, "model": model, "split": split, "loss": 1.0, "metric": metric, "samples": 10, **more}


# ---------------------------------------------------------------------------------------------------------- statistics
def test_mean_variance_and_deviation_by_hand() -> None:
    values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    assert mean(values) == 5.0
    assert variance(values) == 4.0
    assert deviation(values) == 2.0
    assert variance(values, ddof=1) == 32 / 7


def test_too_few_values_deviate_by_nothing() -> None:
    assert deviation([]) == 0.0
    assert deviation([3.0]) == 0.0
    assert deviation([3.0], ddof=1) == 0.0


def test_the_mean_of_nothing_is_no_number() -> None:
    assert math.isnan(mean([]))


def test_generators_are_read_once() -> None:
    assert variance(iter([1.0, 3.0])) == 1.0
    assert tail_means(iter([1.0, 3.0])) == (1.0, 3.0)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20), st.floats(-1e3, 1e3))
@settings(deadline=None, max_examples=60, database=None)
def test_a_deviation_does_not_see_a_shift_nor_the_order(values: list[float], shift: float) -> None:
    moved = [value + shift for value in reversed(values)]
    assert math.isclose(deviation(moved), deviation(values), rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("count", "tails"),
    [(1, (0.0, 0.0)), (5, (0.0, 4.0)), (19, (0.0, 18.0)), (20, (0.5, 18.5)), (30, (1.0, 28.0))],
)
def test_tails_are_the_worst_and_best_tenth_and_at_least_one(count: int, tails: tuple[float, float]) -> None:
    values = [float(number) for number in range(count)]
    assert tail_means(values[::-1]) == tails


# -------------------------------------------------------------------------------------------------------------- rounds
def history() -> list[dict[str, Any]]:
    """Seven evaluated rounds; validation is best in rounds 4 and 6, the unseen test in round 2."""
    rows = []
    for number, (valid_a, valid_b, outside) in enumerate(
        [
            (0.1, 0.1, 0.3),
            (0.2, 0.4, 0.9),
            (0.9, 0.1, 0.4),
            (0.5, 0.7, 0.5),
            (0.3, 0.3, 0.5),
            (0.6, 0.6, 0.6),
            (0.5, 0.5, 0.7),
        ],
        start=1,
    ):
        rows += [row(2 * number, "a", valid_a, split="validation"), row(2 * number, "b", valid_b, split="validation")]
        rows += [row(2 * number, "a", 0.99), row(2 * number, "u", outside)]
        # neither a personal model nor the unseen silo's validation may decide
        rows += [row(2 * number, "a", 1.0 if number == 5 else 0, "personal", "validation")]
        rows += [row(2 * number, "u", 1.0 if number == 5 else 0, split="validation")]
    return rows


@pytest.mark.parametrize(
    ("selection", "rounds"),
    [("last", [14]), ("last5", [6, 8, 10, 12, 14]), ("source-validation", [8]), ("oracle", [4])],
)
def test_each_selection_reads_its_rounds(selection: str, rounds: list[int]) -> None:
    assert select_rounds(history(), selection) == rounds


def test_among_equals_the_earlier_round_is_selected() -> None:
    rows = [row(number, "a", 0.5, split="validation") for number in (3, 1, 2)]
    assert select_rounds(rows, "source-validation") == [1]


def test_fewer_than_five_evaluations_are_all_read() -> None:
    assert select_rounds([row(number, "a", 0.5) for number in (2, 4)], "last5") == [2, 4]


@pytest.mark.parametrize("selection", ["source-validation", "oracle"])
def test_without_the_data_to_select_by_the_last_round_is_read(selection: str) -> None:
    assert select_rounds([row(number, "a", 0.5) for number in (1, 2)], selection) == [2]


@pytest.mark.parametrize("selection", ["last", "last5", "source-validation", "oracle"])
def test_without_rows_no_round_is_read(selection: str) -> None:
    assert select_rounds([], selection) == []


# ------------------------------------------------------------------------------------------------------------- results
def test_results_are_means_over_the_rounds_of_one_model_and_split() -> None:
    rows = [row(1, "a", 0.2), row(2, "a", 0.6), row(2, "b", 0.5), row(2, "a", 1.0, "personal")]
    rows.append(row(2, "a", 0.9, split="validation"))
    assert results(rows, [1, 2], "global", "test") == {"a": pytest.approx(0.4), "b": 0.5}
    assert results(rows, [2], "personal", "test") == {"a": 1.0}
    assert results(rows, [2], "global", "test", "loss") == {"a": 1.0, "b": 1.0}


def test_a_silo_that_sat_out_counts_with_its_latest_result() -> None:
    rows = [row(1, "a", 0.9, "personal"), row(2, "a", 0.4, "personal"), row(4, "a", 0.8, "personal")]
    rows += [row(3, "b", 0.5, "personal")]
    assert results(rows, [3], "personal", "test") == {"a": 0.4, "b": 0.5}
    assert results(rows, [4], "personal", "test") == {"a": 0.8, "b": 0.5}
    # round 2 knows nothing of b; rounds 2 to 4 of a are 0.4, 0.4, 0.8
    assert results(rows, [2], "personal", "test") == {"a": 0.4}
    assert results(rows, [2, 3, 4], "personal", "test") == {"a": pytest.approx(1.6 / 3), "b": 0.5}


def test_a_gap_is_the_loss_of_the_global_model_less_that_of_the_own() -> None:
    rows = [row(1, "a", 0, "global", "validation", loss=2.0), row(1, "a", 0, "personal", "validation", loss=0.5)]
    rows += [row(1, "b", 0, "global", "validation", loss=1.0), row(1, "b", 0, "personal", "validation", loss=1.25)]
    rows += [row(1, "c", 0, "global", "validation", loss=9.0)]
    assert gaps(rows, 1) == {"a": 1.5, "b": -0.25}


# ------------------------------------------------------------------------------------------------------------ fairness
VALUES = {"a-1": 0.5, "a-2": 0.7, "b-1": 0.9, "c-1": 0.3}
DOMAINS = {"a-1": "a", "a-2": "a", "b-1": "b", "c-1": "c"}


@pytest.mark.parametrize(("ddof", "silos", "domains"), [(0, 0.2 / 4, 0.18 / 3), (1, 0.2 / 3, 0.18 / 2)])
def test_fairness_over_silos_and_over_domains(ddof: int, silos: float, domains: float) -> None:
    # silos: mean 0.6, squares 0.01 + 0.01 + 0.09 + 0.09; domains 0.6, 0.9, 0.3: squares 0 + 0.09 + 0.09
    found = fairness(VALUES, DOMAINS, ddof)
    assert found["mean"] == pytest.approx(0.6)
    assert found["std_silos"] == pytest.approx(math.sqrt(silos))
    assert found["std_domains"] == pytest.approx(math.sqrt(domains))
    assert (found["worst"], found["best"]) == (0.3, 0.9)
    assert found["variance_silos"] == pytest.approx(silos)
    assert (found["worst_tenth"], found["best_tenth"]) == (0.3, 0.9)


def test_without_values_there_is_no_fairness() -> None:
    assert fairness({}, {}, 0) == {}


# ------------------------------------------------------------------------------------------------------------- summary
def run_rows() -> list[dict[str, Any]]:
    rows = []
    for number, gain in ((1, 0.0), (2, 0.1)):
        rows += [row(number, "a", 0.5 + gain), row(number, "b", 0.7 + gain), row(number, "u", 0.2 + gain, samples=90)]
        rows += [row(number, "a", 0.6 + gain, "personal"), row(number, "b", 0.8 + gain, "personal")]
        rows += [
            row(number, "a", 0, "global", "validation", loss=2.0),
            row(number, "b", 0, "global", "validation", loss=1.0),
        ]
        rows += [
            row(number, "a", 0, "personal", "validation", loss=1.0),
            row(number, "b", 0, "personal", "validation", loss=0.5),
        ]
    return rows


def test_a_summary_by_hand() -> None:
    found = summarise(run_rows(), about="personal", ddof=1)
    assert (found["rounds"], found["selection"], found["ddof"]) == ([2], "last", 1)
    assert found["generalisation"]["mean"] == pytest.approx(0.3)
    assert found["generalisation"]["per_domain"] == {"u": pytest.approx(0.3)}
    # 0.2 and 0.3 over the two evaluations
    assert found["generalisation"]["recent_std"] == pytest.approx(0.05)
    assert found["generalisation"]["recent_rounds"] == 2
    assert found["personalisation"]["mean"] == pytest.approx(0.8)
    assert found["personalisation"]["std_silos"] == pytest.approx(math.sqrt(0.02))
    assert found["fairness"]["global"]["mean"] == pytest.approx(0.7)
    # gaps 1 and 0.5: variance 0.0625
    assert found["fairness"]["gap_variance"] == pytest.approx(0.0625)
    last = {one["silo"]: one for one in found["silos"]}
    assert list(last) == ["a", "b", "u"]
    assert last["u"] == {
        "silo": "u",
        "domain": "u",
        "unseen": True,
        "samples": 90,
        "global": pytest.approx(0.3),
        "adapted": None,
        "personal": None,
        "gap": None,
        "validation": {},
        "chance": None,  # the rows do not say how many samples each class has
        "intervals": {"global": pytest.approx(wilson(0.3, 90))},
        "at_chance": [],
    }
    assert last["a"]["gap"] == 1.0


def test_what_a_choice_may_look_at_is_kept_by_silo() -> None:
    rows = [row(1, "a", 0.5), row(1, "a", 0.3, "global", "validation"), row(1, "a", 0.4, "personal", "validation")]
    assert summarise(rows)["silos"][0]["validation"] == {"global": 0.3, "personal": 0.4}


def test_the_unseen_silo_is_not_part_of_fairness() -> None:
    assert summarise(run_rows())["fairness"]["global"]["worst"] == pytest.approx(0.6)


def test_selected_rounds_are_averaged_before_silos_are_compared() -> None:
    found = summarise(run_rows(), selection="last5")
    assert found["rounds"] == [1, 2]
    assert found["generalisation"]["mean"] == pytest.approx(0.25)
    assert found["personalisation"]["mean"] == pytest.approx(0.75)


def test_what_was_not_measured_is_none() -> None:
    found = summarise([row(1, "a", 0.5)])
    assert found["generalisation"]["mean"] is None
    assert found["personalisation"]["mean"] is None
    assert found["fairness"]["gap_variance"] is None
    beside = {"at_home": 0.5, "worst_tenth": 0.5, "best_tenth": 0.5, "variance_silos": 0.0}
    assert headline(found) == {"generalisation": None, "personalisation": None, "fairness": 0.0, **beside}


def test_a_summary_of_nothing_is_empty() -> None:
    found = summarise([])
    assert (found["rounds"], found["silos"]) == ([], [])
    assert set(headline(found).values()) == {None}


@pytest.mark.parametrize(("about", "spread"), [("global", 0.1), ("personal", 0.2)])
def test_the_headline_is_about_the_model_of_the_method(about: str, spread: float) -> None:
    rows = [row(1, "a", 0.5), row(1, "b", 0.7), row(1, "a", 0.4, "personal"), row(1, "b", 0.8, "personal")]
    assert headline(summarise(rows, about))["fairness"] == pytest.approx(spread)


# ---------------------------------------------------------------------------------------------------------- comparison
def cell(method: str, held_out: str, seed: int, outside: float | None, own: float, spread: float) -> dict[str, Any]:
    summary = {
        "about": "global",
        "generalisation": {"mean": outside},
        "personalisation": {"mean": own},
        "fairness": {"global": {"std_silos": spread}, "personal": {}},
    }
    return {"method": method, "held_out": held_out, "seed": seed, "summary": summary}


def test_methods_are_compared_cell_by_cell() -> None:
    cells = [
        cell("fedavg", "u", 0, 0.1, 0.5, 0.2),
        cell("fedavg", "u", 1, 0.5, 0.5, 0.2),
        cell("fedavg", "v", 0, 0.9, 0.5, 0.2),
        cell("faa", "v", 0, 1.0, 0.6, 0.1),
        cell("faa", "u", 0, 0.3, 0.6, 0.1),
        cell("faa", "u", 1, 0.8, 0.6, 0.1),
    ]
    base, other = compare_cells(["fedavg", "faa"], cells)
    assert (base["method"], base["cells"]) == ("fedavg", 3)
    # each domain counts once: u has 0.1 and 0.5, v 0.9
    assert base["generalisation"]["mean"] == pytest.approx(0.6)
    assert base["generalisation"]["std"] is None  # v has one seed
    assert base["generalisation"]["std_domains"] == pytest.approx(0.6 / math.sqrt(2))
    assert base["generalisation"]["difference"] is None
    # u has 0.3 and 0.8, v 1.0
    assert other["generalisation"]["mean"] == pytest.approx(0.775)
    # pairs: 0.2 and 0.3 in u, 0.1 in v, which has one seed, so that there is no interval
    assert other["generalisation"]["difference"] == pytest.approx(0.175)
    assert other["generalisation"]["margin"] is None
    assert other["fairness"]["difference"] == pytest.approx(-0.1)
    assert other["fairness"]["margin"] is None  # they do not differ at all


def test_the_spread_over_seeds_has_none_of_that_between_domains() -> None:
    """Also where a run is missing: u and v are far apart, and each seed gives the same."""
    places = [("u", 0, 0.9), ("v", 0, 0.3), ("u", 1, 0.9), ("v", 1, 0.3), ("u", 2, 0.9)]
    (row,) = compare_cells(["fedavg"], [cell("fedavg", *place, 0.5, 0.2) for place in places])
    assert row["generalisation"]["std"] == pytest.approx(0.0, abs=1e-12)
    places = [("u", 0, 0.8), ("v", 0, 0.3), ("u", 1, 0.9), ("v", 1, 0.4)]
    (row,) = compare_cells(["fedavg"], [cell("fedavg", *place, 0.5, 0.2) for place in places])
    assert row["generalisation"]["std"] == pytest.approx(0.1 / math.sqrt(2))  # of 0.55 and 0.65


def test_only_cells_that_both_have_are_compared() -> None:
    cells = [
        cell("fedavg", "u", 0, 0.2, 0.5, 0.1),
        cell("fedavg", "v", 0, None, 0.5, 0.1),
        cell("faa", "u", 0, 0.5, 0.5, 0.1),
        cell("faa", "v", 0, 0.9, 0.5, 0.1),
        cell("faa", "w", 0, 0.9, 0.5, 0.1),
    ]
    base, other = compare_cells(["fedavg", "faa"], cells)
    assert base["generalisation"]["mean"] == pytest.approx(0.2)
    assert other["generalisation"]["difference"] == pytest.approx(0.3)
    assert other["generalisation"]["margin"] is None
    assert other["personalisation"]["difference"] == pytest.approx(0.0)


def test_a_value_of_zero_is_a_value() -> None:
    cells = [cell("fedavg", "u", 0, 0.0, 0.5, 0.0), cell("faa", "u", 0, 0.5, 0.5, 0.0)]
    base, other = compare_cells(["fedavg", "faa"], cells)
    assert base["generalisation"]["mean"] == 0.0
    assert other["generalisation"]["difference"] == 0.5


# --------------------------------------------------------------------------------------------------------------- tasks
SCORES = torch.tensor([[2.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [2.0, 0.0, 0.0]])
TARGETS = torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(("metric", "score"), [("accuracy", 0.75), ("balanced-accuracy", 0.75)])
def test_accuracies_by_hand(metric: str, score: float) -> None:
    task = Classify(3, metric)
    found = task.measure(task.tally(SCORES, TARGETS))
    wrong, right = math.log(math.exp(2) + 2), math.log(math.exp(2) + 2) - 2
    assert (found.metric, found.samples) == (score, 4)
    assert found.loss == pytest.approx((3 * right + wrong) / 4)


def test_the_balance_counts_classes_not_samples() -> None:
    task = Classify(3, "balanced-accuracy")
    # class 0: three of three right; class 1: none of one; class 2 has no sample
    found = task.measure(task.tally(SCORES[[0, 1, 3, 0]], torch.tensor([0, 0, 0, 1])))
    assert found.metric == 0.5


def test_tallies_of_batches_add_up() -> None:
    task = Classify(3)
    whole = task.tally(SCORES, TARGETS)
    torch.testing.assert_close(task.tally(SCORES[:1], TARGETS[:1]) + task.tally(SCORES[1:], TARGETS[1:]), whole)


def test_a_selection_without_its_data_is_called_what_it_is() -> None:
    rows = [
        {"round": n, "silo": "a", "domain": "a", "unseen": False, "model": "global", "split": "test"}
        | {"loss": 1.0, "metric": 0.1 * n, "samples": 10}
        for n in (1, 2)
    ]
    assert summarise(rows, selection="source-validation")["selection"] == "last"
    assert summarise(rows, selection="oracle")["selection"] == "last"


def test_an_unseen_silo_whose_first_evaluation_failed() -> None:
    base = {"model": "global", "split": "test", "loss": 1.0, "samples": 10}
    rows = [
        {**base, "round": 1, "silo": "a", "domain": "a", "unseen": False, "metric": 0.5},
        {**base, "round": 2, "silo": "a", "domain": "a", "unseen": False, "metric": 0.5},
        {**base, "round": 2, "silo": "u", "domain": "u", "unseen": True, "metric": 0.4},
    ]
    found = summarise(rows)["generalisation"]
    assert (found["mean"], found["recent_rounds"]) == (0.4, 1)
