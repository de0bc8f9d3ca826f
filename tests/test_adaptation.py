"""Test-time adaptation at the unseen silo: what changes, what must not, and that labels are never looked at."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tiny
from fairsilo.core.answers import adapt_silo
from fairsilo.core.messages import MODEL, Message, Request
from fairsilo.core.round import open_adaptation
from fairsilo.core.samples import Split
from fairsilo.core.silo import Memory, Silo, prepare
from fairsilo.data.federation import Federation
from fairsilo.models.mixtures import RoutedConv, routed


def unseen(how: str, people: Federation, **changes: Any) -> Silo:
    """The unseen silo with a trained global model."""
    _, loop = tiny.run("fedavg", people)
    plan = tiny.plan(how)
    message = Message({MODEL: loop.server.vector})
    data = dataclasses.replace(people["u"], **changes)
    return plan.silo(plan.flat(), data, Request("adapt", 3, message), Memory())


def images(silo: Silo) -> Tensor:
    return prepare(silo.data.test.inputs, torch.device("cpu"), torch.float32)


def test_dsbn_takes_mean_and_variance_of_the_unseen_images_and_nothing_else(people: Federation) -> None:
    silo = unseen("dsbn(adapt_batch=64)", people)
    before = silo.message.tensors[MODEL].clone()
    adapt_silo(silo)
    after, layout = silo.model.read(), silo.model.layout
    assert torch.equal(after[: layout.parameters], before[: layout.parameters])
    convolution = silo.model.module.get_submodule("features.0")
    seen = convolution(images(silo))
    views = layout.views(after)
    torch.testing.assert_close(views["features.1.running_mean"], seen.mean((0, 2, 3)).detach())
    torch.testing.assert_close(views["features.1.running_var"], seen.var((0, 2, 3)).detach(), rtol=1e-4, atol=1e-6)
    assert silo.model.module.get_submodule("features.1").momentum == 0.1


def test_dsbn_batch_by_batch_normalises_each_batch_by_itself(people: Federation) -> None:
    silo = unseen("dsbn(statistics=batch, adapt_batch=6)", people)
    silo.load(silo.message.tensors[MODEL])
    some = images(silo)
    found = list(silo.method.hooks("adapt")[0](silo, lambda _: iter([some[:6], some[6:]])))
    module = silo.model.module
    module.train()
    torch.testing.assert_close(found[1], module(some[6:]).prediction.detach())


def test_tent_changes_scale_and_shift_alone_and_restores_gradients(people: Federation) -> None:
    silo = unseen("tent(adapt_lr=0.01, adapt_batch=6)", people)
    before = silo.model.layout.views(silo.message.tensors[MODEL].clone())
    adapt_silo(silo)
    after = silo.model.layout.views(silo.model.read())
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"features.1.weight", "features.1.bias"} <= changed
    assert not {"features.0.weight", "features.0.bias", "head.weight", "head.bias"} & changed
    assert all(parameter.requires_grad for parameter in silo.model.module.parameters())


class FrozenStem(tiny.TinyNet):
    def __init__(self, classes: int, channels: int) -> None:
        super().__init__(classes, channels)
        self.features[1].requires_grad_(False)


@pytest.mark.parametrize("how", ["dsbn", "tent"])
def test_frozen_norms_are_as_before_afterwards(how: str, people: Federation) -> None:
    """They are in no vector, so nothing but the exchange itself can restore them."""
    model = nn.Sequential  # a second, trainable BatchNorm, since both adaptations need one

    class Both(FrozenStem):
        def __init__(self, classes: int, channels: int) -> None:
            super().__init__(classes, channels)
            self.features = model(*self.features[:2], nn.BatchNorm2d(6), *self.features[2:])

    plan = tiny.plan(how, model=Both)
    flat = plan.flat()
    frozen = flat.module.get_submodule("features.1")
    before = {name: buffer.clone() for name, buffer in frozen.named_buffers()}
    silo = plan.silo(flat, people["u"], Request("adapt", 1, Message({MODEL: plan.start()[1]})), Memory())
    adapt_silo(silo)
    assert all(torch.equal(before[name], buffer) for name, buffer in frozen.named_buffers())


@pytest.mark.parametrize("how", ["dsbn", "tent(adapt_lr=0.05)", "iop-fl"])
def test_labels_are_never_looked_at(how: str, people: Federation) -> None:
    """With all labels the same the model adapts to the same tensors, so only the score may differ."""
    found = []
    for targets in (people["u"].test.targets, torch.zeros_like(people["u"].test.targets)):
        silo = unseen(how, people, test=Split(people["u"].test.inputs, targets))
        if how == "iop-fl":
            silo.message.tensors["routed-kernels.models"] = silo.message.tensors[MODEL].repeat(2, 1)
        predictions: list[Tensor] = []
        owner = silo.method.hooks("adapt")[0]

        def kept(silo: Silo, batches: Any, owner: Any = owner, predictions: list[Tensor] = predictions) -> Any:
            predictions += list(owner(silo, batches))
            return iter(predictions)

        silo.method.__dict__["_hooks"]["adapt"] = (kept,)
        torch.manual_seed(0)
        adapt_silo(silo)
        found.append(torch.cat(predictions).detach())
    assert torch.equal(found[0], found[1])


def test_the_adapted_model_is_a_result_of_its_own(people: Federation) -> None:
    history, loop = tiny.run("fedavg | tent", people)
    kinds = [[e["kind"] for e in record["exchanges"]] for record in history.rounds]
    assert kinds == [["train", "evaluate", "adapt"]] * 3
    assert {row["silo"] for row in history.rows if row["model"] == "adapted"} == {"u"}
    plain, _ = tiny.run("fedavg", people)
    assert [row for row in history.rows if row["model"] != "adapted"] == plain.rows
    assert torch.equal(history.vector, plain.vector)
    assert loop.blueprint.method.results == "global"


def test_every_sample_is_scored_once_whatever_the_batches(people: Federation) -> None:
    history, _ = tiny.run("dsbn(adapt_batch=7)", people)
    rows = [row for row in history.rows if row["model"] == "adapted"]
    assert {row["samples"] for row in rows} == {18}


# --------------------------------------------------------------------------------------------------------------- IOP-FL
def test_a_routed_convolution_mixes_kernels_per_image() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)
    kernels, biases = torch.randn(3, *conv.weight.shape), torch.randn(3, 4)
    mixture = RoutedConv(conv, kernels, biases).eval()
    x = torch.randn(5, 2, 6, 6)
    weights = torch.sigmoid(mixture.router(x.mean((2, 3))))
    expected = [
        F.conv2d(x[i : i + 1], (weights[i].view(-1, 1, 1, 1, 1) * kernels).sum(0), weights[i] @ biases, 2, 1, 1, 2)
        for i in range(5)
    ]
    torch.testing.assert_close(mixture(x), torch.cat(expected))


def test_a_convolution_without_a_bias_is_routed_too() -> None:
    kernels = torch.randn(2, 4, 3, 3, 3)
    (mixture,) = routed(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False)), [{"0.weight": one} for one in kernels])
    assert isinstance(mixture, RoutedConv)
    assert torch.equal(mixture.kernels, kernels)
    assert mixture.biases is None
    assert mixture(torch.randn(5, 3, 6, 6)).shape == (5, 4, 4, 4)


def test_iop_fl_ships_personal_models_to_the_newcomer_and_says_so(people: Federation) -> None:
    history, loop = tiny.run("iop-fl", people)
    assert any("personal model" in text and "unseen" in text for text in loop.blueprint.method.sends)
    kinds = [[e["kind"] for e in record["exchanges"]] for record in history.rounds]
    assert kinds == [["train", "evaluate"]] * 2 + [["train", "evaluate", "share", "adapt"]]  # it is long: once
    adapt = history.rounds[-1]["exchanges"][-1]
    message = open_adaptation(loop.server, ["u"])["u"]
    models = message.tensors["routed-kernels.models"]
    assert torch.equal(models[0], loop.server.vector)
    assert torch.equal(models[1], loop.engine.memory["a"]["trajectory"]["model"])
    assert len(models) == 4
    assert adapt["bytes_down"] >= 5 * 4 * loop.server.layout.size
