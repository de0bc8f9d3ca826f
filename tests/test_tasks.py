"""Tasks: what classification measures, and that the protocol carries tasks of another shape than classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fairsilo.analysis.metrics import fairness, select_rounds
from fairsilo.config import TrainSettings
from fairsilo.core.measuring import read_measure, row_of, write_measure
from fairsilo.core.messages import Message
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.streams import Batches
from fairsilo.core.task import Ending, Measure, Metric, Task
from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.data.federation import Federation, federate
from fairsilo.engine.host import Blueprint
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError
from fairsilo.methods.text import method
from fairsilo.runs.saved import SavedRun
from fairsilo.tasks import registry
from fairsilo.tasks.classify import Classify
from fairsilo.tasks.registry import task_of

LOGITS = torch.tensor([[9.0, 0, 0], [9.0, 0, 0], [0, 9.0, 0], [9.0, 0, 0]])  # says 0, 0, 1, 0
LABELS = torch.tensor([0, 0, 1, 1])  # class 2 has no sample


# ------------------------------------------------------------------------------------------------------ classification
def test_balanced_accuracy_is_over_the_classes_present() -> None:
    """Accuracy 3/4; of class 0 all are right, of class 1 one half, and class 2 counts in no mean."""
    task = Classify(3)
    found = task.measure(task.tally(LOGITS, LABELS))
    assert found.metrics["accuracy"] == found.metrics["balanced-accuracy"] == 0.75
    lopsided = task.measure(task.tally(LOGITS[[0, 1, 3]], LABELS[[0, 1, 3]]))
    assert lopsided.metrics["accuracy"] == pytest.approx(2 / 3)
    assert lopsided.metrics["balanced-accuracy"] == 0.5
    assert lopsided.per_class == {"samples": (2, 1, 0), "right": (2, 0, 0), "predicted": (3, 0, 0)}


@pytest.mark.parametrize(("metric", "value"), [("accuracy", 2 / 3), ("balanced-accuracy", 0.5)])
def test_the_reported_metric_is_the_one_that_was_asked_for(metric: str, value: float) -> None:
    task = task_of("classify", 3, metric)
    assert task.reported.name == metric
    assert task.measure(task.tally(LOGITS[[0, 1, 3]], LABELS[[0, 1, 3]])).metric == pytest.approx(value)


def test_a_metric_that_the_task_lacks_is_refused() -> None:
    with pytest.raises(FairsiloError, match="'dice', which the task 'classify' does not have; known: accuracy, auroc"):
        task_of("classify", 3, "dice")


def test_a_measure_survives_the_way_to_the_server() -> None:
    task, message = Classify(12), Message()
    targets = torch.arange(24) % 11
    found = task.measure(task.tally(torch.randn(24, 12, generator=torch.Generator().manual_seed(0)), targets))
    write_measure(message, "global.test", found)
    write_measure(message, "global.validation", Measure(1.0, 2.0, 3))
    assert read_measure(message, "global.test") == found  # also with more than ten classes, in their order
    assert read_measure(message, "global.validation") == Measure(1.0, 2.0, 3)
    assert row_of(Measure(1.0, 2.0, 3)) == {"loss": 1.0, "metric": 2.0, "samples": 3}
    assert row_of(found)["per_class"]["samples"] == [3, 3, *[2] * 9, 0]


def test_labels_out_of_range_are_told() -> None:
    assert "labels from 0 to 3, and there are 3 classes" in str(Classify(3).fault(torch.tensor([0, 3])))
    assert "labels from -1 to 2" in str(Classify(3).fault(torch.tensor([-1, 2])))
    assert Classify(3).fault(torch.tensor([0, 2])) is None


def test_what_a_target_is_called() -> None:
    assert Classify(2).caption(torch.tensor(1), ("benign", "malignant")) == "malignant"


# ------------------------------------------------------------------------------------------------- tasks to come
@dataclass(frozen=True)
class Brightness:
    """A regression: the target is a float, less error is better, and strata are halves of the range."""

    classes: int = 0
    metric: str = "error"
    name: str = "brightness"
    follows: bool = True  # whether targets change with the inputs

    @property
    def output(self) -> Ending:
        return Ending(1)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (self.reported,)

    @property
    def per_pair(self) -> tuple[str, ...]:
        return ()

    def predicted(self, prediction: Tensor) -> Tensor:
        return prediction

    @property
    def per_class(self) -> tuple[str, ...]:
        return ()

    @property
    def reported(self) -> Metric:
        return Metric("error", "mean absolute error", higher_is_better=False)

    @property
    def guess(self) -> float:
        return 1.0

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return (prediction.flatten() - targets).square().mean()

    def tally(self, prediction: Tensor, targets: Tensor) -> Tensor:
        apart = (prediction.flatten() - targets).double()
        return torch.stack([apart.square().sum(), apart.abs().sum(), torch.tensor(float(len(targets))).double()])

    def measure(self, tally: Tensor) -> Measure:
        loss, error = (tally[:2] / tally[2]).tolist()
        return Measure(loss, error, int(tally[2]), {"error": error})

    def strata(self, targets: Tensor) -> Tensor:
        return (targets > targets.median()).long()

    def occurrences(self, targets: Tensor) -> Tensor | None:
        return None

    def fault(self, targets: Tensor) -> str | None:
        return None if targets.isfinite().all() else "has targets that are not finite"

    def draws(self, kinds: str, shape: tuple[int, ...], batches: Batches) -> dict[str, Tensor]:
        return {"sign": -torch.ones(len(batches))}

    def augment(self, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        sign = drawn["sign"]
        return sign.view(-1, *[1] * (inputs.dim() - 1)) * inputs, sign * targets if self.follows else targets

    def caption(self, target: Tensor, classes: Sequence[str]) -> str:
        return f"{float(target):.2f}"


@pytest.fixture
def brightness(monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setitem(registry.TASKS, "brightness", Brightness)
    return Brightness()


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, 2, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs.mean((1, 2))


def bright_domain(name: str, seed: int) -> Domain:
    inputs, targets = pictures(40, seed)
    return Domain(name, inputs, targets, torch.full((40,), UNDECIDED, dtype=torch.int8))


def test_a_task_with_floats_is_split_by_its_own_strata(brightness: Task) -> None:
    dataset = Dataset("bright", (), {name: bright_domain(name, i) for i, name in enumerate("abc")}, task="brightness")
    made = federate(dataset, held_out="c", silos_per_domain=2)
    assert [len(silo.train) for silo in made.silos] == [14, 14, 14, 14]
    middle = bright_domain("a", 0).targets.median()
    for split in (made["a-1"].test, made["a-1"].validation):
        assert 2 * int((split.targets > middle).sum()) == len(split)


def test_targets_that_a_task_cannot_use_are_refused(brightness: Task) -> None:
    inputs, targets = pictures(4, 0)
    bad = Split(inputs, torch.where(torch.arange(4) == 2, torch.nan, targets))
    with pytest.raises(FairsiloError, match="silo 'a' has targets that are not finite"):
        Federation("bright", (), (SiloData("a", "a", bad, bad, bad),), task="brightness")


def test_whole_numbers_are_classes_only_where_the_task_says_so(brightness: Task) -> None:
    """Ages and temperatures are whole numbers too, and may be negative."""
    split = Split(torch.zeros(3, 2, 4), torch.tensor([-5, 0, 70]))
    made = Federation("degrees", (), (SiloData("a", "a", split, split, split),), task="brightness")
    assert made.roster["a"].tested == ()
    labels = Split(torch.zeros(3, 2, 4), torch.tensor([1, 1, 0]))
    classes = Federation("labels", tuple("012"), (SiloData("a", "a", labels, labels, labels),))
    assert classes.roster["a"].tested == (1, 2, 0)


class Linear(nn.Module):
    def __init__(self, values: int, channels: int) -> None:
        super().__init__()
        self.inner = nn.Linear(4 * channels, values)
        self.outer = channels

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.inner(inputs.flatten(1))
        return found


def run_brightness(folder: Path, task: Any, augment: str = "none") -> tuple[list[dict[str, Any]], Loop]:
    silos = tuple(
        SiloData(name, name, *(Split(*pictures(16, 10 * i + j)) for j in range(3))) for i, name in enumerate("ab")
    )
    people = Federation("bright", (), silos, task="brightness")
    plan = Blueprint(method("fedavg"), Linear, task, 2, TrainSettings(rounds=4, lr=0.05), 0, augment=augment)
    run_folder = SavedRun(folder)
    run_folder.create()
    loop = Loop(plan, people.roster, Sequential(plan, people, strict=True), records=run_folder)
    return loop.run().rows, loop


def test_a_task_that_does_not_blend_targets_has_no_fedmix(brightness: Task) -> None:
    silo = SiloData("a", "a", *(Split(*pictures(16, seed)) for seed in range(3)))
    roster = Federation("bright", (), (silo,), task="brightness").roster
    Blueprint(method("fedavg"), Linear, brightness, 2, TrainSettings(), 0).check(roster, server_data=False)
    with pytest.raises(FairsiloError, match=r"averages targets, and the task brightness does not say how; give it the"):
        Blueprint(method("fedmix"), Linear, brightness, 2, TrainSettings(), 0).check(roster, server_data=False)


def found(rows: list[dict[str, Any]], silo: str, model: str, split: str) -> list[float]:
    return [row["metric"] for row in rows if (row["silo"], row["model"], row["split"]) == (silo, model, split)]


def test_a_task_that_is_no_classification_goes_through_a_whole_run(brightness: Task, tmp_path: Path) -> None:
    rows, _ = run_brightness(tmp_path, brightness)
    shared = found(rows, "a", "global", "test")
    assert shared[-1] < 0.5 * shared[0]
    assert all(row["metrics"] == {"error": row["metric"]} and "per_class" not in row for row in rows)


def test_the_best_model_has_the_least_error(brightness: Task, tmp_path: Path) -> None:
    rows, loop = run_brightness(tmp_path, brightness)
    for name in "ab":
        own = found(rows, name, "personal", "validation")
        best = loop.engine.stores[name].memory["silo"]["best"]  # type: ignore[attr-defined]
        assert best["metric"] == min(own) < max(own)


@pytest.mark.parametrize("follows", [True, False])
def test_inputs_and_targets_are_augmented_together(brightness: Task, tmp_path: Path, follows: bool) -> None:
    """Negated inputs with negated targets are the same linear problem; where targets stay, the opposite is learned."""
    rows, _ = run_brightness(tmp_path, Brightness(follows=follows), augment="flip")
    plain, _ = run_brightness(tmp_path / "plain", brightness)
    shared, usual = (found(some, "a", "global", "test")[-1] for some in (rows, plain))
    assert (shared < 2 * usual) == follows


# ----------------------------------------------------------------------------------------------------------- direction
def judged(round_: int, metric: float) -> dict[str, Any]:
    return {"round": round_, "silo": "a", "unseen": False, "model": "global", "split": "validation", "metric": metric}


@pytest.mark.parametrize(("higher", "chosen"), [(True, 1), (False, 2)])
def test_the_best_round_is_chosen_by_the_metrics_direction(higher: bool, chosen: int) -> None:
    rows = [judged(1, 0.9), judged(2, 0.1), judged(3, 0.5)]
    assert select_rounds(rows, "source-validation", higher) == [chosen]


@pytest.mark.parametrize(("higher", "worst", "best"), [(True, 0.1, 0.9), (False, 0.9, 0.1)])
def test_worst_and_best_silos_are_those_of_the_direction(higher: bool, worst: float, best: float) -> None:
    found = fairness({"a": 0.1, "b": 0.9, "c": 0.5}, {"a": "a", "b": "b", "c": "c"}, 0, higher)
    assert (found["worst"], found["best"]) == (worst, best)
    assert (found["worst_tenth"], found["best_tenth"]) == (worst, best)


def test_ranks_follow_the_direction() -> None:
    assert Metric("accuracy", "").rank(0.25) == 0.25
    assert Metric("error", "", higher_is_better=False).rank(0.25) == -0.25


def test_a_metric_is_said_with_what_it_is_in() -> None:
    assert Metric("balanced-accuracy", "").said(0.61349) == "balanced accuracy 61.3 %"
    assert Metric("mean-distance", "", higher_is_better=False, share=False).said(12.34567) == "mean distance 12.35"
