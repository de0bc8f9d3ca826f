"""Losses and metrics of the tasks, against other people's implementations and by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from fairsilo.core.streams import Batches
from fairsilo.core.task import Task
from fairsilo.errors import FairsiloError
from fairsilo.tasks.classify import BINS, Classify
from fairsilo.tasks.next_character import NextCharacter
from fairsilo.tasks.options import Options
from fairsilo.tasks.registry import task_of
from fairsilo.tasks.regress import Regress
from fairsilo.tasks.segment import Segment

TASKS = [Classify(4), Segment(3), NextCharacter(4), Regress()]


def drawn(task: Task, count: int = 60, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs that know something of their targets."""
    stream = torch.Generator().manual_seed(seed)
    if task.name == "regress":
        targets = torch.randn(count, generator=stream)
        return targets[:, None] + 0.5 * torch.randn(count, 1, generator=stream), targets
    shape = (count, 8, 6) if task.name == "segment" else (count,)
    targets = torch.randint(task.classes, shape, generator=stream)
    known = F.one_hot(targets, task.classes).movedim(-1, 1)
    return 1.5 * known + torch.randn(known.shape, generator=stream), targets


def measured(task: Task, prediction: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    return dict(task.measure(task.tally(prediction, targets)).metrics)


# ------------------------------------------------------------------------------------------------------ for every task
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_tallies_of_batches_add_up_to_that_of_all(task: Task) -> None:
    prediction, targets = drawn(task)
    whole = task.tally(prediction, targets)
    pieces = sum(task.tally(prediction[some], targets[some]) for some in (slice(0, 7), slice(7, None)))
    torch.testing.assert_close(whole, pieces)
    assert whole.dtype == torch.float64


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_measured_loss_is_the_one_that_is_trained(task: Task) -> None:
    prediction, targets = drawn(task)
    found = task.measure(task.tally(prediction, targets))
    assert found.loss == pytest.approx(float(task.loss(prediction.double(), targets)), rel=1e-9)
    assert found.samples == len(targets)
    assert set(found.metrics) <= {one.name for one in task.metrics}
    assert found.metric == found.metrics[task.reported.name]
    assert set(found.per_class) == set(task.per_class)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_better_predictions_measure_better(task: Task) -> None:
    """Of every metric, in its own direction."""
    prediction, targets = drawn(task)
    noise = torch.randn(prediction.shape, generator=torch.Generator().manual_seed(9))
    better, worse = (measured(task, prediction + factor * noise, targets) for factor in (0.0, 4.0))
    for one in task.metrics:
        assert one.rank(better[one.name]) > one.rank(worse[one.name]), one.name


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_guess_costs_what_the_task_says(task: Task) -> None:
    """Even scores, or 0, on targets that are even, or vary by 1: half of the areas overlap where all are equal."""
    _, targets = drawn(task, 4000)
    blank = torch.zeros(len(targets), task.output.values, *targets.shape[1:])
    assert task.guess == pytest.approx(float(task.loss(blank, targets)), rel=0.05)


def test_options_without_effect_are_refused() -> None:
    for name, given, words in (
        ("regress", {"smoothing": 0.1}, "task.smoothing has no effect on the loss 'squared'"),
        ("classify", {"gamma": 1.0}, "task.gamma has no effect on the loss 'cross-entropy'"),
        ("classify", {"loss": "focal", "smoothing": 0.1}, "task.smoothing has no effect on the loss 'focal'"),
        ("segment", {"loss": "dice", "weights": (1.0, 2.0)}, "task.class_weights has no effect on the loss 'dice'"),
        ("classify", {"loss": "dice"}, "task.loss is 'dice', which the task 'classify' does not have"),
        ("next-character", {"scale": 2.0}, "task.scale has no effect"),
    ):
        with pytest.raises(FairsiloError, match=words.replace("(", r"\(")):
            task_of(name, 2, options=Options(**given))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ classification
@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_of_classes_are_torchmetrics(classes: int) -> None:
    from torchmetrics.functional import accuracy, auroc, calibration_error, f1_score, recall, specificity

    task = Classify(classes)
    prediction, targets = drawn(task, 400)
    shares = prediction.double().softmax(1)
    found = measured(task, prediction, targets)
    several = {"task": "multiclass", "num_classes": classes}
    expected = {
        "accuracy": accuracy(shares, targets, average="micro", **several),
        "balanced-accuracy": recall(shares, targets, average="macro", **several),
        "macro-f1": f1_score(shares, targets, average="macro", **several),
        "auroc": auroc(shares, targets, average="macro", **several),
        "ece": calibration_error(shares, targets, n_bins=BINS, **several),
        "sensitivity": recall(shares, targets, average="macro", **several),
        "specificity": specificity(shares, targets, average="macro", **several),
    }
    if classes == 2:
        said = shares.argmax(1)
        expected |= {"sensitivity": recall(said, targets, task="binary")}
        expected |= {"specificity": specificity(said, targets, task="binary")}
    for name, value in expected.items():
        assert found[name] == pytest.approx(float(value), abs=0.003 if name == "auroc" else 1e-6), name


def test_the_confusion_says_what_is_taken_for_what() -> None:
    task = Classify(3)
    logits = F.one_hot(torch.tensor([1, 1, 0, 2]), 3).float()
    found = task.measure(task.tally(logits, torch.tensor([0, 1, 0, 2])))
    assert found.per_pair == {"confusion": ((1.0, 1.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))}
    assert found.per_class["predicted"] == (1.0, 2.0, 1.0)
    assert Classify(65).per_pair == ()


def test_what_one_class_alone_cannot_tell_is_left_out() -> None:
    found = measured(Classify(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 1]))
    assert found["sensitivity"] == 0.5
    assert "specificity" not in found
    assert "auroc" not in found


def test_weights_of_classes_and_smoothing_are_torchs() -> None:
    prediction, targets = drawn(Classify(4))
    weights = (0.5, 2.0, 1.0, 3.0)
    task = Classify(4, options=Options(weights=weights, smoothing=0.2))
    expected = F.cross_entropy(prediction, targets, torch.tensor(weights), label_smoothing=0.2)
    torch.testing.assert_close(task.loss(prediction, targets), expected)
    assert task.measure(task.tally(prediction, targets)).loss == pytest.approx(float(expected), rel=1e-6)


def test_a_focal_loss_without_focus_is_cross_entropy() -> None:
    prediction, targets = drawn(Classify(4))
    plain = Classify(4, options=Options(loss="focal", gamma=0.0))
    torch.testing.assert_close(plain.loss(prediction, targets), F.cross_entropy(prediction, targets))
    by_hand = [3.0 * (1 - p) ** 2 * -math.log(p) for p in prediction.double().softmax(1)[range(60), targets].tolist()]
    focal = Classify(4, options=Options(loss="focal", weights=(3.0,) * 4))
    assert float(focal.loss(prediction.double(), targets)) == pytest.approx(sum(by_hand) / 60)


# -------------------------------------------------------------------------------------------------------- segmentation
@pytest.mark.filterwarnings("ignore")  # of MONAI about itself and about empty masks
def test_dice_is_monais() -> None:
    from monai.metrics import compute_dice, compute_hausdorff_distance

    task = Segment(3, "hd95")
    prediction, targets = drawn(task, 12)
    targets[0] = 0  # shows no structure, but is said to
    said = F.one_hot(prediction.argmax(1), 3).movedim(-1, 1)
    true = F.one_hot(targets, 3).movedim(-1, 1)
    each = compute_dice(said, true, include_background=True, ignore_empty=False)
    found = task.measure(task.tally(prediction, targets))
    assert found.metrics["dice"] == pytest.approx(float(each[:, 1:].mean(0).mean()), rel=1e-5)
    assert found.metrics["dice-with-background"] == pytest.approx(float(each.mean(0).mean()), rel=1e-5)
    distances = compute_hausdorff_distance(said, true, include_background=True, percentile=95)[:, 1:]
    known = torch.where(distances.isfinite(), distances, torch.nan)
    assert found.metric == pytest.approx(float(known.nanmean(0).mean()), rel=1e-5)
    assert found.per_class["samples"] == (12.0, 11.0, 11.0)


def test_the_dice_loss_is_monais() -> None:
    from monai.losses import DiceLoss

    task = Segment(3, options=Options(loss="dice"))
    prediction, targets = drawn(task, 5)
    theirs = DiceLoss(softmax=True, to_onehot_y=True, batch=True, smooth_nr=1e-5, smooth_dr=1e-5)
    torch.testing.assert_close(task.loss(prediction, targets), theirs(prediction, targets[:, None]))
    both = Segment(3)
    expected = (theirs(prediction, targets[:, None]) + F.cross_entropy(prediction, targets)) / 2
    torch.testing.assert_close(both.loss(prediction, targets), expected)


def test_an_image_without_structures_counts_where_one_is_predicted_only() -> None:
    empty = torch.zeros(1, 4, 4, dtype=torch.long)
    background, structure = (torch.zeros(1, 2, 4, 4).index_fill(1, torch.tensor([k]), 9.0) for k in (0, 1))
    task = Segment(2)
    right = task.tally(structure, empty + 1)
    assert task.measure(right).metrics["dice"] == 1
    assert task.measure(right + task.tally(background, empty)).metrics["dice"] == 1
    assert task.measure(right + task.tally(structure, empty)).metrics["dice"] == 0.5
    with pytest.raises(ValueError, match="no image shows a structure"):
        task.measure(task.tally(background, empty))


def test_masks_are_stratified_by_the_structures_they_show() -> None:
    targets = torch.zeros(4, 2, 2, dtype=torch.uint8)
    targets[1, 0, 0], targets[2, 0, 0], targets[3, 0] = 1, 2, torch.tensor([1, 2])
    assert Segment(3).strata(targets).tolist() == [0, 1, 2, 3]
    assert Segment(3).occurrences(targets).tolist() == [4, 2, 2]  # type: ignore[union-attr]


def test_masks_follow_their_images() -> None:
    """A mask that is a function of its image still is, after a crop and a mirror; from outside comes background."""
    task = Segment(2)
    stream = torch.Generator().manual_seed(0)
    images = torch.rand(20, 1, 16, 16, generator=stream) * 2 - 1
    targets = (images[:, 0] > 0).long()
    changed, masks = task.augment(images, targets, task.draws("crop+flip", (1, 16, 16), Batches([(20, stream)])))
    assert torch.equal(masks, (changed[:, 0] > 0).long())
    assert not torch.equal(changed, images)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (torch.zeros(3, dtype=torch.long), "has targets of one number for an image"),
        (torch.full((3, 4, 4), 2), "has masks with classes from 2 to 2, and there are 2"),
        (torch.zeros(3, 4, 4), "has targets of 4x4 for an image; masks are height x width class numbers"),
    ],
)
def test_targets_that_are_no_masks_are_named(targets: torch.Tensor, words: str) -> None:
    assert words in str(Segment(2).fault(targets))


# ---------------------------------------------------------------------------------------------------------- regression
def test_errors_are_in_the_units_of_the_data() -> None:
    from torchmetrics.functional import mean_absolute_error, mean_squared_error, r2_score

    task = Regress(options=Options(offset=5000.0, scale=100.0))
    stream = torch.Generator().manual_seed(0)
    targets = 5000 + 100 * torch.randn(50, generator=stream, dtype=torch.float64)
    prediction = (targets[:, None] - 5000) / 100 + 0.3 * torch.randn(50, 1, generator=stream, dtype=torch.float64)
    said = 5000 + 100 * prediction[:, 0]
    found = measured(task, prediction, targets)
    assert found["mae"] == pytest.approx(float(mean_absolute_error(said, targets)))
    assert found["rmse"] == pytest.approx(float(mean_squared_error(said, targets, squared=False)))
    assert found["r2"] == pytest.approx(float(r2_score(said, targets)))
    assert float(task.loss(prediction, targets)) == pytest.approx(float(((said - targets) / 100).square().mean()))
    torch.testing.assert_close(task.predicted(prediction), said)
    absolute = Regress(options=Options(loss="absolute", scale=100.0, offset=5000.0))
    assert float(absolute.loss(prediction, targets)) == pytest.approx(found["mae"] / 100)


def test_numbers_are_stratified_by_tenths() -> None:
    strata = Regress().strata(torch.arange(40.0).flip(0))
    assert torch.bincount(strata).tolist() == [4] * 10
    assert strata[0] == 9
    assert Regress().strata(torch.tensor([3.0, 1.0])).tolist() == [1, 0]


def test_equal_targets_have_no_explained_variance() -> None:
    found = measured(Regress(), torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 1.0]))
    assert found == {"mae": 0.5, "rmse": pytest.approx(math.sqrt(0.5))}
    with pytest.raises(ValueError, match="r2 is undefined on 2 samples"):
        Regress(metric="r2").measure(Regress().tally(torch.zeros(2, 1), torch.ones(2)))


def test_what_is_no_number_is_named() -> None:
    assert "no finite number" in str(Regress().fault(torch.tensor([1.0, math.nan])))
    assert "each sample has one number" in str(Regress().fault(torch.zeros(2, 3)))


# ------------------------------------------------------------------------------------------- several targets as one
BLENDING = [
    *TASKS,
    Classify(4, options=Options(smoothing=0.1)),
    Classify(4, options=Options(weights=(1.0, 2.0, 0.5, 4.0), smoothing=0.1)),
    Classify(4, options=Options(loss="focal", weights=(1.0, 2.0, 0.5, 4.0), gamma=1.5)),
    Segment(3, options=Options(loss="dice")),
    Segment(3, options=Options(loss="cross-entropy", weights=(1.0, 2.0, 0.5), smoothing=0.2)),
    Regress(options=Options(loss="absolute", offset=3.0, scale=2.0)),
]


@pytest.mark.parametrize("task", BLENDING, ids=lambda task: f"{task.name}-{task.options.loss}")
def test_a_blend_of_equal_targets_is_that_target(task: Classify | Segment | Regress) -> None:
    prediction, targets = (one.double() if one.is_floating_point() else one for one in drawn(task))
    blended = task.blended(torch.stack([targets] * 3, 1))
    assert blended.shape == prediction.shape
    torch.testing.assert_close(task.loss(prediction, blended), task.loss(prediction, targets))


def test_shares_of_classes_by_hand() -> None:
    shares = Classify(3).blended(torch.tensor([[0, 0, 1, 2], [2, 2, 2, 2]]))
    assert shares.tolist() == [[0.5, 0.25, 0.25], [0, 0, 1]]
    maps = Segment(2).blended(torch.tensor([[[[0, 1]], [[1, 1]]]], dtype=torch.uint8))
    assert maps.tolist() == [[[[0.5, 0.0]], [[0.5, 1.0]]]]
    assert Regress().blended(torch.tensor([[1, 2], [5, 6]])).tolist() == [[1.5], [5.5]]


def test_losses_of_shares_by_hand() -> None:
    likely = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]], dtype=torch.float64)
    shares = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]], dtype=torch.float64)
    weights = (1.0, 2.0, 4.0)
    surprise, heavy = -likely.log(), torch.tensor(weights, dtype=torch.float64)
    weighted = Classify(3, options=Options(weights=weights)).loss(likely.log(), shares)
    torch.testing.assert_close(weighted, (heavy * shares * surprise).sum() / (heavy * shares).sum())
    focal = Classify(3, options=Options(loss="focal", weights=weights, gamma=2.0)).loss(likely.log(), shares)
    torch.testing.assert_close(focal, (heavy * shares * (1 - likely).square() * surprise).sum() / 2)
    dice = Segment(3, options=Options(loss="dice")).loss(likely.log().T[None, :, None], shares.T[None, :, None])
    areas = 2 * (likely * shares).sum(0) / (likely.sum(0) + shares.sum(0))
    assert float(dice) == pytest.approx(1 - float(areas.mean()), abs=1e-5)
    squared = Regress(options=Options(offset=1.0, scale=2.0)).loss(torch.tensor([[0.5]]), torch.tensor([[4.0]]))
    assert float(squared) == 1.0
