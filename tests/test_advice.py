"""`fairsilo advise`: federations with a known right answer, what may influence it, and what is measured beside it."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fairsilo
from fairsilo import FairsiloError, Federation, Output, SiloData, Split
from fairsilo.advice.blind import SHARE, blind
from fairsilo.advice.pilots import TRIED, Options, fitting
from fairsilo.advice.verdict import Verdict, verdict
from fairsilo.analysis.shift import feature_distances, label_distances, proxy_a_distance, size_ratio
from fairsilo.report.advice_page import advice_table, in_short, page, sentences, shift_sentences
from fairsilo.report.texts import duration, size
from fairsilo.runs.folder import RunFolder
from test_cli import call, here, packed  # noqa: F401 - fixtures

FAST: dict[str, Any] = {"epochs": 2, "batch_size": 16, "lr": 0.05, "engine": {"name": "sequential"}}
PATTERNS = torch.randn(3, 1, 6, 6, generator=torch.Generator().manual_seed(99))


class Net(nn.Module):
    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(36 * channels, 16), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, images: Tensor) -> Output:
        features = self.body(images)
        return Output(self.head(features), features)


def silo(name: str, count: int, seed: int, noise: float = 1.5, push: float = 0.0, turn: int = 0) -> SiloData:
    """Patterns in noise. `push` moves all images towards the first class, `turn` renames the classes."""

    def split(size: int, own: int) -> Split:
        stream = torch.Generator().manual_seed(100 * seed + own)
        targets = torch.arange(size) % 3
        images = PATTERNS[targets] + noise * torch.randn(size, 1, 6, 6, generator=stream)
        return Split(images + push * (PATTERNS[0] - PATTERNS.mean(0)), (targets + turn) % 3)

    return SiloData(name, name, split(count, 0), split(30, 1), split(60, 2))


def federation(*silos: SiloData) -> Federation:
    return Federation("known", tuple("012"), silos)


def advised(people: Federation, out: Path, methods: Sequence[str], **options: Any) -> fairsilo.api.Advice:  # type: ignore[name-defined]
    return fairsilo.advise(
        methods, federation=people, model=Net, out=out, **{"pilot_rounds": 4, "seeds": 5, **FAST, **options}
    )


# ------------------------------------------------------------------------------------------- a known right answer
@pytest.mark.slow
def test_where_silos_are_alike_fedavg_is_enough(tmp_path: Path) -> None:
    people = federation(*(silo(name, 90, seed, noise=3.0) for seed, name in enumerate("abc")))
    found = advised(people, tmp_path, ["local", "fedavg @ weighting=uniform", "ditto"])
    assert (found.recommended, found.verdict.wins) == ("fedavg", ())
    assert not found.verdict.personal
    said = sentences(found.as_dict())
    assert said[0].startswith("Take fedavg: no difference found that speaks for another method")
    assert max(found.shift.labels.values()) < 0.05
    assert found.shift.sizes == 1.0


@pytest.mark.slow
def test_where_silos_are_alike_none_of_the_methods_that_are_tried_by_default_is_put_before_fedavg(
    tmp_path: Path,
) -> None:
    """Two domains, which makes one division: with more it takes minutes, and the test above holds domains out."""
    people = federation(silo("a", 90, 0, noise=3.0), silo("b", 90, 1, noise=3.0))
    found = advised(people, tmp_path, [], pilot_rounds=3)
    assert found.methods == TRIED
    assert found.left_out == {}
    assert (found.domains, len(found.seeds)) == (("-",), 5)
    assert found.verdict.counts == ("generalisation", "personalisation", "fairness")
    assert (found.recommended, found.verdict.wins, found.verdict.personal) == ("fedavg", (), False)
    assert sentences(found.as_dict())[0].startswith("Take fedavg: no ")


@pytest.mark.slow
def test_where_silos_name_things_otherwise_models_are_their_own(tmp_path: Path) -> None:
    """Silos alone are best at home and have no shared model: they are the answer where nothing else counts."""
    people = federation(silo("a", 90, 0, turn=1), silo("b", 90, 1), silo("c", 90, 2, turn=2))
    methods = ["local", "fedavg @ weighting=uniform", "ditto"]
    found = advised(people, tmp_path, methods)
    assert found.verdict.personal
    assert found.verdict.own is not None
    assert found.verdict.own.difference.mean > 0.2

    def best(*names: str) -> str:
        at_home = {name: [c["summary"] for c in found.cells if c["method"] == name] for name in names}
        return max(names, key=lambda name: float(np.mean([one["personalisation"]["mean"] for one in at_home[name]])))

    assert found.recommended == best("fedavg", "ditto")
    answer = sentences(found.as_dict())[0]
    assert answer.startswith(f"Take {found.recommended}, and let silos use models of their own at home")
    alone = advised(people, tmp_path, methods, goal="personalise")  # of the same pilots
    assert (alone.recommended, alone.cells) == (best("fedavg", "local", "ditto"), found.cells)
    outside = advised(people, tmp_path, methods, goal="generalise")  # where names differ, no shared model can know them
    assert outside.recommended is None
    answer = sentences(outside.as_dict())[0]
    assert "did not learn" in answer
    assert "(generalise, ≈ chance)" in answer


@pytest.mark.slow
def test_where_one_domain_has_few_samples_fair_weights_are_found(tmp_path: Path) -> None:
    people = federation(silo("a", 450, 0), silo("b", 450, 1), silo("c", 120, 2, push=1.5))
    found = advised(people, tmp_path, ["fedavg @ weighting=uniform", "fedprox"], goal="fair", epochs=4)
    assert found.recommended == "fedavg @ weighting=uniform"
    assert "fairness" in found.verdict.wins
    assert "is more even over silos than fedavg by" in sentences(found.as_dict())[0]
    assert 3.7 < found.shift.sizes < 3.8
    apart = found.shift.features
    assert min(apart["a", "c"], apart["b", "c"]) > apart["a", "b"] + 0.3
    assert "5 seeds" in " ".join(sentences(found.as_dict()))


# ------------------------------------------------------------------------------------------- what may influence it
def spoilt(people: Federation) -> Federation:
    """Other test labels, and another held-out domain."""

    def worse(one: SiloData) -> SiloData:
        return dataclasses.replace(one, test=Split(one.test.take(torch.arange(len(one.test)))[0], one.test.targets * 0))

    return dataclasses.replace(people, silos=tuple(map(worse, people.silos)), unseen=(silo("d", 9, 7, turn=1),))


def test_neither_test_samples_nor_a_held_out_domain_influence_it(tmp_path: Path) -> None:
    people = federation(*(silo(name, 30, seed) for seed, name in enumerate("abc")))
    plain, other = (
        advised(one, tmp_path / name, ["fedprox"], pilot_rounds=1, seeds=1)
        for name, one in (("plain", people), ("other", spoilt(people)))
    )
    assert [cell["summary"] for cell in plain.cells] == [cell["summary"] for cell in other.cells]
    assert plain.verdict == other.verdict
    assert set(plain.domains) == {"-", "a", "b", "c"}
    told = ["Not used at all, so that you can report on it: d (data.held_out)."]
    assert [[one for one in sentences(found.as_dict()) if "Not used" in one] for found in (plain, other)] == [[], told]


def test_a_pilot_holds_out_a_domain_and_is_judged_by_validation_samples() -> None:
    people = federation(*(silo(name, 40, seed) for seed, name in enumerate("abc")))
    found = blind(people, "b", seed=0)
    assert (found.names, found.unseen_names) == (("a", "c"), ("b",))
    for one in found.silos:
        whole = people[one.name]
        assert one.test is whole.validation
        counted = torch.bincount(one.validation.targets, minlength=3)
        assert counted.tolist() == [int(SHARE * 14), int(SHARE * 13), int(SHARE * 13)]
        assert sorted(sums(one.train) + sums(one.validation)) == sorted(sums(whole.train))
    assert len(found["b"].test) == 70  # its training and validation samples
    assert len(found["b"].train) == 0
    first, second = (set(sums(blind(people, "-", seed)["a"].validation)) for seed in (0, 1))
    assert first != second


def sums(split: Split) -> list[float]:
    """A number that tells samples apart."""
    return [round(one, 4) for one in split.take(torch.arange(len(split)))[0].flatten(1).sum(1).tolist()]


def test_silos_without_validation_samples_are_judged_by_some_of_their_training_samples() -> None:
    def without(one: SiloData) -> SiloData:
        return dataclasses.replace(one, validation=one.train.subset([]))

    people = federation(*map(without, (silo("a", 60, 0), silo("b", 60, 1))))
    one = blind(people, "-", seed=0)["a"]
    assert sorted(sums(one.train) + sums(one.validation) + sums(one.test)) == sorted(sums(people["a"].train))
    assert min(len(one.validation), len(one.test)) >= 6
    with pytest.raises(FairsiloError, match="too few training samples to judge a pilot by"):
        blind(federation(*map(without, (silo("a", 6, 0), silo("b", 6, 1)))), "-", seed=0)


def test_other_data_in_the_same_folder_are_another_question(tmp_path: Path) -> None:
    """Pilots that are finished are not run again, so that they must be of these very data."""
    people = federation(silo("a", 30, 0), silo("b", 30, 1))
    advised(people, tmp_path, ["fedprox"], pilot_rounds=1, seeds=1)
    other = federation(silo("a", 30, 0), silo("b", 30, 2))
    with pytest.raises(FairsiloError, match="holds advice on another question"):
        advised(other, tmp_path, ["fedprox"], pilot_rounds=1, seeds=1)
    advised(spoilt(people), tmp_path, ["fedprox"], pilot_rounds=1, seeds=1)  # what takes no part may differ


@pytest.mark.parametrize("why", ["one silo", "two domains"])
def test_what_cannot_be_judged_is_refused_before_anything_is_trained(tmp_path: Path, why: str) -> None:
    people = federation(*(silo(name, 30, seed) for seed, name in enumerate("a" if why == "one silo" else "ab")))
    said = (
        "there is a single silo" if why == "one silo" else "generalising cannot be judged: fewer than 3 domains train"
    )
    with pytest.raises(FairsiloError, match=said):
        advised(people, tmp_path / "x", ["fedprox"], goal="generalise")
    assert not (tmp_path / "x").exists()


def test_a_method_that_comes_to_no_end_is_left_out(tmp_path: Path) -> None:
    people = federation(silo("a", 30, 0), silo("b", 30, 1))
    found = advised(people, tmp_path, ["fedprox @ lr=1e30", "scaffold"], pilot_rounds=2, seeds=2)
    assert found.methods == ("fedavg", "scaffold")
    assert list(found.left_out) == ["fedprox @ lr=1e30"]
    assert len(found.cells) == 2 * 2


# ------------------------------------------------------------------------------------------------------ the verdict
def cells(**methods: Any) -> list[dict[str, Any]]:
    """Three seeds of each method: generalisation, personalisation, spread, moved by seeds so that means stay."""
    found = []
    for place, (method, (outside, own, spread, about)) in enumerate(methods.items()):
        for seed, moved in enumerate(np.roll([0.003, 0.0, -0.003], place)):
            even = {"mean": 0.5, "std_silos": spread + moved, "worst_tenth": 0.1, "best_tenth": 0.9}
            even["variance_silos"] = 0.01
            summary = {
                "about": about,
                "generalisation": {"mean": outside and outside + moved},
                "personalisation": {"mean": own + moved},
                "fairness": {"global": even, "personal": even},
            }
            found.append({"method": method, "held_out": "-", "seed": seed, "summary": summary})
    return found


@pytest.mark.parametrize(
    ("goal", "best"), [("all", "good"), ("generalise", "far"), ("personalise", "good"), ("fair", "fedavg")]
)
def test_what_is_recommended_depends_on_what_counts(goal: str, best: str) -> None:
    """`far` is best outside and worse at home, `good` is better in two answers and worse in none."""
    some = cells(fedavg=(0.5, 0.6, 0.1, "global"), far=(0.9, 0.4, 0.1, "global"), good=(0.6, 0.8, 0.1, "global"))
    found = verdict(["fedavg", "far", "good"], some, goal)
    assert found.recommended == best
    if goal == "all":
        assert found.wins == ("generalisation", "personalisation")
        assert found.loses == ()
    assert verdict(["fedavg", "far", "good"], some, "all").compared["generalisation"]["far"].sure


def test_pilots_of_one_seed_are_one_look() -> None:
    """Divisions of a seed share nearly all, so that four of them do not make three seeds twelve."""
    some = []
    for seed, moved in enumerate((0.05, 0.01, 0.0)):
        for domain in "abc-":
            for method, value in (("fedavg", 0.5), ("other", 0.5 + moved)):
                (cell,) = cells(**{method: (value, value, 0.1, "global")})[:1]
                cell["summary"]["generalisation"]["mean"] = value
                some.append({**cell, "method": method, "held_out": domain, "seed": seed})
    found = verdict(["fedavg", "other"], some, "generalise").compared["generalisation"]["other"]
    assert (found.pairs, found.seeds) == (12, 3)
    assert found.difference.mean == pytest.approx(0.02)
    assert found.difference.p == pytest.approx(0.3, abs=0.1)


def test_evenness_that_is_paid_for_is_no_gain() -> None:
    some = cells(fedavg=(0.5, 0.6, 0.3, "global"), flat=(0.5, 0.6, 0.1, "global"))
    assert verdict(["fedavg", "flat"], some, "fair").recommended == "flat"
    for cell in some:
        if cell["method"] == "flat":
            cell["summary"]["fairness"]["global"]["mean"] = 0.3 + 0.001 * cell["seed"]
    assert verdict(["fedavg", "flat"], some, "fair").recommended == "fedavg"


def test_less_is_better_for_an_error_and_for_a_spread() -> None:
    some = cells(fedavg=(0.5, 0.6, 0.3, "global"), low=(0.4, 0.5, 0.1, "global"))
    assert verdict(["fedavg", "low"], some, higher=False).wins == ("generalisation", "personalisation", "fairness")
    assert verdict(["fedavg", "low"], some, higher=True).recommended == "fedavg"


def test_a_method_without_a_shared_model_loses_outside() -> None:
    some = cells(fedavg=(0.5, 0.4, 0.1, "global"), local=(None, 0.8, 0.1, "personal"))
    found = verdict(["fedavg", "local"], some)
    assert (found.recommended, found.personal) == ("fedavg", False)  # whose own models are worse than its shared one
    assert found.others == {"personalisation": "local"}
    assert verdict(["fedavg", "local"], some, "personalise").recommended == "local"


def test_silos_that_are_better_off_alone_are_given_models_of_their_own() -> None:
    """No difference to fedavg's own models is sure, but its shared one is far behind what silos reach alone."""
    some = cells(
        fedavg=(0.5, 0.8, 0.1, "global"), local=(None, 0.8, 0.1, "personal"), ditto=(0.5, 0.8005, 0.1, "personal")
    )
    found: Verdict = verdict(["fedavg", "local", "ditto"], some)
    assert (found.recommended, found.wins, found.personal) == ("ditto", (), True)
    assert verdict(["fedavg", "local", "ditto"], some, "generalise").recommended == "fedavg"
    assert verdict(["fedavg", "local"], some).recommended == "fedavg"


def content(some: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """As `Advice.as_dict` has it, of runs as `cells` makes them."""
    methods = list(dict.fromkeys(cell["method"] for cell in some))
    for cell in some:
        cell["summary"] |= {"metric": "accuracy", "share": True}
    found = verdict(methods, some, changes.pop("goal", "all"))
    usual: dict[str, Any] = {"seconds": 2.0, "bytes": 1000.0, "sends": []}
    return {
        "metric": {"name": "accuracy", "share": True, "higher_is_better": True},
        "methods": methods,
        "recommended": found.recommended,
        "verdict": json.loads(json.dumps(dataclasses.asdict(found))),
        "cells": some,
        "rounds": [2, 9],
        "domains": ["a", "-"],
        "seeds": [0, 1, 2],
        "skipped": {},
        "reserved": [],
        "left_out": {},
        "costs": dict.fromkeys(methods, usual),
        "shift": {"labels": [], "features": [], "sizes": 1.0, "samples": {}},
        "seconds": 1.0,
        **changes,
    }


def guessing(some: list[dict[str, Any]], *methods: str, runs: int = 3) -> list[dict[str, Any]]:
    """The same, with so many runs of some methods at chance."""
    for cell in some:
        if cell["method"] in methods and cell["seed"] < runs:
            for about in (*cell["summary"]["fairness"].values(), cell["summary"]["personalisation"]):
                about["at_chance"] = True
    return some


def test_the_answer_says_what_the_method_costs_and_sends() -> None:
    some = cells(fedavg=(0.5, 0.6, 0.1, "global"), good=(0.6, 0.8, 0.1, "global"))
    found = content(some)
    assert found["recommended"] == "good"
    assert "good" not in sentences(found)[1]
    found["costs"]["good"] = {"seconds": 3.6, "bytes": 2000.0, "sends": ["a mask", "to each silo a mean"]}
    answer = sentences(found)[0]
    assert answer.startswith("Take good: it generalises better than fedavg by 10.0 ± ")
    assert answer.endswith(
        ". A round takes 1.8 × the time and 2 × the bytes of one of fedavg. Besides the model it sends a mask; to each "
        "silo a mean."
    )
    first = page(found)
    assert first.index("<p>Take good: it ") < first.index("A round takes 1.8 ×") < first.index("<table>")
    some_costs = {name: {**cost, "seconds": None} for name, cost in found["costs"].items()}
    once = {**found, "rounds": [1, 9], "costs": some_costs}  # a first round also sets things up
    assert "A round takes 2 × the bytes of one of fedavg." in sentences(once)[0]
    *_, times, sizes = (list(column.cells) for column in advice_table(once).columns)
    assert times == ["–", "–"]
    assert [str(one).partition("\n")[2] for one in sizes] == ["", "2 ×"]
    assert '<td class="number">–</td>' in page(once)
    assert '<td class="number">–</td>' not in first
    found["costs"]["good"] = {**found["costs"]["good"], "sends": []}
    assert sentences(found)[0].endswith("Besides the model it sends nothing.")
    plain = sentences(content(cells(fedavg=(0.5, 0.6, 0.1, "global"), same=(0.5, 0.6, 0.1, "global"))))[0]
    assert "A round takes" not in plain


def test_the_method_that_sends_no_model_is_said_to() -> None:
    some = cells(fedavg=(0.5, 0.4, 0.1, "global"), local=(None, 0.8, 0.1, "personal"))
    found = content(some, goal="personalise")
    assert sentences(found)[0].endswith(" of one of fedavg. No model is sent.")


def test_chance_is_a_reason_of_its_own() -> None:
    def said(some: list[dict[str, Any]], **changes: Any) -> list[str]:
        return [one for one in sentences(content(some, **changes)) if one.startswith("Not compared")]

    def made() -> list[dict[str, Any]]:
        return cells(fedavg=(0.5, 0.3, 0.1, "global"), a=(0.5, 0.3, 0.0, "global"), b=(0.5, 0.3, 0.1, "global"))

    why = "at chance, where an even result is not fair"
    assert said(made()) == []
    assert said(guessing(made(), "a")) == [f"Not compared: fair, of a ({why}: a in 3 of 3 runs)."]
    both = f"Not compared: fair ({why}: fedavg in 1 of 3 runs, a in 1 of 3 runs)."
    assert said(guessing(made(), "fedavg", "a", runs=1)) == [both]
    nothing = cells(fedavg=(None, 0.3, 0.1, "global"), a=(None, 0.3, 0.1, "global"))
    assert said(nothing) == ["Not compared: generalise (runs have no number to compare)."]
    assert said(nothing, domains=["-"]) == ["Not compared: generalise (no domain was held out)."]


@pytest.mark.parametrize(("margin", "said"), [(0.12, "(0.0 ± 12.0 points)"), (None, "(0.0 points)")])
def test_what_is_not_told_apart_is_not_called_as_good(margin: float | None, said: str) -> None:
    found = content(cells(fedavg=(0.5, 0.6, 0.1, "global"), local=(None, 0.6, 0.1, "personal")))
    for kind in ("own", "alone"):
        found["verdict"][kind]["difference"] |= {"mean": -0.0004, "margin": margin, "p": 0.9}
    own, alone = (one for one in sentences(found) if one.startswith("At home"))
    assert own == f"At home no difference found between silos' own models and fedavg's shared one {said}."
    assert alone == f"At home no difference found between models of silos that train alone and the shared one {said}."
    found["verdict"]["own"]["difference"] |= {"mean": -0.03, "margin": 0.12}
    own, _ = (one for one in sentences(found) if one.startswith("At home"))
    assert own == "At home silos' own models are worse than fedavg's shared one by 3.0 ± 12.0 points (not sure)."
    found["verdict"]["own"]["difference"] |= {"mean": 0.0004, "margin": 0.0001, "p": 0.001}
    own, _ = (one for one in sentences(found) if one.startswith("At home"))
    assert own.endswith("are better than fedavg's shared one by 0.0 ± 0.0 points (sure, by itself).")


@pytest.mark.parametrize(("goal", "count"), [("all", 1 + 2 + 2 + 1), ("generalise", 1 + 1)])
def test_comparisons_are_counted_once(goal: str, count: int) -> None:
    """Silos alone beside the shared model are one of them, with which the others are corrected."""
    some = cells(fedavg=(0.5, 0.5, 0.1, "global"), local=(None, 0.5, 0.1, "personal"), other=(0.5, 0.5, 0.1, "global"))
    found = content(some, goal=goal)
    answer = sentences(found)[0]
    assert answer == f"Take fedavg: no difference found that speaks for another method, in {count} comparisons."
    drawn = page(found)
    section = drawn[drawn.index("<figure") :]
    assert f"sure, corrected for all {count} comparisons" in section[: section.index("</figure>")]


LEARN = "Give pilots more rounds (--rounds, or a longer --budget) or another learning rate (lr=...)"


def everywhere(some: list[dict[str, Any]], *methods: str, runs: int = 3) -> list[dict[str, Any]]:
    """The same, with so many runs of some methods at chance in every answer."""
    for cell in guessing(some, *methods, runs=runs):
        if cell["method"] in methods and cell["seed"] < runs:
            cell["summary"]["generalisation"]["at_chance"] = True
    return some


def test_where_no_pilot_learned_nothing_is_recommended() -> None:
    """Also not the method that is ahead for sure."""
    some = everywhere(cells(fedavg=(0.3, 0.3, 0.1, "global"), good=(0.35, 0.35, 0.1, "global")), "fedavg", "good")
    found = content(some)
    assert found["recommended"] is None
    assert (found["verdict"]["learned"], found["verdict"]["wins"]) == ([], [])
    answer, *rest = sentences(found)
    assert answer == (
        "The pilots did not learn: all are no better than guessing (≈ chance), so that nothing can be said of methods. "
        f"{LEARN}, in another folder (--out)."
    )
    assert not any(one.startswith(("Take", "At home", "If that", "Worse")) for one in rest)
    assert "<h1>The pilots did not learn</h1>" in page(found)
    assert "Take" not in page(found)
    assert "≈ chance" in str(list(advice_table(found).columns[1].cells)[1])


def test_where_most_pilots_did_not_learn_that_is_said() -> None:
    some = cells(fedavg=(0.3, 0.3, 0.1, "global"), good=(0.35, 0.35, 0.1, "global"))
    found = content(everywhere(some, "fedavg", "good", runs=2))
    assert found["recommended"] is None
    assert sentences(found)[0].startswith("Most pilots did not learn: by every method most are no better than guessing")
    found = content(everywhere(cells(fedavg=(0.3, 0.3, 0.1, "global"), a=(0.3, 0.3, 0.1, "global")), "a", runs=1))
    assert (found["recommended"], found["verdict"]["learned"]) == ("fedavg", ["fedavg", "a"])


def test_methods_that_learn_are_compared_and_the_others_are_marked() -> None:
    def made() -> list[dict[str, Any]]:
        return cells(fedavg=(0.3, 0.3, 0.1, "global"), a=(0.6, 0.6, 0.1, "global"), b=(0.35, 0.35, 0.1, "global"))

    plain = content(made())
    assert plain["verdict"]["wins"]  # of a; b is ahead of fedavg for sure too
    assert plain["verdict"]["guessed"]["generalisation"] == []
    found = content(everywhere(made(), "fedavg", "b"))
    assert (found["recommended"], found["verdict"]["learned"]) == ("a", ["a"])
    assert found["verdict"]["wins"] == ["generalisation", "personalisation"]
    said = sentences(found)
    assert "In most pilots no better than guessing (generalise, ≈ chance): fedavg, b." in said
    assert not any("b generalises" in one for one in said)
    found = content(everywhere(made(), "a", "b"))  # whoever is ahead by guessing is not ahead
    assert (found["recommended"], found["verdict"]["others"]) == ("fedavg", {})


def test_the_plain_method_is_not_recommended_where_it_did_not_learn() -> None:
    some = everywhere(cells(fedavg=(0.3, 0.3, 0.1, "global"), a=(0.3001, 0.3001, 0.1, "global")), "fedavg")
    found = content(some)
    assert (found["recommended"], found["verdict"]["learned"]) == (None, ["a"])
    assert sentences(found)[0] == (
        "No method to take: most pilots of fedavg are no better than guessing (≈ chance), and of the methods that "
        f"learned (a) none is better for sure without being worse elsewhere. {LEARN}, in another folder (--out)."
    )
    assert "<h1>No method to take</h1>" in page(found)


def test_an_answer_in_which_nobody_learned_is_said_and_does_not_count_as_better() -> None:
    some = cells(fedavg=(0.3, 0.6, 0.1, "global"), a=(0.35, 0.6, 0.1, "global"))
    for cell in some:
        cell["summary"]["generalisation"]["at_chance"] = True
    found = content(some)
    assert (found["recommended"], found["verdict"]["wins"]) == ("fedavg", [])
    assert (
        "In most pilots no method is better than guessing (generalise, ≈ chance): of that nothing can be said."
        in sentences(found)
    )
    assert content(some, goal="generalise")["recommended"] is None
    assert "guessing (generalise, ≈ chance)" in sentences(content(some, goal="generalise"))[0]


def test_guessing_where_the_plain_method_learned_is_a_loss() -> None:
    some = cells(fedavg=(0.5, 0.6, 0.1, "global"), a=(0.5, 0.9, 0.1, "global"))
    assert verdict(["fedavg", "a"], some).recommended == "a"
    for cell in some:
        cell["summary"]["generalisation"]["at_chance"] = cell["method"] == "a"
    found = verdict(["fedavg", "a"], some)
    assert (found.recommended, found.others) == ("fedavg", {"personalisation": "a"})


def test_own_models_that_guess_are_not_the_answer() -> None:
    def made() -> list[dict[str, Any]]:
        return cells(
            fedavg=(0.5, 0.8, 0.1, "global"), local=(None, 0.8, 0.1, "personal"), ditto=(0.5, 0.8005, 0.1, "personal")
        )

    methods = ["fedavg", "local", "ditto"]
    some = made()
    for cell in some:
        cell["summary"]["personalisation"]["at_chance"] = cell["method"] == "ditto"
    assert verdict(methods, some).recommended == "fedavg"
    assert verdict(methods, some).personal
    some = made()
    for cell in some:
        cell["summary"]["personalisation"]["at_chance"] = cell["method"] == "local"
    assert not verdict(methods, some).personal
    some = made()
    assert verdict(["fedavg", "local"], some).personal
    for cell in some:
        cell["summary"]["personalisation"]["at_chance"] = cell["method"] == "fedavg"
    assert not verdict(["fedavg", "local"], some).personal


def test_tables_have_the_mean_of_a_spread_and_mark_chance() -> None:
    some = cells(fedavg=(0.5, 0.3, 0.1, "global"), a=(0.5, 0.3, 0.0, "global"), b=(0.5, 0.3, 0.2, "global"))
    legend = "≈ chance: no better than always naming the most frequent class"
    found = content(some)
    assert advice_table(found).caption is None
    assert legend not in page(found)
    found = content(guessing(guessing(some, "a"), "b", runs=1))
    table = advice_table(found)
    names, generalise, personalise, spread, *_ = (list(column.cells) for column in table.columns)
    assert names == ["fedavg", "a", "b"]
    assert spread == ["10.0 (50.0)", "0.0 (50.0)\n≈ chance", "20.0 (50.0)\n≈ chance\nin 1 of 3 runs"]
    assert not any("chance" in str(one) for one in generalise)
    assert str(personalise[1]).endswith("≈ chance")
    assert str(table.caption).startswith(legend)
    assert '<td class="number">0.0 (50.0)<small>≈ chance</small></td>' in page(found)
    assert legend in page(found)


def test_an_unknown_goal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match="the goal is 'speed'; it must be one of all, generalise"):
        advised(federation(silo("a", 30, 0), silo("b", 30, 1)), tmp_path / "x", ["fedprox"], goal="speed")
    assert not (tmp_path / "x").exists()


# ----------------------------------------------------------------------------------------------------- the time
def test_pilots_fit_into_the_time() -> None:
    domains = ("a", "b", "-")
    assert fitting(Options(budget=1e6), 20, 4, domains, 1.0) == (20, domains)
    rounds, chosen = fitting(Options(budget=600), 20, 4, domains, 1.0)
    assert (rounds, chosen) == (6, domains)
    rounds, chosen = fitting(Options(budget=200), 20, 4, domains, 1.0)
    assert (rounds, chosen) == (3, ("a", "b"))
    assert fitting(Options(budget=50), 20, 4, domains, 1.0) == (3, ("a",))  # two turns of it
    assert fitting(Options(budget=1, rounds=7), 20, 4, domains, 1.0) == (7, domains)
    with pytest.raises(FairsiloError, match=r"10 s are too short: a round takes about 1\.0 s"):
        fitting(Options(budget=10), 20, 4, domains, 1.0)


def test_whoever_interrupts_the_timing_is_not_told_to_resume_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is gone; the same command begins with it again."""

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fairsilo.runs.running.run_one", stop)
    with pytest.raises(KeyboardInterrupt) as end:
        advised(federation(silo("a", 30, 0), silo("b", 30, 1)), tmp_path, ["fedprox"], pilot_rounds=None)
    assert getattr(end.value, "__notes__", []) == []


def test_turns_end_with_the_time_and_the_same_call_goes_on(tmp_path: Path) -> None:
    people = federation(silo("a", 30, 0), silo("b", 30, 1))
    short = advised(people, tmp_path, ["fedprox"], pilot_rounds=1, seeds=4, budget=0.001)
    assert short.seeds == (0,)
    assert "fewer than 5 seeds" in " ".join(sentences(short.as_dict()))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    assert len(before) == 2
    again = advised(people, tmp_path, ["fedprox"], pilot_rounds=1, seeds=4, budget=0.001)
    assert again.seeds == (0,)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")} == before
    assert again.verdict == short.verdict
    more = advised(people, tmp_path, ["fedprox"], pilot_rounds=1, seeds=2, budget=60.0)
    assert more.seeds == (0, 1)
    with pytest.raises(FairsiloError, match="holds advice on another question"):
        advised(people, tmp_path, ["scaffold"], pilot_rounds=1)


def test_methods_that_cannot_be_run_here_are_named(tmp_path: Path) -> None:
    people = federation(silo("a", 30, 0), silo("b", 30, 1))
    found = advised(people, tmp_path, ["fedprox", "fedclip"], pilot_rounds=1, seeds=1)
    assert found.methods == ("fedavg", "fedprox")
    assert list(found.left_out) == ["fedclip"]
    assert "Not tried: fedclip" in " ".join(sentences(found.as_dict()))


# ------------------------------------------------------------------------------------------------------- the measures
def test_distances_between_labels_and_sizes() -> None:
    found = label_distances({"a": [5, 5, 0], "b": [5, 5, 0], "c": [0, 0, 7], "d": [5, 0, 5]})
    assert (found["a", "b"], found["a", "c"], found["a", "d"]) == (0.0, 1.0, 0.5)
    assert label_distances({"a": [0, 0], "b": [1, 0]}) == {}
    assert size_ratio([10, 40, 20]) == 4.0


def test_a_linear_rule_tells_apart_what_differs() -> None:
    draw = np.random.default_rng(0)
    same, alike, other = draw.normal(size=(80, 5)), draw.normal(size=(60, 5)), draw.normal(size=(80, 5)) + 3.0
    assert proxy_a_distance(same, other) > 1.9  # type: ignore[operator]
    assert proxy_a_distance(same, alike) < 0.5  # type: ignore[operator]
    assert proxy_a_distance(same, other[:5]) is None
    assert list(feature_distances({"a": same, "b": other, "c": other[:3]})) == [("a", "b")]


# -------------------------------------------------------------------------------------------------------- the command
def test_the_command_says_what_to_take_and_writes_a_page(
    here: Path,  # noqa: F811
    packed: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    quick = ["epochs=1", "batch_size=8", "engine.name=sequential", "--rounds", "1", "--seeds", "2", "-o", "a"]
    code, out, err = call(capsys, "advise", "fedprox", f"data.packed={packed}", *quick)
    assert code == 0, err
    content = RunFolder(here / "a").read_json("advice.json")
    said = [line for line in out.splitlines() if not line.startswith("turn ")]
    assert said[0] == sentences(content)[0]
    assert "turn 1: 2 methods, 1 division, 1 round, seed 0" in out + err
    assert "Sizes: the largest silo has" in out
    page = (here / "a" / "advice.html").read_text()
    assert f"<h1>{in_short(content)}</h1>" in page
    assert {cost["seconds"] for cost in content["costs"].values()} == {None}  # of a single round
    assert "What is sent besides the model" in page
    _, out, _ = call(capsys, "advise", "fedprox", f"data.packed={packed}", *quick, "--json")
    assert {**json.loads(out), "seconds": 0} == {**content, "seconds": 0}
    code, _, err = call(capsys, "advise", "fedprox", f"data.packed={packed}", "method=faa")
    assert code == 2
    assert "has no effect here; name the methods to try" in err


@pytest.mark.slow
def test_the_command_reads_a_folder_of_images_and_a_file_of_settings(
    here: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The last domain is held out, as in a run: it takes no part."""
    draw = np.random.default_rng(0)
    for domain in ("east", "north", "south", "west"):
        for label, name in enumerate(("cat", "dog")):
            (here / "images" / domain / name).mkdir(parents=True)
            for number in range(20):
                pixels = draw.integers(0, 100, (8, 8), np.uint8)
                pixels[4 * label : 4 * label + 4] += 100
                Image.fromarray(pixels).save(here / "images" / domain / name / f"{number}.png")
    (here / "mine.yaml").write_text(
        "method: faa\ndata: {folder: images}\ntrain: {epochs: 1, batch_size: 8}\nengine: {name: sequential}\n"
    )
    asked = ("advise", "fedprox", "--rounds", "1", "--seeds", "1", "--json")
    given = ("data.folder=images", "epochs=1", "batch_size=8", "engine.name=sequential", "-o", "a")
    found = []
    for more in (given, ("-c", "mine.yaml", "-o", "b")):
        code, out, err = call(capsys, *asked, *more)
        assert code == 0, err
        found.append(json.loads(out))
    one, other = found
    assert (one["methods"], one["domains"]) == (["fedavg", "fedprox"], ["east", "north", "south", "-"])
    assert list(one["shift"]["samples"]) == ["east", "north", "south"]
    for key in ("verdict", "shift", "methods", "domains", "rounds"):
        assert one[key] == other[key]
    assert [cell["summary"] for cell in one["cells"]] == [cell["summary"] for cell in other["cells"]]
    code, out, _ = call(capsys, *asked, "-c", "mine.yaml", "epochs=2", "-o", "c")
    assert [cell["summary"] for cell in json.loads(out)["cells"]] != [cell["summary"] for cell in one["cells"]]


def test_what_is_measured_is_told(tmp_path: Path) -> None:
    people = federation(silo("a", 60, 0), silo("b", 30, 1, push=4.0))
    found = advised(people, tmp_path, ["fedprox"], pilot_rounds=1, seeds=1).as_dict()
    labels, sizes, features = shift_sentences(found)
    assert "a and b 0 %" in labels
    assert "2.0 times" in sizes
    assert "between a and b" in features
    assert found["costs"]["fedavg"]["bytes"] > 0
    assert found["costs"]["fedavg"]["seconds"] is None  # the first round also sets things up


def test_costs_are_those_that_the_rounds_of_the_pilots_recorded(tmp_path: Path) -> None:
    people = federation(silo("a", 30, 0), silo("b", 30, 1))
    found = advised(people, tmp_path, ["scaffold"], pilot_rounds=3, seeds=2)
    page = (tmp_path / "advice.html").read_text()
    weights = 4 * (36 * 16 + 16 + 16 * 3 + 3)  # bytes of the network
    for name, sent in (("fedavg", 1), ("scaffold", 2)):  # which also sends control variates
        records = [
            json.loads(line)
            for cell in found.cells
            if cell["method"] == name
            for line in (tmp_path / cell["folder"] / "rounds.jsonl").read_text().splitlines()
        ]
        assert [record["round"] for record in records] == [1, 2, 3] * 2
        seconds, sizes = [], []
        for record in records:
            measuring = [one for one in record["exchanges"] if one["kind"] == "evaluate"]
            others = [one for one in record["exchanges"] if one["kind"] != "evaluate"]
            assert measuring
            if record["round"] > 1:  # the first one also sets things up
                seconds.append(record["seconds"] - sum(one["seconds"] for one in measuring))
                sizes.append(sum(one["bytes_down"] + one["bytes_up"] for one in others))
        cost = found.as_dict()["costs"][name]
        assert (cost["seconds"], cost["bytes"]) == pytest.approx((np.mean(seconds), np.mean(sizes)))
        assert 1 <= cost["bytes"] / (sent * 4 * weights) < 1.2  # to and from two silos, and their results
        assert duration(cost["seconds"]) in page
        assert size(cost["bytes"]) in page
    usual, other = (found.costs[name]["bytes"] for name in ("fedavg", "scaffold"))
    assert f"<small>{other / usual:.2g} ×</small>" in page


def test_what_a_method_sends_beside_the_model_is_listed(tmp_path: Path) -> None:
    people = federation(silo("a", 30, 0), silo("b", 30, 1))
    found = advised(people, tmp_path, ["scaffold"], pilot_rounds=1, seeds=1)
    assert found.costs["fedavg"]["sends"] == []
    assert found.costs["scaffold"]["sends"] == list(fairsilo.method("scaffold").sends)
    listed = re.findall(r"<li>(.*?)</li>", (tmp_path / "advice.html").read_text())
    assert listed == [
        "fedavg: nothing else",
        "scaffold: the change of its control variate (a mean gradient), as large as the model; "
        "to each silo the mean of the control variates",
    ]


# ------------------------------------------------------------------------------------------- commands over methods
@pytest.mark.parametrize("command", ["advise", "tune", "compare"])
def test_data_in_the_place_of_a_method_are_told_how_to_be_given(
    command: str,
    here: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("seg", "my seg", "npz", "fedprox"):
        (here / name).mkdir()
    (here / "npz" / "ink.npz").touch()
    (here / "mine.yaml").touch()
    (here / "notes").touch()

    def refused(*arguments: str) -> str:
        code, _, err = call(capsys, command, *arguments)
        assert code == 2
        return err

    assert refused("seg") == "error: 'seg' is a folder and no method; give it as data.folder=seg\n"
    assert refused("fedavg", "./seg") == "error: './seg' is a folder and no method; give it as data.folder=./seg\n"
    assert "give it as data.folder='my seg'" in refused("my seg")
    assert "give it as data.packed=npz" in refused("npz")
    assert refused("mine.yaml") == (
        "error: 'mine.yaml' is a file and no method; give a file of settings as -c mine.yaml\n"
    )
    assert "'notes' is a file and no method; give a file of settings as -c FILE.yaml" in refused("notes")
    assert refused("fedprx") == "error: unknown method 'fedprx'; did you mean 'fedprox'?\n"
    assert "is a folder" not in refused("fedprox", "model=nosuch")  # which has the name of a method


@pytest.mark.parametrize(
    ("work", "arguments", "rest"),
    [
        ("advise", ("advise", "fedprox", "data.folder=my seg"), "goes on with the pilots"),
        ("tune", ("tune", "fedavg @ clip=1", "--trials", "2"), "goes on with the search"),
        ("compare", ("compare", "fedavg", "--json"), "goes on from the last complete round"),
        ("compare", ("reproduce", "fedheal/table2-glyphs"), "goes on from the last complete round"),
    ],
)
def test_whoever_interrupts_is_given_the_command_to_go_on_with(
    work: str,
    arguments: tuple[str, ...],
    rest: str,
    here: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"fairsilo.api.{work}", stop)
    code, _, err = call(capsys, *arguments)
    assert (code, err) == (130, f"interrupted; `fairsilo {shlex.join(arguments)}` {rest}\n")
    assert "'" in err or not any(" " in one for one in arguments)


def test_a_password_is_not_shown_with_the_command(
    here: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fairsilo.api.compare", stop)
    monkeypatch.setattr("fairsilo.cli.comparing.trackers", lambda *_: [])
    code, _, err = call(capsys, "compare", "fedavg", "--track", "mlflow:http://me:secret@host:5000")
    assert (code, err) == (130, "interrupted; the same command goes on from the last complete round\n")
