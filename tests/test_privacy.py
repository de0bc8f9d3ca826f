"""Noise and its accounting: what is cut, what is added, and what epsilon is said to be."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

import tiny
from fairsilo import api
from fairsilo.core.messages import MODEL, Failure, Message, Request
from fairsilo.core.silo import Memory, Silo
from fairsilo.core.vault import Simulated, normal, stretched, uniform
from fairsilo.engine.host import Host
from fairsilo.engine.loop import History
from fairsilo.errors import FairsiloError, QuorumError
from fairsilo.methods.accounting import epsilon_of
from fairsilo.methods.sample_gradients import poisson, sample_gradients
from fairsilo.methods.text import method
from fairsilo.models.registry import build
from fairsilo.report.tables import run_table
from fairsilo.tasks.classify import Classify
from fairsilo.tasks.options import Options

ONE = dataclasses.replace(tiny.TRAINING, rounds=1)
WHOLE = dataclasses.replace(tiny.TRAINING, batch_size=64, epochs=3)


def silo_of(how: str, name: str = "a", round_: int = 1, message: Message | None = None, **changes: object) -> Silo:
    plan = tiny.plan(how, dataclasses.replace(tiny.TRAINING, **changes))
    model = plan.flat()
    request = Request("train", round_, message or Message({MODEL: model.read()}))
    return plan.silo(model, tiny.federation()[name], request, Memory())


def epsilons(history: History, part: str) -> list[dict[str, float]]:
    return [record["shown"][f"{part}.epsilon"] for record in history.rounds]


# ------------------------------------------------------------------------------------------------------- randomness
def test_numbers_from_a_secret_are_uniform_and_normal_and_its_own() -> None:
    drawn = torch.from_numpy(uniform(b"secret", 200_000))
    assert 0 <= drawn.min() < 1e-4
    assert 1 - 1e-4 < drawn.max() < 1
    assert abs(float(drawn.mean()) - 0.5) < 0.005
    values = normal(b"secret", torch.empty(200_001, dtype=torch.float64))
    assert abs(float(values.mean())) < 0.01
    assert abs(float(values.var()) - 1) < 0.02
    assert abs(float((values.abs() < 1.959964).double().mean()) - 0.95) < 0.003
    half = len(values) // 2  # cosines and sines of the same angles are independent all the same
    assert abs(float(torch.corrcoef(torch.stack([values[:half], values[half : 2 * half]]))[0, 1])) < 0.02
    assert torch.equal(values, normal(b"secret", values))
    assert not torch.isclose(values, normal(b"other", values)).any()


def test_what_is_drawn_depends_on_secret_purpose_and_request() -> None:
    assert stretched(b"ab", "c", 8) != stretched(b"a", "bc", 8)
    vault = Simulated(0, "a")
    assert vault.randomness("x", 16) == Simulated(0, "a").randomness("x", 16)
    others = (Simulated(1, "a"), Simulated(0, "b"))
    assert len({vault.randomness("x", 16), vault.randomness("y", 16), *(o.randomness("x", 16) for o in others)}) == 4
    one = silo_of("fedavg")
    same = silo_of("fedavg")
    later, other = silo_of("fedavg", round_=2), silo_of("fedavg", message=Message({MODEL: torch.zeros(3)}))
    assert one.secret("noise") == same.secret("noise")
    assert len({one.secret("noise"), one.secret("keys"), later.secret("noise"), other.secret("noise")}) == 4


# ------------------------------------------------------------------------------------------------------- updates
def sent_by(how: str, change: torch.Tensor) -> torch.Tensor:
    silo = silo_of(how)
    update = Message({MODEL: change.clone()})
    for hook in silo.method.hooks("outgoing"):
        hook(silo, update)
    return update.tensors[MODEL]


def test_an_update_is_cut_to_the_bound_and_a_short_one_is_not() -> None:
    size = silo_of("dp-updates").model.layout.size
    direction = torch.linspace(-1, 1, size)
    direction /= direction.norm()
    assert torch.allclose(sent_by("dp-updates(clip=2, noise=0)", 5 * direction), 2 * direction, atol=1e-6)
    assert torch.equal(sent_by("dp-updates(clip=2, noise=0)", 1.5 * direction), 1.5 * direction)
    assert not sent_by("dp-updates(clip=2, noise=0)", 0 * direction).any()


def test_noise_has_its_size_and_comes_after_the_cut() -> None:
    size = silo_of("dp-updates").model.layout.size
    long = torch.full((size,), 100.0)
    noise = sent_by("dp-updates(clip=4, noise=0.5)", long) - sent_by("dp-updates(clip=4, noise=0)", long)
    assert abs(float(noise.std()) - 2.0) < 0.35  # some 230 numbers
    assert abs(float(noise.mean())) < 0.5


def test_without_noise_and_bound_it_is_fedavg() -> None:
    people = tiny.federation()
    plain = tiny.plan("fedavg", model=tiny.network_for(method("dp-updates")))
    fedavg = tiny.looped(plain, people).run()
    private, _ = tiny.run("dp-updates(clip=1000000, noise=0)", people)
    assert torch.equal(private.vector, fedavg.vector)
    assert not any(record["shown"] for record in private.rounds)


# ------------------------------------------------------------------------------------------------------- steps
def test_cut_gradients_are_those_of_samples_one_by_one() -> None:
    silo = silo_of("dp-sgd", batch_size=7)
    batch = next(silo.batches())
    silo.model.train()
    rows = []
    for number in range(len(batch.indices)):
        silo.model.gradients.zero_()
        prediction = silo.forward(batch.inputs[number : number + 1]).prediction
        silo.task.loss(prediction, batch.targets[number : number + 1]).backward()
        rows.append(silo.model.gradients.clone())
    lengths = torch.stack(rows).norm(dim=1)
    bound = float(lengths.median())  # some are cut, some are not
    wanted = sum(row * min(1.0, bound / float(length)) for row, length in zip(rows, lengths, strict=True))
    with sample_gradients(silo) as gradients:
        _, found = gradients(batch, bound)
        again = gradients(batch, bound)[1]  # nothing of the step before is left
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(again, found)
    assert float(found.norm()) <= bound * len(rows) + 1e-6
    silo.model.gradients.zero_()
    silo.task.loss(silo.forward(batch.inputs).prediction, batch.targets).backward()
    assert silo.model.gradients.any(), "the network's gradients are no longer views of one vector"


def test_without_noise_and_bound_and_with_all_samples_it_is_gradient_descent() -> None:
    people = tiny.federation({"a": 24, "b": 24, "c": 24})
    training = dataclasses.replace(tiny.TRAINING, batch_size=24, rounds=2)
    plain = tiny.plan("fedavg", training, model=tiny.network_for(method("dp-sgd")))
    wanted = tiny.looped(plain, people).run()
    found, _ = tiny.run("dp-sgd(clip=1000000, noise=0)", people, training)
    torch.testing.assert_close(found.vector, wanted.vector, rtol=1e-4, atol=1e-5)


def test_the_noise_of_a_step_is_divided_by_the_batch() -> None:
    """One step of plain descent from a zero gradient: what moves is the rate times the noise over the batch."""
    training = dataclasses.replace(
        ONE, batch_size=24, epochs=1, optimizer="sgd", momentum=0.0, weight_decay=0.0, lr=1.0
    )
    people = tiny.federation({"a": 24})
    quiet, loud = (tiny.run(f"dp-sgd(clip=0.000001, noise={noise})", people, training)[0].vector for noise in (0, 2e6))
    assert abs(float((loud - quiet).std()) - 2.0 / 24) < 0.015


def test_poisson_batches() -> None:
    silo = silo_of("dp-sgd", name="c", batch_size=10)  # of 30 samples
    batches = [one for epoch in range(400) for one in poisson(silo, epoch)]
    assert len(batches) == 1200
    sizes = torch.tensor([float(len(one)) for one in batches])
    assert abs(float(sizes.mean()) - 10) < 0.3
    assert abs(float(sizes.var()) - 30 * (1 / 3) * (2 / 3)) < 0.8  # binomial: each by itself
    counts = torch.bincount(torch.cat(batches), minlength=30) / 1200
    assert (counts - 1 / 3).abs().max() < 0.06
    assert all(len(one.unique()) == len(one) for one in batches)
    assert [one.tolist() for one in poisson(silo, 0)] == [one.tolist() for one in poisson(silo, 0)]


def test_a_step_without_samples_is_noise_alone() -> None:
    people = tiny.federation({"a": 6, "b": 6, "c": 6})
    training = dataclasses.replace(tiny.TRAINING, batch_size=1, rounds=2)
    history, _ = tiny.run("dp-sgd", people, training)
    assert not any(record["failures"] for record in history.rounds)
    assert torch.isfinite(history.vector).all()


# ------------------------------------------------------------------------------------------------------- accounting
def renyi(noise: float, steps: int, delta: float) -> float:
    """Epsilon of Gaussian mechanisms over everything, from their Renyi divergence alpha / (2 z^2) a step."""
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64))
    return min(
        steps * a / (2 * noise**2) + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in orders
    )


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (1.0, 10), (4.0, 20)])
def test_epsilon_of_gaussian_mechanisms(noise: float, steps: int) -> None:
    assert math.isclose(epsilon_of([(noise, 1.0, steps)], 1e-5), renyi(noise, steps, 1e-5), rel_tol=0.01)
    assert math.isclose(epsilon_of([(noise, 1.0, 1)] * steps, 1e-5), epsilon_of([(noise, 1.0, steps)], 1e-5))
    assert epsilon_of([(noise, 1.0, steps), (0.5, 1.0, 1)], 1e-5) > epsilon_of([(noise, 1.0, steps)], 1e-5) + 1


def test_epsilon_grows_with_rounds_and_drawn_samples_cost_less() -> None:
    history, _ = tiny.run("dp-updates(noise=2, delta=0.0001)", tiny.federation())
    spent = [found["a"] for found in epsilons(history, "dp-updates")]
    assert spent == pytest.approx([renyi(1, rounds, 1e-4) for rounds in range(1, len(spent) + 1)], rel=0.01)
    assert epsilon_of([(1, 0.1, 10)], 1e-5) < 0.5 * epsilon_of([(1, 1, 10)], 1e-5)


def test_epsilon_is_that_of_opacus_own_accountant() -> None:
    from opacus.accountants import RDPAccountant

    mechanisms = [(1.5, 1.0, 7), (0.8, 0.25, 3), (1.5, 0.25, 40)]
    theirs = RDPAccountant()
    theirs.history = mechanisms
    assert epsilon_of(mechanisms, 1e-5) == theirs.get_epsilon(delta=1e-5)
    assert epsilon_of([], 1e-5) == 0


def test_epsilon_of_steps_follows_each_silos_size() -> None:
    people = tiny.federation()
    training = dataclasses.replace(tiny.TRAINING, batch_size=10, epochs=2, rounds=1)
    history, _ = tiny.run("dp-sgd(noise=1.5)", people, training)
    for round_, found in enumerate(epsilons(history, "dp-sgd"), start=1):
        for silo in people.silos:
            steps = round_ * 2 * math.ceil(len(silo.train) / 10)
            assert math.isclose(found[silo.name], epsilon_of([(1.5, 10 / len(silo.train), steps)], 1e-5))


def test_a_silo_counts_the_rounds_in_which_it_sent() -> None:
    training = dataclasses.replace(tiny.TRAINING, rounds=5, participation="2")
    history, _ = tiny.run("dp-updates", tiny.federation(), training)
    sent = dict.fromkeys("abc", 0)
    for record, found in zip(history.rounds, epsilons(history, "dp-updates"), strict=True):
        for name in record["counted"]:
            sent[name] += 1
            assert math.isclose(found[name], epsilon_of([(0.5, 1.0, sent[name])], 1e-5))


def test_beyond_its_budget_a_silo_sends_nothing() -> None:
    enough = renyi(0.5, 2, 1e-5) * 1.01
    with pytest.raises(QuorumError, match=r"round 3 stopped.*dp-updates: epsilon would be"):
        tiny.run(f"dp-updates(budget={enough})", tiny.federation(), dataclasses.replace(tiny.TRAINING, rounds=4))


def test_a_budget_without_noise_is_spent_at_once() -> None:
    with pytest.raises(QuorumError, match=r"round 1 stopped.*epsilon would be inf"):
        tiny.run("dp-updates(noise=0, budget=5)", tiny.federation(), ONE)


def test_a_silo_probes_no_model_that_its_method_does_not() -> None:
    people, plan = tiny.federation(), tiny.plan("dp-sgd")
    message = Message({MODEL: plan.start()[1]}, {"split": "train"})
    answer = Host(plan, {"a": people["a"]}).answer("a", Request("probe", 1, message), Memory()).message
    assert isinstance(answer, Failure)
    assert "probes no models" in answer.detail


# ------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("scaffold | dp-updates", "'dp-updates' makes updates private, and 'control-variates' has silos send more"),
        (
            "q-ffl | dp-sgd",
            "'dp-sgd' makes updates private, and 'q-fair' has silos send more: the received model's loss",
        ),
        ("fedprox | dp-sgd", "'proximal' would have no effect"),
        ("dp-sgd | ditto", "both own the local loop"),
        ("only-da | dp-updates", "'feature-alignment' has silos send more"),
        ("fedclip | dp-sgd", "needs the loss of every sample by itself"),
    ],
)
def test_what_goes_around_the_noise_is_refused(how: str, sentence: str) -> None:
    with pytest.raises(FairsiloError, match=sentence):
        method(how)


@pytest.mark.slow
def test_what_only_looks_at_private_updates_composes() -> None:
    for how in ("dp-updates | fedheal", "dp-sgd | norm-bound", "feddyn | dp-updates", "dp-sgd | dp-updates"):
        history, _ = tiny.run(how, tiny.federation(), ONE)
        assert history.rounds[0]["counted"] == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["dp-updates", "dp-sgd"])
def test_batch_normalisation_is_refused(how: str) -> None:
    plan = tiny.plan(how, model=tiny.TinyNet)
    with pytest.raises(FairsiloError, match=r"small-cnn\(norm=group\)"):
        plan.check(tiny.federation().roster, False)


def test_shared_losses_and_balanced_draws_are_refused() -> None:
    people = tiny.federation()
    weighted = tiny.plan("dp-sgd", task=Classify(tiny.CLASSES, options=Options(weights=(1.0, 2.0, 3.0))))
    with pytest.raises(FairsiloError, match=r"the samples of a batch share their loss"):
        weighted.check(people.roster, False)
    focal = Classify(tiny.CLASSES, options=Options(loss="focal", weights=(1.0, 2.0, 3.0)))
    tiny.plan("dp-sgd", task=focal).check(people.roster, False)
    with pytest.raises(FairsiloError, match=r"train.balance=false"):
        tiny.plan("dp-sgd", dataclasses.replace(tiny.TRAINING, balance=True)).check(people.roster, False)


def test_recurrent_networks_are_refused() -> None:
    with pytest.raises(FairsiloError, match="LSTM does not give"):
        method("dp-sgd").extended(torch.nn.ModuleDict({"read": torch.nn.LSTM(3, 4)}), 0)


@pytest.mark.parametrize("name", ["small-cnn", "resnet-10"])
def test_networks_with_groups_in_the_place_of_batches(name: str) -> None:
    plain, grouped = build(name, 3, 3, 0), build(f"{name}(norm=group)", 3, 3, 0)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in grouped.modules())
    assert [tuple(p.shape) for p in plain.parameters()] == [tuple(p.shape) for p in grouped.parameters()]
    one, alone = grouped(torch.ones(2, 3, 32, 32)), grouped(torch.ones(1, 3, 32, 32))
    torch.testing.assert_close(one.prediction[:1], alone.prediction)


# ------------------------------------------------------------------------------------------------------- the report
@pytest.mark.slow
def test_epsilon_is_in_summary_page_and_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"train": {"rounds": 2, "epochs": 1, "batch_size": 8}, "engine": {"name": "sequential"}}
    people = tiny.federation()
    result = api.run(
        method="dp-sgd(noise=1.5)",
        model=tiny.network_for(method("dp-sgd")),
        federation=people,
        out=tmp_path,
        **settings,
    )
    (found,) = result.summary["privacy"]
    assert (found["part"], found["delta"]) == ("dp-sgd", 1e-5)
    assert set(found["epsilon"]) == {"a", "b", "c"}
    assert found["epsilon"]["b"] == epsilon_of([(1.5, 8 / 18, 2 * 3)], 1e-5)  # b has the fewest samples
    most = max(found["epsilon"].values())
    page = (tmp_path / "report.html").read_text()
    assert "Sizes, losses and metrics" in page
    assert f"to {most:.3g} at delta 1e-05, for each training sample of a silo" in page
    Console(width=200).print(run_table("dp-sgd", result.summary))
    shown = capsys.readouterr().out
    assert "largest epsilon of dp-sgd, delta 1e-05" in shown
    assert f"{most:.3g}" in shown


def test_without_noise_the_page_says_that_nothing_is_private(tmp_path: Path) -> None:
    settings = {"train": {"rounds": 1, "epochs": 1, "batch_size": 8}, "engine": {"name": "sequential"}}
    model = tiny.network_for(method("dp-updates"))
    people = tiny.federation()
    api.run(method="dp-updates(noise=0)", model=model, federation=people, out=tmp_path / "r", **settings)
    assert "there was no noise, so that nothing is private" in (tmp_path / "r" / "report.html").read_text()
    api.run(method="fedavg", model=model, federation=people, out=tmp_path / "plain", **settings)
    assert "Privacy" not in (tmp_path / "plain" / "report.html").read_text()
