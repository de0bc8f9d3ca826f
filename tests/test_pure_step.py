"""A training step is a function of tensors: what it reads besides its batch stays at one address from silo to silo."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

import tiny
from fairsilo.config import TrainSettings
from fairsilo.core import vectors
from fairsilo.core.local import descend, gradient
from fairsilo.core.messages import MODEL, Message, Request
from fairsilo.core.optimizers import kept_optimizer, make_optimizer, plain_step, tensors_of, virtual_step
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.silo import Memory, Silo
from fairsilo.data.federation import Federation
from fairsilo.engine.host import Blueprint, Host
from fairsilo.engine.resident import Resident


@pytest.fixture(autouse=True)
def recording_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are held on a CPU as on a GPU, where steps are recorded."""
    monkeypatch.setattr(vectors, "RECORDING", {"cpu", "cuda"})


OPTIMISERS = [{"momentum": 0.9, "weight_decay": 1e-3}, {"optimizer": "adam"}, {"optimizer": "adamw"}]


def training(**changes: object) -> TrainSettings:
    return dataclasses.replace(tiny.TRAINING, **changes)  # type: ignore[arg-type]


def begun(host: Host, name: str, plan: Blueprint, tensors: dict[str, Tensor] | None = None, round: int = 1) -> Silo:
    """A silo that has taken the server's model and is about to train."""
    start = plan.start()[0].to_wire(plan.start()[1]).to(plan.device)
    message = Message({MODEL: start} | (tensors or {}))
    silo = plan.silo(host.model, host.data[name], Request("train", round, message), Memory())
    silo.load(start)
    for begin in plan.method.hooks("begin"):
        begin(silo)
    return silo


def state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{number}.{key}": value
        for number, tensor in enumerate(tensors_of(optimizer))
        for key, value in optimizer.state[tensor].items()
    } | {f"lr.{number}": group["lr"] for number, group in enumerate(optimizer.param_groups)}


@pytest.mark.parametrize("how", OPTIMISERS, ids=lambda how: how.get("optimizer", "sgd"))
def test_rates_and_state_of_optimisers_stay_where_they_are(how: dict[str, object], people: Federation) -> None:
    plan = tiny.plan("fedavg", training(**how))
    host = Host(plan, people)
    first = make_optimizer(begun(host, "a", plan))
    addresses = {key: value.data_ptr() for key, value in state(first).items()}
    assert len(addresses) > 1
    silo = begun(host, "a", plan)
    descend(silo)
    after = make_optimizer(begun(host, "b", plan))
    assert {key: value.data_ptr() for key, value in state(after).items()} == addresses
    assert all(not value.any() for key, value in state(after).items() if not key.startswith("lr"))


@pytest.mark.parametrize("how", OPTIMISERS, ids=lambda how: how.get("optimizer", "sgd"))
def test_from_zeros_an_optimiser_steps_as_a_new_one_of_torch_does(how: dict[str, object], people: Federation) -> None:
    """Three steps with the rate as a tensor and state given beforehand, against torch's own with a number."""
    settings = training(**how)
    plan = tiny.plan("fedavg", settings)
    silo = begun(Host(plan, people), "a", plan)
    twin = torch.nn.Parameter(silo.parameters.detach().clone())
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    moments = {"betas": (0.9, settings.adam_beta2), "eps": settings.adam_eps}
    extra = {"momentum": settings.momentum} if settings.optimizer == "sgd" else moments
    theirs = kinds[settings.optimizer]([twin], settings.lr, weight_decay=settings.weight_decay, fused=True, **extra)
    ours = make_optimizer(silo)
    stream = torch.Generator().manual_seed(0)
    for _ in range(3):
        silo.model.gradients.copy_(torch.randn(len(twin), generator=stream))
        twin.grad = silo.model.gradients.clone()
        ours.step()
        theirs.step()
    assert torch.equal(silo.parameters, twin)


def test_kept_state_is_loaded_into_its_place_and_saved_as_a_copy(people: Federation) -> None:
    plan = tiny.plan("fedavg", training(momentum=0.9, keep_optimizer_state=True))
    host = Host(plan, people)
    silo = begun(host, "a", plan)
    descend(silo)
    kept = silo.memory["silo"]["optimizer"]["momentum_buffer"]
    before = kept.clone()
    with kept_optimizer(silo) as optimizer:
        held = optimizer.state[tensors_of(optimizer)[0]]["momentum_buffer"]
        assert torch.equal(held, before)
        held.add_(1)
    assert torch.equal(kept, before)
    assert torch.equal(silo.memory["silo"]["optimizer"]["momentum_buffer"], before + 1)


def test_virtual_and_plain_steps_take_a_rate_that_is_a_tensor(people: Federation) -> None:
    plan = tiny.plan("fedavg", training(momentum=0.9, weight_decay=0.0))
    silo = begun(Host(plan, people), "a", plan)
    optimizer = make_optimizer(silo)
    addresses = {key: value.data_ptr() for key, value in state(optimizer).items()}
    start = silo.parameters.detach().clone()
    silo.model.gradients.fill_(1.0)
    virtual_step(optimizer, 0.5)
    assert torch.allclose(silo.parameters, start - 0.5)
    plain_step(optimizer, 0.25)
    assert torch.allclose(silo.parameters, start - 0.75)
    assert {key: value.data_ptr() for key, value in state(optimizer).items()} == addresses
    assert not optimizer.state[tensors_of(optimizer)[0]]["momentum_buffer"].any()


def test_what_is_held_is_a_copy_at_one_address(people: Federation) -> None:
    plan = tiny.plan("fedavg")
    host = Host(plan, people)
    one, other = (begun(host, name, plan) for name in "ab")
    mine, yours = torch.arange(3.0), torch.ones(3)
    first = one.hold("reference", mine)
    assert first.data_ptr() != mine.data_ptr()
    second = other.hold("reference", yours)
    assert second.data_ptr() == first.data_ptr()
    assert one.hold("reference", torch.zeros(2)).data_ptr() != first.data_ptr()  # another shape, another place
    assert torch.equal(second, yours)
    assert torch.equal(mine, torch.arange(3.0))


@pytest.mark.parametrize("how", tiny.PLAIN)
def test_nothing_held_is_kept_or_sent(how: str, people: Federation) -> None:
    """The next silo overwrites it: a memory or a message with it would change behind its owner's back."""
    _, loop = tiny.run(how, people, dataclasses.replace(tiny.TRAINING, rounds=2))
    model = loop.engine.host.model  # type: ignore[attr-defined]
    held = {value.untyped_storage().data_ptr() for value in model._held.values()}
    for memory in loop.engine.memory.values():
        for entries in memory.values():
            for value in entries.values():
                assert not isinstance(value, Tensor) or value.untyped_storage().data_ptr() not in held


class Counting:
    """Data that count how often a silo's are asked for."""

    def __init__(self, people: Federation) -> None:
        self.people, self.asked = people, 0

    def __getitem__(self, name: str) -> SiloData:
        self.asked += 1
        return self.people[name]


def test_resident_data_are_the_same_samples_copied_once(people: Federation) -> None:
    source = Counting(people)
    data = Resident(source, torch.device("cpu"), room=1 << 30)
    assert data["a"] is data["a"]
    assert source.asked == 1
    for name in ("train", "validation", "test"):
        before, after = people["a"].split(name), data["a"].split(name)
        assert torch.equal(before.inputs, after.inputs)
        assert torch.equal(before.targets, after.targets)
        assert before.place != after.place


def test_a_split_of_two_silos_is_copied_once(people: Federation) -> None:
    shared = people["a"].test
    twins = {name: dataclasses.replace(people[name], test=shared) for name in "ab"}
    data = Resident(twins, torch.device("cpu"), room=1 << 30)
    assert data["a"].test is data["b"].test


def test_data_that_do_not_fit_stay_where_they_are(people: Federation) -> None:
    silo = people["a"]
    split = silo.test
    size = split.inputs.numel() * split.inputs.element_size() + split.targets.numel() * split.targets.element_size()
    alone = dataclasses.replace(silo, train=split, validation=Split(split.inputs[:0], split.targets[:0]))
    too_little = Resident({"a": alone}, torch.device("cpu"), room=size - 1)
    assert too_little["a"].train is split
    enough = Resident({"a": alone}, torch.device("cpu"), room=size)
    assert enough["a"].train is not split


@pytest.mark.skipif(not torch.cuda.is_available(), reason="records a step as a CUDA graph: needs a GPU")
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("how", ["fedavg", "fedprox", "moon", "feddyn", "scaffold", "only-da"])
def test_a_step_recorded_for_one_silo_trains_another(how: str, optimizer: str, people: Federation) -> None:
    """Recorded once with silo a; replayed for silo b in a later round with another model and learning rate."""
    settings = training(optimizer=optimizer, momentum=0.9, lr_schedule="cosine", rounds=4, batch_size=8, epochs=2)
    plan = tiny.plan(how, settings, device="cuda")
    layout, start = plan.start()
    control = {"control-variates.control": torch.randn(layout.shared, device="cuda") / 100}
    even = {name: dataclasses.replace(people[name], train=people[name].train.subset(range(16))) for name in "ab"}
    results = []
    for recorded in (False, True):
        host = Host(plan, even)
        if recorded:
            silo = begun(host, "a", plan, control)
            step, graph = make_optimizer(silo), torch.cuda.CUDAGraph()
            silo.model.train()
            batch = next(silo.batches())
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    gradient(silo, batch)
                    step.step()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                gradient(silo, batch)
                step.step()
        silo = begun(host, "b", plan, control, round=3)
        make_optimizer(silo)
        if recorded:
            for fresh in silo.batches():
                batch.inputs.copy_(fresh.inputs)
                batch.targets.copy_(fresh.targets)
                graph.replay()
        else:
            descend(silo)
        results.append(silo.model.read()[: layout.parameters])
    eager, replayed = results
    moved = (eager - start[: layout.parameters].cuda()).norm()
    assert moved > 0
    assert (eager - replayed).norm() < 1e-4 * moved


def test_on_a_cpu_nothing_is_copied(people: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "RECORDING", {"cuda"})
    plan = tiny.plan("fedavg")
    silo = begun(Host(plan, people), "a", plan)
    assert silo.start is silo.sent
