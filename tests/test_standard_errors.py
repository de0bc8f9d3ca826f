"""Standard errors of metrics, against what samples drawn again and again really give; and the intervals made of them.

Simulations draw several hundred test sets. The deviation of R results has itself a relative error of about
1 / sqrt(2 R): 3.5 % for R = 400. Tolerances of 12 % leave three times that, and a factor of sqrt(2), a lost root or a
flipped sign is far outside.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fairsilo
import tiny
from fairsilo.analysis.chance import Judge, normal, pooled_error
from fairsilo.analysis.metrics import summarise
from fairsilo.core.measuring import read_measure, row_of, write_measure
from fairsilo.core.messages import Message
from fairsilo.core.task import Measure, Task
from fairsilo.tasks.classify import Classify
from fairsilo.tasks.next_character import NextCharacter
from fairsilo.tasks.options import Options
from fairsilo.tasks.regress import Regress
from fairsilo.tasks.segment import Segment
from fairsilo.tasks.standard_errors import of_areas, of_mean
from other_tasks import GROUNDS

Z = 1.959964
DRAWS, NEAR = 400, 0.12
Sampler = Callable[[torch.Generator], tuple[Tensor, Tensor]]


def classified(classes: int, count: int, uneven: bool = True, sure: float = 3.0) -> Sampler:
    """Logits that know something of their classes, and say it too loudly (`sure`); later classes are rarer."""
    chances = torch.arange(classes, 0, -1).float() if uneven else torch.ones(classes)

    def drawn(stream: torch.Generator) -> tuple[Tensor, Tensor]:
        targets = torch.multinomial(chances, count, replacement=True, generator=stream)
        known = F.one_hot(targets, classes) * torch.linspace(0.8, 1.6, classes)
        return sure * (known + torch.randn(count, classes, generator=stream)), targets

    return drawn


def numbers(stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """Skewed targets far from zero, and errors that grow with them: every moment counts."""
    targets = 50 + 2 * torch.empty(300, dtype=torch.float64).exponential_(generator=stream)
    noise = torch.randn(300, generator=stream, dtype=torch.float64) * (0.2 + 0.3 * (targets - 50))
    return ((targets + noise - 49.0) / 2.0)[:, None], targets


def masked(stream: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images of two structures, one of them rare, predicted well or badly in a whole image at once."""
    count = 60
    targets = (torch.rand(count, 6, 6, generator=stream) < 0.4).long()
    rare = torch.rand(count, generator=stream) < 0.5
    targets[rare, :2] = 2
    skill = 0.5 + 2.5 * torch.rand(count, 1, 1, 1, generator=stream)
    known = F.one_hot(targets, 3).movedim(-1, 1) * skill
    return known + torch.randn(count, 3, 6, 6, generator=stream), targets


SIMULATED: dict[str, tuple[Task, Sampler, tuple[str, ...]]] = {
    "many classes": (
        Classify(4),
        classified(4, 240),
        ("accuracy", "balanced-accuracy", "macro-f1", "sensitivity", "specificity", "ece"),
    ),
    "two classes": (
        Classify(2),
        classified(2, 200),
        ("accuracy", "balanced-accuracy", "macro-f1", "sensitivity", "specificity", "ece"),
    ),
    "masks": (Segment(3), masked, ("dice", "dice-with-background", "grace-dice")),
    "characters": (NextCharacter(5), classified(5, 150), ("accuracy",)),
    "numbers": (Regress(options=Options(offset=49.0, scale=2.0)), numbers, ("mae", "rmse", "r2")),
}


def simulated(task: Task, sampler: Sampler, draws: int = DRAWS) -> tuple[dict[str, float], dict[str, float]]:
    """Of each metric: its deviation over test sets drawn anew, and the root of the mean square of its errors."""
    stream = torch.Generator().manual_seed(1)
    found = [task.measure(task.tally(*sampler(stream))) for _ in range(draws)]
    spread = {name: torch.tensor([one.metrics[name] for one in found]).std().item() for name in found[0].metrics}
    errors = {
        name: torch.tensor([one.errors[name] for one in found]).square().mean().sqrt().item()
        for name in found[0].errors
    }
    return spread, errors


@pytest.mark.parametrize("kind", SIMULATED)
def test_errors_are_the_deviations_of_results_over_test_sets(kind: str) -> None:
    task, sampler, names = SIMULATED[kind]
    spread, errors = simulated(task, sampler)
    for name in names:
        assert errors[name] == pytest.approx(spread[name], rel=NEAR), name


def test_every_metric_of_every_task_has_an_error() -> None:
    for task, sampler, _ in SIMULATED.values():
        found = task.measure(task.tally(*sampler(torch.Generator().manual_seed(0))))
        assert set(found.errors) == set(found.metrics) == {one.name for one in task.metrics}


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_error_of_areas_is_near_the_deviation(classes: int) -> None:
    """Hanley and McNeil assume a form of the scores' distributions, so it is near only: within 20 %.

    Two areas that are one number taken for two independent ones would be 29 % too sure.
    """
    spread, errors = simulated(Classify(classes), classified(classes, 240, sure=1.0))
    assert errors["auroc"] == pytest.approx(spread["auroc"], rel=0.2)


def test_the_error_of_an_area_is_hanleys_and_mcneils() -> None:
    """By hand: area 3/4 from two samples of the class against ten others; it matters on which side they are."""
    first, second = 0.75 / 1.25, 2 * 0.75**2 / 1.75
    by_hand = math.sqrt((0.75 * 0.25 + (first - 0.75**2) + 9 * (second - 0.75**2)) / 20)
    assert of_areas(*(torch.tensor([one]) for one in (0.75, 2.0, 10.0))) == pytest.approx(by_hand, rel=1e-5)


def test_the_areas_of_two_classes_are_as_sure_as_one() -> None:
    """By hand: area 3/4 from two samples against two."""
    scores = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.2, 0.8]]).log()
    found = Classify(2).measure(Classify(2).tally(scores, torch.tensor([0, 0, 1, 1])))
    area, first, second = 0.75, 0.75 / 1.25, 2 * 0.75**2 / 1.75
    by_hand = math.sqrt((area * (1 - area) + (first - area**2) + (second - area**2)) / 4)
    assert found.metrics["auroc"] == pytest.approx(area)
    assert found.errors["auroc"] == pytest.approx(by_hand)


def test_the_error_of_the_mean_of_two_images() -> None:
    """Dice 1 and 2/3: they differ by 1/3, so their mean has the error 1/6."""
    targets = torch.zeros(2, 2, 2, dtype=torch.long)
    targets[:, 0] = 1
    said = targets.clone()
    said[1, 0, 0] = 0
    found = Segment(2).measure(Segment(2).tally(9.0 * F.one_hot(said, 2).movedim(-1, 1), targets))
    assert found.metrics["dice"] == pytest.approx(5 / 6)
    assert found.errors["dice"] == pytest.approx(1 / 6)


@pytest.mark.filterwarnings("ignore")  # of MONAI about itself
@pytest.mark.slow
def test_the_error_of_distances_is_a_bootstraps() -> None:
    """Images drawn again with replacement; 400 of them give the deviation within 12 %, as above."""
    task = Segment(3, "hd95")
    prediction, targets = masked(torch.Generator().manual_seed(3))
    found = task.measure(task.tally(prediction, targets))
    tallies = torch.stack([task.tally(prediction[one : one + 1], targets[one : one + 1]) for one in range(60)])
    stream = torch.Generator().manual_seed(4)
    again = [
        task.measure(tallies[torch.randint(60, (60,), generator=stream)].sum(0)).metrics["hd95"] for _ in range(DRAWS)
    ]
    assert found.errors["hd95"] == pytest.approx(torch.tensor(again).std().item(), rel=NEAR)
    assert set(found.errors) == {"dice", "dice-with-background", "grace-dice", "hd95"}


@pytest.mark.parametrize("kind", SIMULATED)
def test_batches_give_the_errors_of_the_whole(kind: str) -> None:
    task, sampler, _ = SIMULATED[kind]
    prediction, targets = sampler(torch.Generator().manual_seed(2))
    whole = task.measure(task.tally(prediction, targets)).errors
    tallies = [task.tally(prediction[some], targets[some]) for some in (slice(0, 1), slice(1, 40), slice(40, None))]
    pieces = task.measure(torch.stack(tallies).sum(0)).errors
    assert pieces == pytest.approx(whole, rel=1e-9)


# ---------------------------------------------------------------------------------------------------- what is not known
def test_a_single_sample_tells_no_spread() -> None:
    assert of_mean(3.0, 9.0, 1) is None
    assert of_mean(6.0, 18.0, 2) == 0
    assert of_mean(4.0, 10.0, 2) == pytest.approx(1.0)  # 1 and 3: deviation sqrt(2), over sqrt(2)
    assert Regress().measure(Regress().tally(torch.tensor([[1.0]]), torch.tensor([2.0]))).errors == {}
    prediction, targets = masked(torch.Generator().manual_seed(0))
    found = Segment(3).measure(Segment(3).tally(prediction[:1], targets[:1]))
    assert found.errors == {}
    assert found.metrics


def test_an_offset_far_from_the_targets_leaves_the_error_of_r2_out() -> None:
    """Fourth powers of 1e6 have no digits left for what is around their mean."""
    stream = torch.Generator().manual_seed(0)
    targets = 1e6 + torch.randn(50, generator=stream, dtype=torch.float64)
    prediction = targets[:, None] + torch.randn(50, 1, generator=stream, dtype=torch.float64)
    found = Regress().measure(Regress().tally(prediction, targets))
    assert set(found.errors) == {"mae", "rmse"}
    near = Regress(options=Options(offset=1e6))
    assert "r2" in near.measure(near.tally(prediction - 1e6, targets)).errors


def test_errors_travel_and_stand_in_rows() -> None:
    found = Measure(1.0, 0.5, 8, {"macro-f1": 0.5, "ece": 0.1}, errors={"macro-f1": 0.02})
    message = Message()
    write_measure(message, "global.test", found)
    assert message.numbers["global.test.errors.macro-f1"] == 0.02
    assert read_measure(message, "global.test") == found
    assert row_of(found)["errors"] == {"macro-f1": 0.02}
    assert "errors" not in row_of(Measure(1.0, 0.5, 8, {"macro-f1": 0.5}))


# ------------------------------------------------------------------------------------------------------------ intervals
def rows(errors: dict[str, float | None], metric: str = "dice", rounds: int = 1) -> list[dict[str, Any]]:
    """Silo -> error; results are 0.5; silo `u` is unseen, and the first letter is the domain."""
    return [
        {"round": number, "silo": silo, "domain": silo[0], "unseen": silo == "u", "model": "global", "split": "test"}
        | {"loss": 1.0, "metric": 0.5, "samples": 10, "metrics": {metric: 0.5}}
        | ({} if error is None else {"errors": {metric: error * number}})
        for number in range(1, rounds + 1)
        for silo, error in errors.items()
    ]


def test_the_error_of_a_mean_is_the_root_of_the_sum_of_squares() -> None:
    assert pooled_error({"a": 0.3, "b": 0.4}, {"a": "a", "b": "b"}) == pytest.approx(0.25)
    # two silos of one domain are tested on the same samples: no surer together than one
    assert pooled_error({"a": 0.3, "b": 0.3}, {"a": "a", "b": "a"}) == pytest.approx(0.3)


def test_intervals_of_shares_end_at_0_and_1() -> None:
    assert normal(0.9, 0.1, share=True) == (pytest.approx(0.9 - 0.1 * Z), 1.0)
    assert normal(0.1, 0.1, share=True) == (0.0, pytest.approx(0.1 + 0.1 * Z))
    assert normal(-3.0, 1.0, share=False) == pytest.approx((-3 - Z, -3 + Z))


def test_a_summary_has_intervals_from_errors() -> None:
    found = summarise(rows({"a": 0.03, "b": 0.04, "u": 0.1}), metric="dice")
    assert found["generalisation"]["interval"] == pytest.approx([0.5 - 0.1 * Z, 0.5 + 0.1 * Z])
    assert found["fairness"]["global"]["interval"] == pytest.approx([0.5 - 0.025 * Z, 0.5 + 0.025 * Z])
    assert found["fairness"]["global"]["chance"] is None
    assert found["silos"][0]["intervals"] == {"global": pytest.approx([0.5 - 0.03 * Z, 0.5 + 0.03 * Z])}


def test_the_mean_of_rounds_is_as_unsure_as_they_are_on_average() -> None:
    found = summarise(rows({"a": 0.02}, rounds=2), selection="last5", metric="dice")
    assert found["fairness"]["global"]["interval"] == pytest.approx([0.5 - 0.03 * Z, 0.5 + 0.03 * Z])


def test_an_adapted_result_has_the_error_of_the_adapted_model() -> None:
    plain = rows({"u": 0.1})
    adapted = {**plain[0], "model": "adapted", "metric": 0.6, "errors": {"dice": 0.05}}
    found = summarise([*plain, adapted], metric="dice")
    assert found["generalisation"]["interval"] == pytest.approx([0.6 - 0.05 * Z, 0.6 + 0.05 * Z])
    unknown = {key: value for key, value in adapted.items() if key != "errors"}
    assert summarise([*plain, unknown], metric="dice")["generalisation"]["interval"] is None


def test_without_errors_there_is_no_interval() -> None:
    """Old run folders, tasks of other packages, and samples that all agree."""
    for one in (None, 0.0):
        found = summarise(rows({"a": one, "b": one}), metric="dice")
        assert found["fairness"]["global"]["interval"] is None
    assert summarise(rows({"a": 0.1, "b": None}), metric="dice")["fairness"]["global"]["interval"] is None
    assert Judge({})({}, {})["interval"] is None


def test_accuracy_keeps_wilsons_interval() -> None:
    known, unknown = (summarise(rows({"a": error}, "accuracy")) for error in (0.3, None))
    assert known == unknown
    assert known["fairness"]["global"]["interval"] is not None


@pytest.mark.parametrize(("task", "metric"), [("classify", "macro-f1"), ("segment", "dice"), ("regress", "rmse")])
def test_runs_have_intervals_of_every_metric(task: str, metric: str, tmp_path: Path) -> None:
    people, network = (
        (tiny.federation(), tiny.TinyNet) if task == "classify" else (GROUNDS[task].federation(), GROUNDS[task].network)
    )
    fairsilo.run(
        method="fedavg",
        federation=people,
        model=network,  # type: ignore[arg-type]
        out=tmp_path / "run",
        train={"rounds": 1, "epochs": 1, "lr": 0.01},
        engine={"name": "sequential"},
        evaluate={"metric": metric},
    )
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    row = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()][-1]
    assert row["silo"] == "u"
    low, high = summary["generalisation"]["interval"]
    value, error = row["metrics"][metric], row["errors"][metric]
    assert (low + high) / 2 == pytest.approx(value)
    assert (high - low) / 2 == pytest.approx(Z * error, rel=1e-6)
    assert summary["personalisation"]["interval"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "95 % interval (normal) from the size of the test set" in page
    assert "95 % interval from the number of test samples (normal)" in page
