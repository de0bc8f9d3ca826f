"""Meta-learning against loops written by hand: its two batches, its virtual step, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tiny
from fairsilo.config import TrainSettings
from fairsilo.core.messages import MODEL, Message, Request
from fairsilo.core.silo import Batch, Memory, Silo
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError

ADAM = dataclasses.replace(tiny.TRAINING, optimizer="adam", lr=0.003)


def silo_of(how: str, people: Federation, training: TrainSettings = tiny.TRAINING, name: str = "a") -> Silo:
    """A silo with the first global model loaded, in float64: Adam magnifies rounding where gradients vanish."""
    plan = tiny.plan(how, training, model=lambda *shape: tiny.TinyNet(*shape).double())
    layout, vector = plan.start()
    message = Message({MODEL: layout.to_wire(vector)})
    silo = plan.silo(plan.flat(), people[name], Request("train", 1, message), Memory())
    silo.load(message.tensors[MODEL])
    return silo


def trained(silo: Silo) -> dict[str, torch.Tensor]:
    silo.method.hooks("train")[0](silo)
    return silo.model.layout.views(silo.model.read())


def loss_of(module: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(module(batch.inputs).prediction, batch.targets)


def make(module: nn.Module, training: TrainSettings) -> torch.optim.Optimizer:
    if training.optimizer == "adam":
        return torch.optim.Adam(module.parameters(), lr=training.lr, weight_decay=training.weight_decay)
    return torch.optim.SGD(
        module.parameters(), lr=training.lr, momentum=training.momentum, weight_decay=training.weight_decay
    )


def by_hand(silo: Silo, inner: str, inner_lr: float | None = None) -> nn.Module:
    """First-order meta-learning with ordinary modules and optimisers: w' on a deep copy of both."""
    module = copy.deepcopy(silo.model.module).train()
    for parameter in module.parameters():
        parameter.grad = None
    optimizer = make(module, silo.training)
    for first, second in zip(silo.batches(), silo.batches("second batch"), strict=True):
        other, stepper = copy.deepcopy((module, optimizer))
        other.zero_grad()
        loss_of(other, first).backward()
        for group in stepper.param_groups:
            group["lr"] = inner_lr or group["lr"]
        if inner == "base":
            stepper.step()
        else:
            with torch.no_grad():
                for parameter in other.parameters():
                    parameter -= (inner_lr or silo.training.lr) * parameter.grad
        other.zero_grad()
        loss_of(other, second).backward()
        for parameter, found in zip(module.parameters(), other.parameters(), strict=True):
            parameter.grad = found.grad
        optimizer.step()
        module.load_state_dict(
            {**other.state_dict(), **dict(module.named_parameters())}
        )  # both passes count in BatchNorm's statistics
    return module


@pytest.mark.parametrize("training", [tiny.TRAINING, ADAM], ids=["sgd with momentum", "adam"])
@pytest.mark.parametrize(("inner", "inner_lr"), [("base", None), ("sgd", None), ("base", 0.05)])
def test_the_virtual_step_is_the_optimisers_own_and_leaves_no_trace(
    training: TrainSettings, inner: str, inner_lr: float | None, people: Federation
) -> None:
    how = f"only-ml(inner={inner}{f', inner_lr={inner_lr}' if inner_lr else ''})"
    silo = silo_of(how, people, dataclasses.replace(training, epochs=2))
    expected = by_hand(silo, inner, inner_lr)
    for name, tensor in trained(silo).items():
        torch.testing.assert_close(tensor, expected.state_dict()[name], rtol=1e-6, atol=1e-9)


def test_with_plain_sgd_both_virtual_steps_are_the_same(people: Federation) -> None:
    plain = dataclasses.replace(tiny.TRAINING, momentum=0.0, weight_decay=0.0)
    one, other = (tiny.run(f"only-ml(inner={inner})", people, plain)[0].vector for inner in ("base", "sgd"))
    torch.testing.assert_close(one, other)
    with_momentum = [tiny.run(f"only-ml(inner={inner})", people)[0].vector for inner in ("base", "sgd")]
    assert not torch.allclose(*with_momentum)


def test_a_clipped_gradient_is_clipped_in_the_virtual_step_too(people: Federation) -> None:
    clipped = dataclasses.replace(tiny.TRAINING, momentum=0.0, weight_decay=0.0, clip=1e-3, epochs=1)
    silo = silo_of("only-ml(meta_base=prime)", people, clipped)
    trained(silo)
    moved = (silo.parameters.detach() - silo.start_parameters).norm()
    assert moved <= 2 * silo.steps * clipped.lr * 1e-3 * (1 + 1e-4)


@pytest.mark.parametrize("how", ["only-ml", "bgp", "per-fedavg", "grace-client"])
def test_as_many_steps_as_plain_training(how: str, people: Federation) -> None:
    plain = silo_of("fedavg", people)
    silo = silo_of(how, people)
    trained(silo)
    assert silo.steps == len(list(plain.batches())) == 3


def test_the_second_batches_are_of_a_shuffle_of_their_own(people: Federation) -> None:
    silo = silo_of("only-ml", people)
    pairs = list(silo.method.parts[0]._pairs(silo))
    firsts, seconds = (torch.cat([pair[which].indices for pair in pairs]) for which in (0, 1))
    assert torch.equal(firsts, torch.cat([batch.indices for batch in silo.batches()]))
    assert firsts.sort().values.equal(seconds.sort().values)  # every sample once in each
    assert not torch.equal(firsts, seconds)


def test_halves_are_of_one_batch(people: Federation) -> None:
    silo = silo_of("per-fedavg", people)
    for (one, other), whole in zip(silo.method.parts[0]._pairs(silo), silo.batches(), strict=True):
        assert torch.equal(torch.cat([one.indices, other.indices]), whole.indices)


@pytest.mark.parametrize("how", ["only-ml", "bgp", "fft-gp"])
def test_a_silo_with_one_batch_trains(how: str, people: Federation) -> None:
    whole = dataclasses.replace(tiny.TRAINING, batch_size=64)
    history, loop = tiny.run(how, people, whole)
    start = loop.blueprint.start()[1]
    assert (history.vector - start).norm() > 0.1
    assert all(loss > 0 for record in history.rounds for loss in record["train_loss"].values())


@pytest.mark.parametrize("how", ["per-fedavg", "grace", "grace-client", "fft-gp(batches=halves)"])
def test_a_batch_of_one_has_no_halves(how: str, people: Federation) -> None:
    single = dataclasses.replace(tiny.TRAINING, batch_size=1)
    with pytest.raises(FairsiloError, match=r"halves every batch, and train.batch_size is 1; .* batches=two"):
        tiny.plan(how, single).check(people.roster, False)
    tiny.plan("only-ml", single).check(people.roster, False)


def test_a_silo_with_one_sample_says_so_instead_of_training_nothing() -> None:
    people: Any = tiny.federation({"a": 24, "b": 1, "c": 30})
    history, _ = tiny.run("per-fedavg", people)
    failure = history.rounds[0]["failures"][0]
    assert failure["silo"] == "b"
    assert "one training sample has no halves" in failure["detail"]


def test_two_samples_are_two_halves() -> None:
    silo = silo_of("per-fedavg", tiny.federation({"a": 2, "b": 18, "c": 30}))
    ((one, other),) = silo.method.parts[0]._pairs(silo)
    assert {*one.indices.tolist(), *other.indices.tolist()} == {0, 1}
