"""Learning rates per group of tensors: whose is whose, what it does to a step, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import tiny
from fairsilo.config import TrainSettings, as_dict, experiment
from fairsilo.core.local import gradient
from fairsilo.core.messages import MODEL, Message, Request
from fairsilo.core.optimizers import make_optimizer, plain_step, virtual_step
from fairsilo.core.rates import check_rates, factor_of
from fairsilo.core.silo import Memory, Silo
from fairsilo.core.vectors import PARAMETER, Layout, Slot
from fairsilo.data.federation import Federation
from fairsilo.errors import FairsiloError
from fairsilo.protocols import lr_factors

GROUPS = "head=10, features.0=0.5"


def silo_of(people: Federation, **training: Any) -> Silo:
    plan = tiny.plan("fedavg", dataclasses.replace(tiny.TRAINING, **training))
    layout, vector = plan.start()
    message = Message({MODEL: layout.to_wire(vector)})
    silo = plan.silo(plan.flat(), people["a"], Request("train", 1, message), Memory())
    silo.load(message.tensors[MODEL])
    return silo


def change(silo: Silo, step: Any) -> dict[str, torch.Tensor]:
    silo.model.train()
    gradient(silo, next(silo.batches()))
    step()
    moved = (silo.parameters.detach() - silo.start_parameters).clone()
    return {slot.name: moved[slot.place] for slot in silo.model.layout.slots if slot.role == PARAMETER}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("prompts=10", {"prompts": 10.0}),
        (" head = 0.1 ,body=2e-1", {"head": 0.1, "body": 0.2}),
        ({"prompts": 10, "head": 0.5}, {"prompts": 10.0, "head": 0.5}),
        (None, {}),
        ("", {}),
    ],
)
def test_a_text_or_a_mapping(given: Any, expected: dict[str, float]) -> None:
    assert lr_factors(given) == expected


@pytest.mark.parametrize("given", ["prompts", "=3", "a=1, a=2", "a=-1", "a=nan", "a=inf", {"a": "x"}, 7])
def test_what_is_neither_is_refused(given: Any) -> None:
    with pytest.raises(FairsiloError, match=r"train.lr_groups is .*; it must name each group once"):
        experiment({"train": {"lr_groups": given}})


def test_on_the_command_line_in_yaml_and_back() -> None:
    for settings in (
        experiment({}, ["train.lr_groups=prompts=10, head=0.1"]),
        experiment({"train": {"lr_groups": {"prompts": 10, "head": 0.1}}}),
    ):
        assert settings.train.lr_groups == "prompts=10, head=0.1"
        assert settings.train.lr_factors == {"prompts": 10.0, "head": 0.1}
        assert experiment(as_dict(settings)) == settings
        hash(settings.train)
    assert experiment({}, ["lr_groups=none"]).train.lr_groups is None


def test_the_longest_piece_of_a_name_wins_then_the_group() -> None:
    factors = {"features": 2.0, "features.0": 3.0, "batch-norm": 4.0, "head": 5.0}
    slots = {
        "features.0.weight": ("body", 3.0),
        "features.1.weight": ("batch-norm", 2.0),
        "bn.weight": ("batch-norm", 4.0),
        "head.bias": ("head", 5.0),
        "other": ("body", 1.0),
    }
    for name, (group, expected) in slots.items():
        assert factor_of(Slot(name, (1,), PARAMETER, group=group), factors) == expected


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_a_step_is_the_factor_times_as_long(kind: str, people: Federation) -> None:
    """One step from the same gradient; every tensor's own change, times its factor."""
    settings = {"optimizer": kind, "weight_decay": 0.0}
    plain, grouped = silo_of(people, **settings), silo_of(people, **settings, lr_groups=GROUPS)
    one, other = (change(silo, make_optimizer(silo).step) for silo in (plain, grouped))
    for name, moved in one.items():
        factor = 10 if "head" in name else 0.5 if "features.0" in name else 1
        torch.testing.assert_close(other[name], factor * moved, rtol=1e-3, atol=1e-7)
    assert all(moved.norm() > 0 for name, moved in one.items() if "head" in name)


@pytest.mark.slow
def test_a_factor_of_one_is_plain_training_and_zero_freezes(people: Federation) -> None:
    plain, same, frozen = (
        tiny.run("fedavg", people, dataclasses.replace(tiny.TRAINING, lr_groups=groups))[0].vector
        for groups in (None, "head=1, body=1", "head=0")
    )
    torch.testing.assert_close(plain, same)
    _, loop = tiny.run("fedavg", people, dataclasses.replace(tiny.TRAINING, lr_groups="head=0"))
    layout, start = loop.blueprint.start()
    for name, tensor in layout.views(frozen).items():
        assert torch.equal(tensor, layout.views(start)[name]) == name.startswith("head")


def test_virtual_and_plain_steps_have_the_factors_too(people: Federation) -> None:
    for take in (virtual_step, plain_step):
        for lr in (None, 0.3):
            plain, grouped = (
                silo_of(people, weight_decay=0.0, momentum=0.0, lr_groups=groups) for groups in (None, GROUPS)
            )
            one, other = (
                change(silo, lambda silo=silo, take=take, lr=lr: take(make_optimizer(silo), lr))
                for silo in (plain, grouped)
            )
            torch.testing.assert_close(other["head.weight"], 10 * one["head.weight"])
            torch.testing.assert_close(other["features.0.weight"], 0.5 * one["features.0.weight"])


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_kept_momenta_of_every_tensor_come_back(kind: str, people: Federation) -> None:
    """With factors of 1 the numbers are those of the flat optimiser, whose state is one vector.

    Adam with a large epsilon: with a small one the sign of a gradient near zero, which is rounding, is a whole step.
    """
    kept = dataclasses.replace(tiny.TRAINING, keep_optimizer_state=True, optimizer=kind, lr=0.01, adam_eps=0.01)
    flat, grouped, anew = (
        tiny.run("fedavg", people, dataclasses.replace(kept, **changed))[0].vector
        for changed in ({}, {"lr_groups": "head=1, features.0=1"}, {"keep_optimizer_state": False})
    )
    torch.testing.assert_close(flat, grouped, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(flat, anew, rtol=1e-4, atol=1e-5)
    two = dataclasses.replace(kept, lr_groups="head=2")
    _, loop = tiny.run("fedavg", people, two)
    state = loop.engine.memory["a"]["silo"]["optimizer"]
    lengths = sum(value.numel() for key, value in state.items() if key.endswith(("momentum_buffer", "exp_avg")))
    assert lengths == loop.server.layout.parameters


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["fedrep", "fedper | fine-tune", "ditto", "per-fedavg", "bgp", "fedsam"])
def test_every_loop_uses_them(how: str, people: Federation) -> None:
    grouped = dataclasses.replace(tiny.TRAINING, lr_groups="head=0.1, body=0.5")
    one, other = (tiny.run(how, people, training)[0] for training in (tiny.TRAINING, grouped))
    assert not torch.equal(one.vector, other.vector)
    assert [row["loss"] for row in one.rows] != [row["loss"] for row in other.rows]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("scaffold", "divides a silo's change by the learning rate, and train.lr_groups"),
        ("fednova", "in units of the learning rate, and train.lr_groups"),
        ("pfedme", "takes plain steps of its own at one rate, and train.lr_groups"),
        ("q-ffl", "form=normalised does not"),
    ],
)
def test_what_divides_by_the_rate_refuses(how: str, sentence: str, people: Federation) -> None:
    grouped = dataclasses.replace(tiny.TRAINING, lr_groups="head=2")
    with pytest.raises(FairsiloError, match=sentence):
        tiny.plan(how, grouped).check(people.roster, False)
    tiny.plan(how, TrainSettings()).check(people.roster, False)
    for fine in ("q-ffl(form=normalised)", "q-ffl(lipschitz=5)"):
        tiny.plan(fine, grouped).check(people.roster, False)


def test_a_name_that_no_tensor_has_is_refused_with_those_there_are(people: Federation) -> None:
    for name in ("prompts", "norm", "features.1.running_mean"):  # a group that is not there; a buffer is not trained
        with pytest.raises(FairsiloError, match=r"groups: batch-norm, body, head; tensors: .*head.weight"):
            tiny.plan("fedavg", dataclasses.replace(tiny.TRAINING, lr_groups=f"{name}=10")).check(people.roster, False)


@pytest.mark.parametrize(("count", "end"), [(3, "t0, t1, t2"), (40, "t38, t39"), (41, "t38, t39, ...")])
def test_the_first_forty_names_are_listed(count: int, end: str) -> None:
    layout = Layout([Slot(f"t{number}", (1,), PARAMETER) for number in range(count)], torch.float32)
    with pytest.raises(FairsiloError) as refusal:
        check_rates(layout, TrainSettings(lr_groups="prompts=10"))
    assert str(refusal.value).endswith(end)
