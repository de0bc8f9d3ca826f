"""The search for settings: the same trials for everybody, judged by validation data of the training silos alone."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from joblib import Parallel, delayed
from rich.console import Console

import fairsilo
from fairsilo.analysis.metrics import Row
from fairsilo.cli.tuning import seconds_in
from fairsilo.config import TrainSettings, experiment
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Event
from fairsilo.errors import FairsiloError
from fairsilo.fields import Span, around, between, decades
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.text import method
from fairsilo.report.tuning_page import in_words, not_learned, page, tuning_table
from fairsilo.report.units import shown_in
from fairsilo.runs.comparison import method_in, read_comparison_file, row_of
from fairsilo.tuning import judging, studies
from fairsilo.tuning.alike import differences, looked
from fairsilo.tuning.judging import Judge
from fairsilo.tuning.space import Space, read_search
from test_cli import call, here, packed  # noqa: F401 - fixtures
from test_report_page import check_well_formed

optuna = pytest.importorskip("optuna", reason="needs the extra tune")
SETTINGS: dict[str, Any] = {
    "model": "small-cnn",
    "train": {"rounds": 2, "epochs": 1, "batch_size": 8},
    "engine": {"name": "sequential"},
}
BASE = experiment({"method": "fedavg"})


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """TPE, pruning and importance have something to go by after few trials."""
    monkeypatch.setattr(studies, "RANDOM_FIRST", 2)
    monkeypatch.setattr(studies, "COMPARED", 2)


def tuned(folder: Path, people: Federation, methods: Any = ("fedavg", "fedprox"), **options: Any) -> Any:
    return fairsilo.tune(list(methods), federation=people, out=folder, **{**SETTINGS, "trials": 3, **options})


def outcome(found: Any) -> dict[str, Any]:
    """What was found, without the seconds."""
    return {
        (domain, name): [
            {key: trial[key] for key in ("number", "row", "score", "rounds", "why")} for trial in one["trials"]
        ]
        for domain, rows in found.found.items()
        for name, one in rows.items()
    }


# ------------------------------------------------------------------------------------------------------- tried alike
Scores = dict[str, list[float | None]]
LR = (0.02, 0.05, 0.1, 0.2, 0.5)


def content_of(
    scores: dict[str, Scores], *, lr: tuple[float, ...] = LR, alike: int = 9, **space: Any
) -> dict[str, Any]:
    """What `tune` keeps, from the scores of each domain's methods, trial by trial."""
    found: dict[str, Any] = {}
    for domain, methods in scores.items():
        for name, some in methods.items():
            own = space.get(name, ("train.lr",))
            trials = [
                {
                    "number": number,
                    "alike": number < alike,
                    "values": dict.fromkeys(own, lr[number]),
                    "row": f"{name} @ lr={lr[number]}",
                    "score": score,
                    "rounds": 2,
                    "seconds": 1.0,
                    "why": "" if score is not None else "behind the median of the trials before it",
                }
                for number, score in enumerate(some)
            ]
            best = max((one for one in trials if one["score"] is not None), key=lambda one: one["score"])
            found.setdefault(domain, {})[name] = {
                "row": best["row"],
                "score": best["score"],
                "trial": best["number"],
                "usual": some[0],
                "higher": True,
                "space": {setting: {"span": "0.002 to 0.2", "log": True} for setting in own},
                "importance": {},
                "trials": trials,
            }
    methods = list(next(iter(scores.values())))
    counted = {domain: len(next(iter(one.values()))) for domain, one in scores.items()}
    settings = {"evaluate": {"metric": "accuracy"}, "train": {"rounds": 2}}
    return {"methods": methods, "found": found, "counted": counted, "settings": settings}


def told(content: dict[str, Any]) -> list[str]:
    with shown_in("accuracy"):
        return in_words(content)


def test_trials_of_one_number_are_pairs_and_the_interval_is_over_settings() -> None:
    scores: Scores = {"fedavg": [0.50, 0.60, 0.40, 0.30], "fedprox": [0.51, 0.63, 0.42, 0.32]}
    found = differences(["fedavg", "fedprox"], content_of({"scan": scores})["found"])["fedprox"]
    assert found.compared is not None
    assert found.compared.difference.mean == pytest.approx(0.02)  # of 0.01, 0.03, 0.02 and 0.02
    # s = 0.01 sqrt(2/3), over sqrt(4), by Student's 0.975 quantile with 3 degrees of freedom
    assert found.compared.difference.margin == pytest.approx(3.182446 * 0.01 * (2 / 3) ** 0.5 / 2, rel=1e-5)
    (sentence,) = told(content_of({"scan": scores}))
    assert sentence == (
        "fedprox scores 2.0 ± 1.3 points above fedavg over 4 settings tried alike (lr), one seed, 4 pairs of trials: "
        "sure over settings, not over seeds"
    )
    (sentence,) = told(content_of({"scan": {"fedavg": scores["fedprox"], "fedprox": scores["fedavg"]}}))
    assert sentence.startswith("fedprox scores 2.0 ± 1.3 points below fedavg")


def test_what_is_sure_is_corrected_for_all_methods() -> None:
    average: Scores = {"fedavg": [0.5, 0.5, 0.5, 0.5]}
    prox = {"fedprox": [0.51, 0.53, 0.52, 0.52]}  # p = 0.016
    others = {name: [0.6, 0.4, 0.5, 0.55] for name in ("moon", "fedbn", "fedheal")}
    alone = told(content_of({"scan": {**average, **prox}}))
    assert alone[0].endswith("sure over settings, not over seeds")
    content = content_of({"scan": {**average, **prox, **others}})
    found = differences(content["methods"], content["found"])
    assert found["fedprox"].compared is not None
    assert found["fedprox"].compared.difference.p == pytest.approx(4 * 0.016276, rel=1e-3)
    assert told(content)[0].endswith("may be chance")
    assert "corrected for all 4 comparisons (Holm)" in page(content)


def test_pairs_with_a_trial_that_was_given_up_are_left_out_and_still_corrected_for() -> None:
    scores: Scores = {"fedavg": [0.5, None, 0.5, 0.3], "fedprox": [0.51, 0.9, 0.53, None]}
    content = content_of({"scan": {**scores, "moon": [0.5, 0.5, None, None]}})
    sentence = told(content)[0]
    assert sentence.startswith("fedprox scores 2.0 ± 12.7 points above fedavg over 2 settings tried alike (lr)")
    assert sentence.endswith("one seed, 2 pairs of trials, 2 left out: may be chance")
    found = differences(content["methods"], content["found"])
    assert looked(found) == 2
    assert found["fedprox"].compared is not None
    p = found["fedprox"].compared.difference.p
    assert p == pytest.approx(2 * 0.295167, rel=1e-5)  # also for the comparison that has a single pair left
    assert "the pair is left out" in page(content)
    none = content_of({"scan": {"fedavg": [0.5, None], "fedprox": [None, 0.5]}})
    assert told(none) == ["fedprox and fedavg have no result at the same settings (2 pairs of trials left out)"]
    assert "At the same settings" not in page(none)
    whole = content_of({"scan": {"fedavg": [0.5, 0.5], "fedprox": [0.5, 0.6]}})
    assert "left out" not in page(whole)


def test_a_domain_without_a_pair_is_told_and_does_not_make_the_others_sure() -> None:
    content = content_of({"scan": {"fedavg": [0.5, 0.5], "fedprox": [0.6, 0.4]}})
    other = content_of({"sketch": {"fedavg": [0.5, None], "fedprox": [None, 0.5]}}, lr=(0.1, 0.1))
    content["found"] |= other["found"]
    found = differences(content["methods"], content["found"])["fedprox"]
    assert found.compared is not None
    assert found.compared.difference.p == pytest.approx(1.0)
    assert "2 pairs of trials in 1 of 2 held-out domains, 2 left out" in told(content)[0]


def test_a_setting_is_one_look_however_many_domains_are_held_out() -> None:
    scan: Scores = {"fedavg": [0.5, 0.5, 0.5], "fedprox": [0.51, 0.52, 0.53]}
    sketch: Scores = {"fedavg": [0.2, 0.2, 0.2], "fedprox": [0.23, 0.26, 0.29]}
    one = differences(["fedavg", "fedprox"], content_of({"scan": scan, "sketch": sketch})["found"])["fedprox"].compared
    averaged: Scores = {"fedavg": [0.0, 0.0, 0.0], "fedprox": [0.02, 0.04, 0.06]}
    other = differences(["fedavg", "fedprox"], content_of({"scan": averaged})["found"])["fedprox"].compared
    assert one is not None
    assert other is not None
    assert one.difference.mean == pytest.approx(0.04)
    assert one.difference.margin == pytest.approx(other.difference.margin)
    assert (one.seeds, one.pairs) == (3, 6)
    (sentence,) = told(content_of({"scan": scan, "sketch": {**sketch, "fedprox": [0.23, 0.26, None]}}))
    assert (
        "over 2 to 3 settings tried alike (lr), one seed, 5 pairs of trials in 2 held-out domains, 1 left" in sentence
    )


def test_the_same_values_again_are_no_further_look() -> None:
    scores: Scores = {"fedavg": [0.5, 0.5, 0.4], "fedprox": [0.52, 0.54, 0.45]}
    found = differences(["fedavg", "fedprox"], content_of({"scan": scores}, lr=(0.1, 0.1, 0.2))["found"])["fedprox"]
    assert found.compared is not None
    assert found.compared.difference.mean == pytest.approx(0.04)  # of 0.03 and 0.05
    assert (found.settings, found.pairs) == ((2, 2), 3)


def test_what_was_not_tried_alike_is_no_pair() -> None:
    scores: Scores = {"fedavg": [0.5, 0.5, 0.5], "fedprox": [0.6, 0.6, 0.9]}
    (sentence,) = told(content_of({"scan": scores}, alike=2))
    assert "10.0 points above fedavg over 2 settings" in sentence
    (sentence,) = told(content_of({"scan": scores}, alike=1))
    assert sentence.endswith("10.0 points above fedavg over 1 setting tried alike (lr), one seed, 1 pair of trials: "
                             "may be chance")  # fmt: skip
    (sentence,) = told(content_of({"scan": scores}, fedprox=("fedprox.mu",)))
    assert sentence == "fedprox and fedavg search no setting in common, so that nothing was tried alike"
    content = content_of({"scan": scores})
    content["found"]["scan"]["fedprox"]["trials"][2]["values"]["train.lr"] = 0.3  # as a search of an earlier version
    assert "10.0 points above fedavg over 2 settings" in told(content)[0]


@pytest.mark.parametrize("sign", [1, -1])
def test_what_rounds_to_nothing_is_alike(sign: int) -> None:
    less = [0.5 + sign * one for one in (0.0003, 0.0004, 0.0005)]
    content = content_of({"scan": {"fedavg": [0.5, 0.5, 0.5], "fedprox": [*less]}})
    assert told(content) == [
        "fedprox and fedavg score alike (0.0 ± 0.0 points apart) over 3 settings tried alike (lr), one seed, 3 pairs "
        "of trials"
    ]
    drawn = page(content)
    assert '<td class="number">0.0</td>' in drawn  # the gain
    assert "+0.0</td>" not in drawn
    apart = content_of({"scan": {"fedavg": [0.5, 0.5, 0.5], "fedprox": [0.45, 0.5, 0.55]}})
    (sentence,) = told(apart)  # with such a margin they need not be alike
    assert sentence.startswith("no difference found between fedprox and fedavg (0.0 ± 12.4 points) over 3 settings")


def test_the_page_opens_with_the_differences_and_claims_nothing_of_what_was_chosen() -> None:
    scores: Scores = {"fedavg": [0.50, 0.60, 0.40, 0.30], "fedprox": [0.51, 0.63, 0.42, 0.32]}
    drawn = page(content_of({"scan": scores}))
    check_well_formed(drawn)
    assert drawn.index("At the same settings") < drawn.index("<table")
    assert "+2.0 ± 1.3" in drawn
    assert "What was chosen is the best of several trials with one seed: too high for that reason" in drawn
    slices = drawn[drawn.index("fedavg: train.lr") :]
    assert '<span title="trial">trial</span>' in slices
    assert '<span title="chosen">chosen</span>' in slices
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(tuning_table(content_of({"scan": scores})))
    said = console.export_text()
    assert "fedprox scores 2.0 ± 1.3 points above fedavg" in said
    assert "what was chosen is the best of several trials with one seed" in said
    single = content_of({"scan": {"fedavg": [0.5, 0.6]}})
    assert told(single) == []
    assert "Tried at the same settings" not in page(single)


# -------------------------------------------------------------------------------------------------------------- chance
def guessing(content: dict[str, Any], *methods: str, domain: str = "scan", but: int | None = None) -> dict[str, Any]:
    """The same, with every trial of some methods at chance, or all but one; all others are not."""
    for name, one in content["found"][domain].items():
        for trial in one["trials"]:
            trial["at_chance"] = None if trial["score"] is None else name in methods and trial["number"] != but
        one["at_chance"] = one["trials"][one["trial"]]["at_chance"]
    return content


def printed(content: dict[str, Any]) -> str:
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(tuning_table(content))
    return console.export_text()


def test_where_no_trial_learned_that_is_said_and_methods_are_not_called_alike() -> None:
    scores: Scores = {"fedavg": [0.10, 0.10, 0.11], "fedprox": [0.10, 0.10, 0.11]}
    found = guessing(content_of({"scan": scores}), "fedavg", "fedprox")
    (said,), table, drawn = not_learned(found), printed(found), page(found)
    check_well_formed(drawn)
    lead = (
        "Nothing was learned: no trial is better than guessing (≈ chance), so that what was chosen there says nothing. "
        "More rounds (rounds=...) or higher learning rates (--search lr=log:LOW..HIGH) may help"
    )
    assert said.startswith(lead)
    assert drawn.index(lead) < drawn.index("<table")
    assert told(found) == [
        "fedprox and fedavg: no trial of either is better than guessing (≈ chance), 3 pairs of trials"
    ]
    assert "score alike" not in table + drawn
    assert "At the same settings" not in drawn  # a picture would draw a difference between guesses
    assert '<td class="number">10.0 % ≈ chance</td><td class="number">11.0 % ≈ chance</td>' in drawn
    usual, searched = (list(column.cells) for column in tuning_table(found).columns[2:4])
    assert (usual, searched) == (["10.0 %\n≈ chance"] * 2, ["11.0 %\n≈ chance"] * 2)
    assert drawn.count("≈ chance</td>") == 2 * 2 + 2 * 3  # what was chosen, and every trial


def test_only_what_did_not_learn_is_marked() -> None:
    scores: Scores = {"fedavg": [0.10, 0.10, 0.11], "fedprox": [0.30, 0.10, 0.40]}
    plain = content_of({"scan": scores})
    assert "≈" not in printed(plain)
    assert not_learned(plain) == []
    found = guessing(content_of({"scan": scores}), "fedavg")
    assert not_learned(found)[0].startswith("Nothing was learned by fedavg: no such trial is better than guessing")
    searched = list(tuning_table(found).columns[3].cells)
    assert searched == ["11.0 %\n≈ chance", "40.0 %"]
    both = guessing(content_of({"scan": scores}), "fedavg", "fedprox", but=2)
    assert not_learned(both) == []
    usual = list(tuning_table(both).columns[2].cells)
    assert usual == ["10.0 %\n≈ chance", "30.0 %\n≈ chance"]  # as it is
    assert told(both)[0].endswith("3 pairs of trials, both ≈ chance in 2: may be chance")
    two = content_of({"scan": scores, "sketch": scores})
    guessing(guessing(two, "fedavg", domain="sketch"), domain="scan")
    assert not_learned(two)[0].startswith("Nothing was learned by fedavg (sketch held out): no such trial")


def test_a_score_is_judged_by_the_silos_own_validation_samples() -> None:
    def rows(share: float, **more: Any) -> list[Row]:
        counted = {"domain": "one", "samples": 40, "per_class": {"samples": [20, 20]}, **more}
        return [{**row(silo, "validation", share), **counted} for silo in ("a", "b", "c", "d")]

    judge = Judge(metric="accuracy")
    assert judge.at_chance(rows(0.5)) is True
    assert judge.at_chance(rows(0.9)) is False
    # of 160 samples the interval begins at 0.523, of the 40 of a single silo it would at 0.446
    assert judge.at_chance(rows(0.6)) is False
    assert Judge(metric="accuracy", by="worst").at_chance(rows(0.6)) is True
    assert judge.at_chance(rows(0.5, per_class=None)) is None
    assert Judge(metric="dice").at_chance(rows(0.5)) is None
    assert judge.at_chance([]) is None


def test_trials_that_learn_nothing_are_marked_wherever_they_are_told(people: Federation, tmp_path: Path) -> None:
    events: list[Event] = []
    found = tuned(tmp_path, people, ["fedavg"], trials=1, search=["lr=1e-9..2e-9"], listener=events.append)
    (methods,) = json.loads((tmp_path / "tuning.json").read_text())["found"].values()
    one = methods["fedavg"]
    assert (one["at_chance"], [trial["at_chance"] for trial in one["trials"]]) == (True, [True])
    assert found.found.keys() == {people.unseen[0].domain}
    (note,) = [event.text for event in events if event.kind == "note" and "trial" in event.text]
    assert note.endswith(" % ≈ chance")
    assert "Nothing was learned" in (tmp_path / "tuning.html").read_text(encoding="utf-8")


def test_the_command_says_first_that_nothing_was_learned(
    here: Path,  # noqa: F811
    packed: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    fast = ["rounds=1", "epochs=1", "lr=1e-9", "engine.name=sequential", "--search", "lr=-", "--trials", "1"]
    code, out, err = call(capsys, "tune", "fedavg", f"data.packed={packed}", *fast, "-o", "t")
    assert code == 0, err
    lines = [line for line in out.splitlines() if "trial 1 of 1" not in line]
    assert lines[0].startswith("Nothing was learned: no trial is better than guessing (≈ chance)")
    assert "fairsilo compare" not in out  # of guesses


# -------------------------------------------------------------------------------------------------------------- ranges
def test_a_range_is_drawn_from_evenly_or_by_decades() -> None:
    assert [between(2, 4).draw(share) for share in (0, 0.5, 1)] == [2, 3, 4]
    assert [decades(0.01, 1).draw(share) for share in (0, 0.5, 1)] == pytest.approx([0.01, 0.1, 1])
    assert [Span(1, 3, whole=True).draw(share) for share in (0, 0.34, 0.67, 0.999, 1)] == [1, 2, 3, 3, 3]
    assert [Span(among=("a", "b")).draw(share) for share in (0, 0.49, 0.5, 1)] == ["a", "a", "b", "b"]
    whole = [Span(1, 100, log=True, whole=True).draw(share) for share in (0, 0.5, 1)]
    assert whole == [1, 10, 100]


def test_a_range_around_a_default_moves_with_it_and_what_is_off_stays_off() -> None:
    span = around(10).at(0.2)
    assert span is not None
    assert (span.low, span.high, span.log) == (pytest.approx(0.02), pytest.approx(2.0), True)
    assert around(10).at(0) is None
    assert between(0, 1).at(0) == between(0, 1)


@pytest.mark.parametrize("name", CATALOGUE)
def test_both_ends_of_every_declared_range_make_a_method(name: str) -> None:
    space = Space.of(name, BASE)
    assert {one.name for one in space.dimensions} >= {"train.lr", "train.weight_decay"}
    assert set(space.usual) == {one.name for one in space.dimensions}, "a default lies outside of its range"
    for share in (0.0, 1.0):
        row = row_of(BASE, space.row({one.name: one.span.draw(share) for one in space.dimensions}))
        assert len(method(row.method).parts) == len(method(name).parts)
    usual = row_of(BASE, space.row(space.usual))
    assert method(usual.method).parts == method(name).parts
    assert usual.train == BASE.train


def test_what_a_text_gives_is_not_searched() -> None:
    assert "fedprox.mu" in {one.name for one in Space.of("fedprox", BASE).dimensions}
    names = {one.name for one in Space.of("fedprox(mu=0.3) | fedheal @ lr=0.5", BASE).dimensions}
    assert names == {"train.weight_decay", "fedheal.tau", "fedheal.beta"}
    text = Space.of("fedprox(mu=0.3) | fedheal @ lr=0.5", BASE).row({"fedheal.tau": 0.25, "train.weight_decay": 1e-3})
    assert text == "fedprox(mu=0.3) | fedheal(tau=0.25) @ lr=0.5 weight_decay=0.001"


def test_settings_that_do_not_go_together_are_left_out() -> None:
    names = {one.name for one in Space.of("fedheal(solver=exact)", BASE).dimensions}
    assert "fedheal.tau" in names
    assert "fedheal.beta" not in names  # the exact solver has no use for it and refuses it
    assert {one.name for one in Space.of("fedheal.without(distance-weights)", BASE).dimensions} == {
        "train.lr",
        "train.weight_decay",
        "fedheal.tau",
    }


def test_ranges_can_be_asked_for() -> None:
    asked = ["lr=log:0.001..0.1", "batch_size=16,32", "fedprox.mu=0..1", "weight_decay=-", "epochs=1..4"]
    found = read_search(asked, ["fedavg", "fedprox"])
    assert found == {
        "train.lr": decades(0.001, 0.1),
        "train.batch_size": Span(among=(16, 32)),
        "fedprox.mu": Span(0.0, 1.0, whole=True),
        "train.weight_decay": None,
        "train.epochs": Span(1, 4, whole=True),
    }
    names = [one.name for one in Space.of("fedprox", BASE, found).dimensions]
    assert names == ["train.lr", "train.batch_size", "train.epochs", "fedprox.mu"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lrr=0..1", "did you mean 'lr'"),
        ("fedprox.my=0..1", r"did you mean 'fedprox\.mu'"),
        ("held_out=a,b", "the same for all methods"),
        ("lr=1", "write LOW..HIGH"),
        ("lr=2..1", "below the second"),
        ("lr=log:0..1", "above 0"),
        ("lr=a..b", "must be numbers"),
    ],
)
def test_a_wrong_range_gets_one_sentence(text: str, said: str) -> None:
    with pytest.raises(FairsiloError, match=said):
        read_search([text], ["fedprox"])


def test_the_settings_of_training_say_what_is_searched() -> None:
    searched = [one.name for one in dataclasses.fields(TrainSettings) if one.metadata.get("search")]
    assert searched == ["lr", "weight_decay"]


# ---------------------------------------------------------------------------------------------------------- judgement
def row(silo: str, split: str, metric: float, *, number: int = 1, model: str = "global", unseen: bool = False) -> Row:
    told = {"round": number, "silo": silo, "domain": silo, "split": split}
    return {**told, "metric": metric, "model": model, "unseen": unseen}


def test_only_validation_of_training_silos_counts() -> None:
    rows = [row("a", "validation", 0.5), row("b", "validation", 0.7)]
    others = [row("a", "test", 1.0), row("u", "validation", 1.0, unseen=True), row("u", "test", 1.0, unseen=True)]
    personal = [row("a", "validation", 0.9, model="personal")]
    assert Judge()([*rows, *others, *personal]) == pytest.approx(0.6)
    assert Judge(by="worst")(rows) == 0.5
    assert Judge(by="worst", higher=False)(rows) == 0.7
    assert Judge(about="personal")([*rows, *personal]) == 0.9
    assert Judge()(others) is None
    assert Judge()([row("a", "validation", float("nan"))]) is None


def test_the_round_is_selected_by_the_runs_own_rule() -> None:
    rows = [row("a", "validation", value, number=number) for number, value in enumerate((0.4, 0.9, 0.6), 1)]
    assert Judge()(rows) == 0.6
    assert Judge(selection="source-validation")(rows) == 0.9
    with pytest.raises(FairsiloError, match="looks at test data"):
        Judge(selection="oracle")
    with pytest.raises(FairsiloError, match="it must be one of mean, worst"):
        Judge(by="best")


# -------------------------------------------------------------------------------------------------------------- search
@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(("sampler", "alike"), [("tpe", [True, True, False, False]), ("random", [True] * 4)])
def test_trials_called_alike_are_the_same_draws_for_every_method_and_domain(
    sampler: str, alike: list[bool], tmp_path: Path
) -> None:
    def ended(name: str, domain: str) -> list[dict[str, Any]]:
        place = studies.Place(tmp_path, f"{name} [{domain}]", higher=True, watched=None)
        study = studies.Study(place, Space.of(name, BASE, {"train.lr": decades(0.1, 1)}), sampler, 0)
        for number in range(4):
            study.ask()
            study.tell(number, 0.5 + len(name) * number, {})
        return study.ended()

    found = [ended(name, domain) for name in ("fedavg", "fedprox") for domain in ("scan", "sketch")]
    assert all([one["alike"] for one in trials] == alike for trials in found)
    # the first one too, though the usual value is out of the range
    (drawn,) = {tuple(one["values"]["train.lr"] for one in trials if one["alike"]) for trials in found}
    assert len(set(drawn)) == len(drawn) == sum(alike)


def test_every_method_has_the_same_trials_and_starts_as_it_is(people: Federation, tmp_path: Path) -> None:
    found = tuned(tmp_path, people)
    domain = people.unseen[0].domain
    assert found.counted == {domain: 3}
    average, prox = found.found[domain]["fedavg"]["trials"], found.found[domain]["fedprox"]["trials"]
    assert [trial["number"] for trial in average] == [trial["number"] for trial in prox] == [0, 1, 2]
    assert average[0]["values"] == {"train.lr": 0.02, "train.weight_decay": 1e-4}
    for one, other in zip(average, prox, strict=True):  # what both have is tried alike
        assert one["values"]["train.lr"] == other["values"]["train.lr"]
    assert len({trial["values"]["train.lr"] for trial in average}) == 3
    for name, trials in (("fedavg", average), ("fedprox", prox)):
        one = found.found[domain][name]
        assert one["score"] == max(trial["score"] for trial in trials)
        assert one["row"] == trials[one["trial"]]["row"]
        assert one["usual"] == trials[0]["score"]
        assert method_in(one["row"]).startswith(name)


def test_the_score_is_the_silos_validation_result(people: Federation, tmp_path: Path) -> None:
    events: list[Event] = []
    found = tuned(tmp_path / "t", people, ["fedavg"], trials=1, listener=events.append)
    plain = fairsilo.run(method="fedavg", federation=people, out=tmp_path / "r", **SETTINGS)
    rows = [json.loads(line) for line in (plain.folder / "metrics.jsonl").read_text().splitlines()]
    values = [
        one["metric"]
        for one in rows
        if (one["round"], one["split"], one["model"], one["unseen"]) == (2, "validation", "global", False)
    ]
    assert len(values) == len(people.silos)
    (domain,) = found.found
    score = found.found[domain]["fedavg"]["score"]
    assert score == pytest.approx(sum(values) / len(values))
    said = f"fedavg, {domain} held out, trial 1 of 1: accuracy {100 * score:.1f} %"
    assert said in [event.text for event in events if event.kind == "note"]


def shuffled(split: Split) -> Split:
    return Split(split.take(range(len(split)))[0], split.targets.flip(0))


def other_labels(one: SiloData, *names: str) -> SiloData:
    return dataclasses.replace(one, **{name: shuffled(getattr(one, name)) for name in names})


@pytest.mark.slow
@pytest.mark.usefixtures("early")
def test_the_held_out_domain_and_test_data_cannot_influence_the_choice(people: Federation, tmp_path: Path) -> None:
    plain = tuned(tmp_path / "plain", people, trials=4)
    wrong = dataclasses.replace(
        people,
        silos=tuple(other_labels(silo, "test") for silo in people.silos),
        unseen=tuple(other_labels(silo, "train", "validation", "test") for silo in people.unseen),
    )
    assert outcome(tuned(tmp_path / "wrong", wrong, trials=4)) == outcome(plain)
    judged = dataclasses.replace(people, silos=tuple(other_labels(silo, "validation") for silo in people.silos))
    assert outcome(tuned(tmp_path / "judged", judged, trials=4)) != outcome(plain)


def test_the_held_out_domain_takes_no_part_in_trials(people: Federation, tmp_path: Path) -> None:
    tuned(tmp_path, people, ["fedavg"], trials=2)
    rows = [json.loads(line) for file in tmp_path.rglob("metrics.jsonl") for line in file.read_text().splitlines()]
    assert rows
    assert not any(one["unseen"] for one in rows)
    assert not [*tmp_path.rglob("checkpoint"), *tmp_path.rglob("models")]


@pytest.mark.slow
def test_a_search_that_is_interrupted_ends_as_if_it_had_not_been(people: Federation, tmp_path: Path) -> None:
    whole = tuned(tmp_path / "whole", people, trials=4)
    seen = []

    def stop(event: Event) -> None:
        seen.append(event)
        if sum(one.kind == "opened" for one in seen) == 8:  # in the middle of a trial
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "cut", people, trials=4, listener=stop)
    assert not (tmp_path / "cut" / "tuning.json").exists()
    assert outcome(tuned(tmp_path / "cut", people, trials=4)) == outcome(whole)


@pytest.mark.slow
def test_more_trials_go_on_and_other_settings_are_refused(people: Federation, tmp_path: Path) -> None:
    few = tuned(tmp_path, people, trials=2)
    more = tuned(tmp_path, people, trials=3)
    key = next(iter(outcome(few)))
    assert outcome(more)[key][:2] == outcome(few)[key]
    assert len(outcome(more)[key]) == 3
    with pytest.raises(FairsiloError, match="other settings"):
        tuned(tmp_path, people, train={**SETTINGS["train"], "rounds": 3})


@pytest.mark.slow
def test_side_by_side_every_method_has_its_trials(
    people: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblib.executor._executor_args", None)  # as in a process that had nothing side by side yet
    one, two = tuned(tmp_path / "one", people), tuned(tmp_path / "two", people, jobs=2)
    assert outcome(two) == outcome(one)  # the first trials do not depend on one another
    assert Parallel(n_jobs=2)([delayed(abs)(-1)]) == [1]  # a comparison's processes, after those of a search


@pytest.mark.slow
def test_a_budget_ends_the_search_with_equally_many_trials(people: Federation, tmp_path: Path) -> None:
    ended = []

    def slow(event: Event) -> None:
        if event.kind == "note" and "trial" in event.text:
            ended.append(event.text)
            if len(ended) == 3:
                time.sleep(3)

    found = tuned(tmp_path, people, trials=50, budget=3.0, listener=slow)
    (domain,) = found.counted
    counts = {len(one["trials"]) for one in found.found[domain].values()}
    assert counts == {found.counted[domain]}
    assert 1 <= found.counted[domain] < 50
    with pytest.raises(FairsiloError, match="the budget ended before every method had one trial"):
        tuned(tmp_path / "none", people, budget=0.0)


@pytest.mark.usefixtures("early")
@pytest.mark.slow
def test_runs_that_fall_behind_are_given_up(people: Federation, tmp_path: Path) -> None:
    train = {"rounds": 4, "epochs": 1, "batch_size": 8}
    asked = {"search": ["lr=log:1e-6..0.1"], "trials": 6, "train": train, "sampler": "random"}
    found = tuned(tmp_path / "pruned", people, ["fedavg"], **asked)
    (domain,) = found.found
    trials = found.found[domain]["fedavg"]["trials"]
    gone = [trial for trial in trials if "behind" in trial["why"]]
    assert gone
    assert all(2 <= trial["rounds"] < 4 and trial["score"] is None for trial in gone)
    assert all(trial["why"] == "" for trial in trials[:2])
    whole = tuned(tmp_path / "whole", people, ["fedavg"], prune=False, **asked)
    assert all(trial["rounds"] == 4 for trial in whole.found[domain]["fedavg"]["trials"])


def test_a_trial_that_diverges_costs_that_trial_alone(people: Federation, tmp_path: Path) -> None:
    found = tuned(tmp_path, people, ["fedavg"], search=["lr=0.01,1e30"], trials=6)
    (domain,) = found.found
    trials = found.found[domain]["fedavg"]["trials"]
    assert any("finite" in trial["why"] for trial in trials)
    assert found.found[domain]["fedavg"]["row"].startswith("fedavg @ lr=0.0")
    assert found.found[domain]["fedavg"]["usual"] is None  # the usual learning rate is not among those asked for


def test_a_trial_that_ends_without_a_finite_score_says_so(
    people: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a mean squared error past all numbers: the run itself came to its end."""
    events: list[Event] = []
    monkeypatch.setattr(judging, "mean", lambda _: math.inf)
    with pytest.raises(FairsiloError, match=r"the first said: it has no finite validation result$"):
        tuned(tmp_path, people, ["fedavg"], trials=1, listener=events.append)
    (note,) = [event.text for event in events if event.kind == "note" and "trial" in event.text]
    assert note.endswith("trial 1 of 1: given up in round 2: it has no finite validation result")


def test_nothing_to_judge_by_is_refused(people: Federation, tmp_path: Path) -> None:
    bare = dataclasses.replace(
        people,
        silos=tuple(dataclasses.replace(one, validation=Split(torch.empty(0, 1, 8, 8), torch.empty(0).long()))
                    for one in people.silos),
    )  # fmt: skip
    with pytest.raises(FairsiloError, match="no silo has validation samples"):
        tuned(tmp_path / "t", bare)
    for wrong in ({"by": "best"}, {"evaluate": {"selection": "oracle"}}, {"methods": ["fedavg", "fedproxx"]}):
        with pytest.raises(FairsiloError):
            tuned(tmp_path / "t", people, **wrong)
    assert not (tmp_path / "t").exists()  # the right command is not kept from running there


@pytest.mark.slow
# ---------------------------------------------------------------------------------------------------------- afterwards
def test_what_was_found_goes_into_a_comparison(people: Federation, tmp_path: Path) -> None:
    found = tuned(tmp_path / "t", people)
    compared = fairsilo.compare(
        ["fedavg", "fedprox"], federation=people, tuned=found.tuned, out=tmp_path / "c", **SETTINGS
    )
    for cell in compared.cells:
        told = (tmp_path / "c" / cell["folder"] / "config.yaml").read_text()
        rate = next(line for line in told.splitlines() if line.strip().startswith("lr:")).split()[1]
        assert f" lr={rate} " in found.tuned[cell["held_out"]][cell["method"]] + " "


@pytest.mark.usefixtures("early")
@pytest.mark.slow
def test_the_page_says_what_was_chosen_and_what_mattered(people: Federation, tmp_path: Path) -> None:
    found = tuned(tmp_path, people, trials=4)
    page = (tmp_path / "tuning.html").read_text(encoding="utf-8")
    check_well_formed(page)
    for rows in found.tuned.values():
        for text in rows.values():
            assert text.replace("'", "&#x27;") in page
    assert "What mattered" in page
    assert "the held-out domain took no part" in page
    assert "Importance" in page
    average, prox = (found.found[people.unseen[0].domain][name]["trials"] for name in ("fedavg", "fedprox"))
    assert [one["alike"] for one in average] == [one["alike"] for one in prox] == [True, True, False, False]
    pairs = [
        (one["score"], other["score"])
        for one, other in zip(average[:2], prox[:2], strict=True)
        if one["score"] is not None and other["score"] is not None
    ]
    gain = 100 * statistics.fmean(other - one for one, other in pairs)
    how = f"fedprox scores {abs(gain):.1f}" if round(gain, 1) else "no difference found between fedprox and fedavg (0.0"
    assert how in page or "fedprox and fedavg score alike (0.0 ± 0.0" in page
    assert f"over {len(pairs)} settings tried alike (lr, weight_decay), one seed, {len(pairs)} pairs of trials" in page
    assert page.index('id="alike"') < page.index("<table")


def test_a_time_is_read() -> None:
    assert [seconds_in(text) for text in ("2h", "90m", "1h30m", "45s", "0.5h")] == [7200, 5400, 5400, 45, 1800]
    for wrong in ("2", "h", "2x", "1h30"):
        with pytest.raises(FairsiloError, match="write a time"):
            seconds_in(wrong)


@pytest.mark.slow
def test_the_command_line_searches_and_its_file_is_compared(tmp_path: Path, capsys: Any) -> None:
    out, fast = tmp_path / "t", ["rounds=1", "epochs=1", "engine.name=sequential"]
    asked = ["tune", "fedavg", "fedprox", *fast, "--trials", "2", "--held-out", "scan,sketch", "-o", str(out)]
    for more, said in ((["-c", "file.yaml"], "--config and --table both say"), ([], "no table is called 'some/table'")):
        code, _, err = call(capsys, "tune", "--table", "some/table", *more)
        assert code == 2
        assert said in err
    code, text, err = call(capsys, *asked)
    assert (code, err) == (0, "")
    assert f"fairsilo compare -c {out / 'tuned.yaml'}" in text.replace("\n", "")
    file = read_comparison_file(out / "tuned.yaml")
    assert (file.held_out, file.seeds, file.experiment.train.rounds) == (("scan", "sketch"), (1, 2, 3), 1)
    assert set(file.tuned) == {"scan", "sketch"}
    code, text, err = call(capsys, "compare", "-c", str(out / "tuned.yaml"), "--seeds", "5", "-o", str(tmp_path / "c"))
    assert (code, err) == (0, "")
    assert "fedprox" in text
    code, text, _ = call(capsys, *asked, "--json")
    assert json.loads(text)["counted"] == {"scan": 2, "sketch": 2}


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "t"
    command = [sys.executable, "-m", "fairsilo.cli", "tune", "fedavg", "rounds=2", "epochs=1", "--trials", "3"]
    command += ["--jobs", "2", "-o", str(out)]
    begun = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(out.rglob("rounds.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    assert list(out.rglob("rounds.jsonl"))
    again = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert json.loads((out / "tuning.json").read_text())["counted"] == {"street": 3}
