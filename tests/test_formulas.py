"""Rules of single parts by hand-sized numbers: a flipped sign, a swapped mask or a wrong model must not pass."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import test_adaptation
import test_silo
import tiny
from fairsilo.core.local import correct, descend, gradient
from fairsilo.core.messages import MODEL, Message, Request
from fairsilo.core.method import Method
from fairsilo.core.output import Output
from fairsilo.core.part import Part
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.server import Updates
from fairsilo.core.silo import Batch, Memory, Silo
from fairsilo.core.vectors import FlatModel, Layout
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.methods.alignment import ALIGNMENTS, coral, deep_coral, mmd
from fairsilo.methods.batch_norms import batch_norms, mean_entropy, use_batch_statistics
from fairsilo.methods.geometry import agreement_weights, consistency, cosines, distances, masked_mean
from fairsilo.methods.spectra import amplitude, window
from fairsilo.methods.text import method
from fairsilo.models.clip_networks import emulated
from test_server_rules import LAYOUT, Given


def f64(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def updates_of(*changes: list[float]) -> Updates:
    """Updates of silos a, b, ... over the layout w (3 numbers), v (1 number) and two statistics."""
    deltas = f64(*[[*change, 0.0, 0.0] for change in changes])
    names = tuple("abcdefgh"[: len(changes)])
    return Updates(names, deltas, torch.ones(len(changes)), [Message() for _ in changes], LAYOUT)


# ---------------------------------------------------------------------------------------------- FPHL: masks by history
def test_consistency_is_the_share_of_rounds_that_went_the_same_way() -> None:
    counts, raised = f64(3, 3, 0, 4), torch.tensor([True, False, True, False])
    assert consistency(counts, raised, 4).tolist() == [0.75, 0.25, 0.0, 0.0]


def test_a_masked_mean_is_over_those_whose_mask_is_set() -> None:
    deltas = f64([1, 2, 3, 4], [10, 20, 30, 40])
    mask = torch.tensor([[True, True, False, False], [True, False, True, False]])
    found = masked_mean(deltas, mask, f64(0.25, 0.75))
    assert found.tolist() == [0.25 * 1 + 0.75 * 10, 2, 30, 0]


def test_fphl_as_released_counts_changes_that_repeat() -> None:
    """Round 1 counts everything. In round 2 silo a goes on as before with the first parameter alone, b with three."""
    given = Given("fphl(tau=0.3)")
    first = given.close(a=[1.0, -1.0, 2.0, 1.0], b=[3.0, -3.0, -2.0, 1.0])
    assert first[:4].tolist() == [2, -2, 0, 1]
    second = given.close(a=[1.0, 1.0, -2.0, -1.0], b=[5.0, -1.0, -2.0, -1.0])
    assert given.server.facts["mask"].tolist() == [[True, False, False, False], [True, True, True, False]]
    assert second[:4].tolist() == [3, -1, -2, 0]
    # a has moved the second parameter once each way: half its rounds agree with either, which is more than 0.3
    third = given.close(a=[0.0, 7.0, 0.0, 0.0], b=[0.0, 4.0, 0.0, 0.0])
    assert third[1] == 7  # b lowered it twice


def test_fphl_asks_for_more_than_tau_as_released_and_for_tau_in_the_paper() -> None:
    changes = ({"a": [1.0] * 4}, {"a": [-1.0] * 4}, {"a": [1.0] * 4})
    released, printed, stricter = (
        Given(f"fphl({text})") for text in ("tau=0.5", "variant=paper, tau=0.5", "variant=paper, tau=0.6")
    )
    # released: nothing before round 1; then 0 of 1 rounds; then 1 of 2, which is not more than half
    assert [float(released.close(**change)[0]) for change in changes] == [1, 0, 0]
    # in the paper the round itself counts: 1 of 1, 1 of 2, 2 of 3
    assert [float(printed.close(**change)[0]) for change in changes] == [1, -1, 1]
    assert [float(stricter.close(**change)[0]) for change in changes] == [1, 0, 1]


@pytest.mark.parametrize(("variant", "same_way"), [("released", -1.0), ("paper", 1.0)])
def test_a_parameter_that_did_not_move_counts_as_raised(variant: str, same_way: float) -> None:
    """The released code looks at the received model minus the local one, so its `raised` is a fall of the parameter."""
    for change, counted in ((same_way, True), (-same_way, False)):
        given = Given(f"fphl(variant={variant}, tau=0.9)")
        given.close(a=[0.0] * 4)
        assert (given.close(a=[change] * 4)[0] == change) == counted


def test_fphl_masks_statistics_where_asked() -> None:
    for text, expected in (("fphl", -1.0), ("fphl(mask_buffers=true)", 0.0)):
        how, server = method(text), Given(text).server
        for value in (1.0, -1.0):
            updates = updates_of([value] * 4)
            updates.deltas[:] = value
            collected = how.parts[0].collect(server, updates)
            moved = how.parts[0].combine(server, collected, f64(1.0))
        assert moved[:4].tolist() == [0.0] * 4
        assert moved[4:6].tolist() == [expected] * 2


# ---------------------------------------------------------------------------------------- FAEL: weights by distances
CHANGES = {"a": [3.0, 4.0, 0.0, 2.0], "b": [0.0, 0.0, 2.0, 1.0], "c": [0.0, 0.0, 0.0, 0.0]}


def test_distances_by_hand() -> None:
    updates = updates_of(*CHANGES.values())
    assert distances(updates, None, "released").tolist() == [5 + 2, 2 + 1, 0]
    assert distances(updates, None, "paper").tolist() == pytest.approx([29, 5, 0])
    mask = torch.tensor([[True, False, True, True], [True, True, True, False], [True, True, True, True]])
    assert distances(updates, mask, "released").tolist() == [3 + 2, 2, 0]
    assert distances(updates, mask, "paper").tolist() == pytest.approx([13, 4, 0])


def test_fael_gives_more_weight_to_those_who_moved_further() -> None:
    given = Given("fael(beta=0.4)")
    given.close(**CHANGES)
    after = [1 / 3 + 0.4 * 0.7, 1 / 3 + 0.4 * 0.3, 1 / 3]
    assert list(given.server.weights.values()) == pytest.approx([value / 1.4 for value in after])
    given.close(
        **CHANGES
    )  # momentum: 0.6 of the last one and 0.4 of the new shares; weights are not normalised between
    again = [value + 0.6 * 0.4 * share + 0.4 * share for value, share in zip(after, (0.7, 0.3, 0), strict=True)]
    assert list(given.server.weights.values()) == pytest.approx([value / sum(again) for value in again])


def test_fael_of_the_paper_squares_distances_and_normalises_every_round() -> None:
    given, shares = Given("fael(variant=paper, beta=0.4)"), (29 / 34, 5 / 34, 0)
    weights, momenta = [1 / 3] * 3, [0.0] * 3
    for _ in range(2):
        given.close(**CHANGES)
        momenta = [0.6 * old + 0.4 * share for old, share in zip(momenta, shares, strict=True)]
        weights = [old + step for old, step in zip(weights, momenta, strict=True)]
        weights = [value / sum(weights) for value in weights]
        assert list(given.server.weights.values()) == pytest.approx(weights)


def test_fael_of_the_paper_shares_momentum_equally_where_nobody_moved() -> None:
    given = Given("fael(variant=paper, beta=0.4)")
    given.close(a=[0.0] * 4, b=[0.0] * 4, c=[0.0] * 4)
    assert list(given.server.weights.values()) == pytest.approx([1 / 3] * 3)
    given.close(**CHANGES)
    weights = [1 / 3 + 0.6 * 0.4 / 3 + 0.4 * share for share in (29 / 34, 5 / 34, 0)]
    assert list(given.server.weights.values()) == pytest.approx([value / sum(weights) for value in weights])


def test_fedheal_measures_what_the_mask_leaves() -> None:
    given = Given("fedheal(tau=0.3, beta=0.4)")
    given.close(a=[3.0, 4.0, 0.5, 2.0], b=[1.0, 1.0, 1.0, 1.0])
    given.close(a=[3.0, -4.0, 0.0, 2.0], b=[1.0, -1.0, -1.0, -4.0])
    # a: the second parameter turned round, the third did not move (a fall as released); b: only the first goes on
    assert given.server.facts["mask"].tolist() == [[True, False, False, True], [True, False, False, False]]
    assert given.server.facts["distances"].tolist() == [3 + 2, 1]


# ------------------------------------------------------------------------------------------ GRACE: weights by cosines
def test_cosines_by_hand() -> None:
    rows = f64([2, 0], [1, 1], [0, 3], [0, 0])
    half = 0.5**0.5
    expected = f64([1, half, 0, 0], [half, 1, half, 0], [0, half, 1, 0], [0, 0, 0, 0])
    torch.testing.assert_close(cosines(rows @ rows.T), expected)


@pytest.mark.parametrize("diagonal", [False, True])
def test_agreement_weights_by_hand(diagonal: bool) -> None:
    rows, shares = f64([2, 0], [1, 1], [0, 3]), f64(0.2, 0.3, 0.5)
    own, half = float(diagonal), 0.5**0.5
    agreement = [own + half, own + 2 * half, own + half]
    raw = [share * value for share, value in zip((0.2, 0.3, 0.5), agreement, strict=True)]
    expected = [value / sum(raw) for value in raw]
    assert agreement_weights(cosines(rows @ rows.T), shares, diagonal).tolist() == pytest.approx(expected)
    given = Given(f"grace-server(include_diagonal={str(diagonal).lower()})")
    given.close(a=[2.0, 0.0, 0.0, 0.0], b=[1.0, 1.0, 0.0, 0.0], c=[0.0, 3.0, 0.0, 0.0])
    assert list(given.server.weights.values()) == pytest.approx([value / sum(agreement) for value in agreement])


def test_negative_agreement_is_shifted_until_the_lowest_is_a_thousandth() -> None:
    rows = f64([1, 0], [2, 0], [-1, 0])
    found = agreement_weights(cosines(rows @ rows.T), f64(1 / 3, 1 / 3, 1 / 3), False)
    assert found.tolist() == pytest.approx(
        [1.001 / 2.003, 1.001 / 2.003, 0.001 / 2.003]
    )  # means 0, 0 and -1, plus 1.001


def test_graces_step_moves_what_is_trained_and_not_the_statistics() -> None:
    part = method("grace-server(server_lr=0.5)").parts[0]
    moved = part.step(Given("grace-server").server, torch.ones(6, dtype=torch.float64))
    assert moved.tolist() == [0.5] * 4 + [1.0] * 2


# ---------------------------------------------------------------------------------------------- alignment of features
ONE, OTHER = f64([0.0], [2.0]), f64([1.0], [4.0])


def test_alignments_by_hand() -> None:
    """Means 1 and 2.5, variances 2 and 4.5; squared distances 4 and 9 inside the sets, 1, 16, 1 and 4 across."""
    assert float(coral(ONE, OTHER)) == pytest.approx(1.5**2 + 2.5**2)
    assert float(deep_coral(ONE, OTHER)) == pytest.approx(2.5**2 / 4)

    def kernel(*squares: float) -> float:
        return sum(math.exp(-gamma * d) for gamma in (1e-3, 1e-2, 0.1, 1, 10, 100, 1000) for d in squares) / len(
            squares
        )

    expected = kernel(0, 4, 4, 0) + kernel(0, 9, 9, 0) - 2 * kernel(1, 16, 1, 4)
    assert float(mmd(ONE, OTHER)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("name", "function"), [("coral", coral), ("deep-coral", deep_coral), ("mmd", mmd)])
def test_the_setting_chooses_the_alignment(name: str, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ALIGNMENTS[name] is function
    silo = test_silo.made()
    batch = silo.batch(silo.data.train, torch.arange(2))
    monkeypatch.setattr(Silo, "reference", lambda *_: Output(OTHER, OTHER))  # the features of the received model
    part = method(f"only-da(align={name}, align_weight=0.5)").parts[0]
    found = part.loss(silo, f64(7.0), Output(ONE, ONE), batch)
    assert float(found) == pytest.approx(7 + 0.5 * float(function(ONE, OTHER)))


# --------------------------------------------------------------------------------------------------- reference models
class Moody(nn.Module):
    """Twice as much in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0]))
        self.norm = nn.BatchNorm1d(1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.norm(inputs) * self.weight * (2 if self.training else 1)


def moody_silo() -> Silo:
    module = Moody()
    model = FlatModel(module, Layout.of(module))
    model.train()
    return test_silo.made(model=model, untrained=model.read().clone)


def test_a_reference_model_is_in_evaluation_mode_and_leaves_no_trace() -> None:
    silo, inputs = moody_silo(), torch.tensor([[1.0], [5.0]])
    before = silo.model.read().clone()
    other = before.clone()
    other[0] = 10.0
    found = silo.reference(inputs, other).prediction
    torch.testing.assert_close(found, 10 * inputs / math.sqrt(1 + 1e-5))  # statistics 0 and 1, not the batch's
    assert not found.requires_grad
    assert torch.equal(silo.model.read(), before)  # statistics and counter too
    assert silo.model.module.training
    assert all(module.training for module in silo.model.module.modules())


# ------------------------------------------------------------------------------------------ what only a survivor showed
def test_mean_entropy_by_hand() -> None:
    """ln 2 for two equal classes, 0 for a certain one."""
    logits = f64([0.0, 0.0, -1e9], [0.0, -1e9, -1e9])
    assert float(mean_entropy(logits)) == pytest.approx(math.log(2) / 2)


def test_a_window_of_images_that_are_not_square() -> None:
    assert window(4, 10, 0.3) == (slice(1, 4), slice(4, 7))  # half-size 1 around row 2 and column 5
    data = SiloData("a", "a", *(Split(torch.rand(3, 2, 4, 10), torch.zeros(3, dtype=torch.long)) for _ in range(3)))
    silo = test_silo.made(data=data)
    part = method("harmofl(window=0.3)").parts[0]
    found = part.share(silo, Message()).tensors["amplitude"]
    expected = amplitude((data.train.inputs + 1) / 2).mean(0)[:, 1:4, 4:7]
    torch.testing.assert_close(found, expected)


def test_tent_forgets_the_gradient_of_the_batch_before(people: Federation) -> None:
    """Each step of Adam is by the entropy of its own batch alone."""
    silos = [test_adaptation.unseen("tent(adapt_lr=0.1)", people) for _ in range(2)]
    for silo in silos:
        silo.load(silo.message.tensors["model"])
    images = test_adaptation.images(silos[0])
    some = [images[:4], images[4:]]
    ours = silos[0]
    list(ours.method.hooks("adapt")[0](ours, lambda _: iter(some)))
    theirs = silos[1].model
    use_batch_statistics(theirs.module)
    leaves = [one for norm in batch_norms(theirs.module) for one in (norm.weight, norm.bias)]
    values = [one.detach().clone().requires_grad_(True) for one in leaves]
    optimizer = torch.optim.Adam(values, lr=0.1)
    for batch in some:
        for leaf, value in zip(leaves, values, strict=True):
            leaf.data.copy_(value)
        theirs.gradients.zero_()
        mean_entropy(theirs.module(batch).prediction).backward()
        for leaf, value in zip(leaves, values, strict=True):
            value.grad = leaf.grad.clone()
        optimizer.step()
    found = [one for norm in batch_norms(ours.model.module) for one in (norm.weight, norm.bias)]
    for one, value in zip(found, values, strict=True):
        torch.testing.assert_close(one.detach(), value.detach())


@dataclass(frozen=True)
class Counting(Part):
    """Counts how often gradients are corrected."""

    name = "counting"

    def gradients(self, silo: Silo) -> None:
        silo.scratch["corrected"] = silo.scratch.get("corrected", 0) + 1


@pytest.mark.parametrize("how", ["fedavg", "fedsam", "elcfs", "only-ml", "per-fedavg"])
def test_corrections_apply_once_a_step(how: str, people: Federation) -> None:
    """However many passes find the gradient, only the one that is used is corrected."""
    plan = tiny.plan(method(how) | Method((Counting(),), "counting"))
    model = plan.flat()
    start = model.read()
    silo = plan.silo(model, people["a"], Request("train", 1, Message({MODEL: start})), Memory())
    silo.load(start)
    for begin in silo.method.hooks("begin"):
        begin(silo)
    loops = silo.method.hooks("train")
    loops[0](silo) if loops else descend(silo)
    assert silo.scratch["corrected"] == silo.steps > 0


@pytest.mark.parametrize(
    ("how", "training", "sentence"),
    [
        ("fednova", {"optimizer": "adam"}, "must be sgd"),
        ("fednova", {"keep_optimizer_state": True}, "keep_optimizer_state must be false"),
    ],
)
def test_a_path_that_cannot_be_measured_is_refused(how: str, training: dict[str, Any], sentence: str) -> None:
    settings = dataclasses.replace(tiny.TRAINING, **training)
    with pytest.raises(FairsiloError, match=sentence):
        method(how).parts[0].fits(LAYOUT, settings)


def test_without_epochs_nothing_is_fine_tuned() -> None:
    assert method("fine-tune").personalises
    assert not method("fine-tune(finetune_epochs=0)").personalises


@pytest.mark.parametrize(("bound", "expected"), [(1.0, (0.6, 0.8)), (10.0, (3.0, 4.0)), (None, (3.0, 4.0))])
def test_the_norm_of_a_gradient_is_bounded_where_asked(bound: float | None, expected: tuple[float, float]) -> None:
    silo = test_silo.made(training=dataclasses.replace(tiny.TRAINING, clip=bound))
    silo.model.gradients.zero_()
    silo.model.gradients[0], silo.model.gradients[-1] = 3.0, 4.0
    correct(silo)
    assert (float(silo.model.gradients[0]), float(silo.model.gradients[-1])) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("batches", [1, 2])
def test_the_loss_that_is_reported_is_the_mean_over_the_steps(batches: int) -> None:
    silo, losses = test_silo.made(8 * batches), []

    def step(silo: Silo, batch: Batch) -> Tensor:
        losses.append(gradient(silo, batch))
        return losses[-1]

    found = descend(silo, step)
    assert len(losses) == batches
    assert float(found) == pytest.approx(float(sum(losses)) / batches)


def test_the_emulator_of_fedot_keeps_both_ends_of_the_middle() -> None:
    assert emulated(2, 5, 1) == [2]
    assert emulated(2, 5, 2) == [2, 6]
    assert emulated(2, 5, 3) == [2, 4, 6]
