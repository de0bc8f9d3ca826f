"""FedAG: adapters at the server, silos' own models, synthetic images between them; and where those images come from."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

import tiny
from fairsilo import api
from fairsilo.config import TrainSettings, experiment
from fairsilo.core.files import read_tree
from fairsilo.core.messages import MODEL, Exchange, Failure, Message, Reply, Request
from fairsilo.core.method import Method
from fairsilo.core.output import Output
from fairsilo.core.round import open_evaluation, open_round
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.silo import Memory, inputs_for, prepare
from fairsilo.core.vectors import FlatModel, Layout
from fairsilo.data import TOKEN
from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.data.diffusion import Generator, drawn, learned_word, prompt
from fairsilo.data.diffusion import load as load_diffusion
from fairsilo.data.drawing import STROKES, STYLES, Easel
from fairsilo.data.federation import Federation, federate
from fairsilo.data.glyphs import CLASSES, glyphs
from fairsilo.data.newcomer import read_newcomer
from fairsilo.data.packed import write_packed
from fairsilo.data.synthetic import bad_ones, make_synthetic, public_images
from fairsilo.engine.base import Engine
from fairsilo.engine.events import Callback, Event, silent
from fairsilo.engine.host import Blueprint, Host
from fairsilo.engine.loop import History, Loop
from fairsilo.engine.processes import Pool, Processes
from fairsilo.engine.sequential import Sequential
from fairsilo.engine.styles import ask_words
from fairsilo.errors import FairsiloError
from fairsilo.methods.class_means import class_means, quality
from fairsilo.methods.infusion import Infusion, divergence, mutual_loss, server_losses, shuffled, teaching
from fairsilo.methods.parts.domain_adapters import DomainAdapters
from fairsilo.methods.parts.momentum_start import MomentumStart
from fairsilo.methods.parts.two_heads import TwoHeads
from fairsilo.models.clip_networks import AdapterBank
from fairsilo.models.registry import build
from fairsilo.report.synthetic import synthetic
from fairsilo.runs.pictures import read_sheet
from fairsilo.runs.saved import SavedRun
from fairsilo.runs.setup import federation_of, server_data_of
from fairsilo.runs.sheets import write_sheet
from test_cli import call
from tiny_backbones import write_clip

TRAINING = TrainSettings(rounds=2, epochs=2, batch_size=8, lr=0.05)
BAD = torch.arange(12) >= 9  # of a silo's synthetic images


# --------------------------------------------------------------------------------------------------- a small federation
def larger(split: Split) -> Split:
    """8 x 8 images, which the small CLIP takes."""
    return Split(F.pad(split.inputs, (1, 1, 1, 1)), split.targets)


def silo_of(data: SiloData) -> SiloData:
    return dataclasses.replace(data, **{name: larger(data.split(name)) for name in ("train", "validation", "test")})


@pytest.fixture(scope="module")
def silos() -> Federation:
    small = tiny.federation()
    return Federation(
        "small", ("cat", "dog", "cow"), tuple(map(silo_of, small.silos)), tuple(map(silo_of, small.unseen))
    )


@pytest.fixture(scope="module")
def made(silos: Federation) -> dict[str, Split]:
    """Twelve images a silo; the last three say a class that they do not show."""
    found = {}
    for number, name in enumerate(silos.names):
        split = larger(tiny.samples(12, 25.0 * number - 25, 500 + number))
        found[name] = Split(split.inputs, torch.where(BAD, (split.targets + 1) % 3, split.targets))
    return found


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"clip:{write_clip(tmp_path_factory.mktemp('clip'))}"


def fedag(clip: str, gamma: float = 0.9, **settings: Any) -> Method:
    chosen = {"server_lr": 0.01, "server_batch": 5, "init_epochs": 2, "server_epochs": 2, **settings}
    return Method((MomentumStart(gamma=gamma), DomainAdapters(backbone=clip, **chosen)), "fedag")


def loop_of(
    how: Method,
    silos: Federation,
    made: dict[str, Split],
    training: TrainSettings = TRAINING,
    *,
    folder: Path | None = None,
    listener: Callback = silent,
    engine: Callable[[Blueprint, Federation], Engine] = Sequential,
) -> Loop:
    plan = tiny.plan(how, training, classes=silos.classes)
    run_folder = SavedRun(folder) if folder else None
    if run_folder:
        run_folder.create()
    here = engine(plan, silos)
    here.folder = folder  # type: ignore[attr-defined]
    return Loop(plan, silos.roster, here, records=run_folder, listener=listener, synthetic=made)


def run(how: Method, silos: Federation, made: dict[str, Split], *more: Any, **settings: Any) -> tuple[History, Loop]:
    loop = loop_of(how, silos, made, *more, **settings)
    return loop.run(), loop


def kept(loop: Loop) -> dict[str, Any]:
    return loop.server.memory["domain-adapters"]


def bank_of(count: int, cross: bool = True, seed: int = 0) -> AdapterBank:
    """Adapters on features of width 4 with 3 classes, without CLIP."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fake: Any = SimpleNamespace(width=4, scale=torch.tensor(3.0))
        return AdapterBank(fake, F.normalize(torch.randn(3, 4), dim=1), count, cross)


def features(count: int = 6) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(1))


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
ONES = torch.ones(6)


# ----------------------------------------------------------------------------------------------------------- the losses
def test_one_adapter_has_all_the_attention_and_no_regulariser() -> None:
    bank = bank_of(1)
    phi = bank.logits(bank.adapted(features()))
    beta = bank.attend(phi)
    found = server_losses(phi, beta, 0, LABELS, None, ONES, 0.1, 0.5)
    assert torch.equal(beta, torch.ones(6, 1))
    assert torch.equal(found.lead, torch.zeros(6))
    torch.testing.assert_close(found.across, found.inside)


def test_the_regulariser_asks_the_own_adapter_to_lead_by_the_margin() -> None:
    beta = torch.tensor([[0.5, 0.2, 0.3], [0.3, 0.3, 0.4], [0.2, 0.7, 0.1]])
    found = server_losses(torch.zeros(3, 3, 3), beta, 0, LABELS[:3], None, ONES[:3], 2.0, 0.25)
    torch.testing.assert_close(found.lead, torch.tensor([0.05, 0.35, 0.75]))
    plain = 2 * torch.log(torch.tensor(3.0))  # both cross-entropies of equal logits
    torch.testing.assert_close(found.total, plain + 2.0 * found.lead.mean())


def test_cross_entropies_do_not_reach_the_client_and_mutual_learning_reaches_both() -> None:
    bank = bank_of(2)
    client = torch.randn(6, 3, generator=torch.Generator().manual_seed(2)).requires_grad_(True)
    phi = bank.logits(bank.adapted(features()))
    found = server_losses(phi, bank.attend(phi), 0, LABELS, client, ONES, 0.1, 1e-3)
    rest = found.total - found.mutual
    (to_client,) = torch.autograd.grad(rest, client, retain_graph=True, allow_unused=True)
    assert to_client is None or float(to_client.abs().max()) == 0
    own, other = (next(bank.adapters[index].parameters()) for index in (0, 1))
    to_client, to_own = torch.autograd.grad(found.mutual, [client, own], retain_graph=True)
    assert float(to_client.abs().min()) > 0
    assert float(to_own.abs().max()) > 0
    (to_other,) = torch.autograd.grad(found.mutual, other, retain_graph=True, allow_unused=True)
    assert to_other is None or float(to_other.abs().max()) == 0  # J is about the silo's own adapter
    assert all(float(grad.abs().max()) > 0 for grad in torch.autograd.grad(rest, [own, other, bank.mixer.weight]))


def test_each_direction_of_the_divergence_moves_both_sides() -> None:
    one, other = (torch.randn(4, 3, generator=torch.Generator().manual_seed(s)).requires_grad_(True) for s in (3, 4))
    for value in (divergence(one, other), divergence(other, one)):
        assert all(float(grad.abs().min()) > 0 for grad in torch.autograd.grad(value.sum(), [one, other]))
    by_hand = (one.softmax(1) * (one.softmax(1) / other.softmax(1)).log()).sum(1)
    torch.testing.assert_close(divergence(one, other), by_hand)


def test_scores_weigh_images_negative_ones_count_as_none_and_without_any_all_count_alike() -> None:
    one, other = (torch.randn(3, 3, generator=torch.Generator().manual_seed(s)) for s in (5, 6))
    each = (divergence(one, other) + divergence(other, one)) / 2
    torch.testing.assert_close(mutual_loss(one, other, torch.tensor([0.6, 0.2, -5.0])), (3 * each[0] + each[1]) / 4)
    for nothing in (torch.zeros(3), torch.tensor([-1.0, -0.5, 0.0])):
        torch.testing.assert_close(mutual_loss(one, other, nothing), each.mean())


def test_terms_drop_out_one_by_one() -> None:
    bank, client = bank_of(3), torch.randn(6, 3, generator=torch.Generator().manual_seed(7))
    phi = bank.logits(bank.adapted(features()))
    beta = bank.attend(phi)
    whole = server_losses(phi, beta, 1, LABELS, client, ONES, 0.1, 1e-3)
    without = server_losses(phi, beta, 1, LABELS, None, ONES, 0.1, 1e-3)
    torch.testing.assert_close(without.total, whole.total - whole.mutual)
    alone = server_losses(phi, None, 1, LABELS, client, ONES, 0.1, 1e-3)
    torch.testing.assert_close(alone.total, whole.mutual + whole.inside.mean())
    summed = server_losses(phi, beta, 1, LABELS, client, ONES, 0.1, 1e-3, "sum")
    torch.testing.assert_close(summed.total - summed.mutual, 6 * (whole.total - whole.mutual))


# ------------------------------------------------------------------------------------------------------ the silo's half
def test_prototypes_and_scores_by_hand() -> None:
    seen = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    means = class_means([(seen[:2], torch.tensor([0, 0])), (seen[2:], torch.tensor([1]))], 3)
    assert means.tolist() == [[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]
    score = quality(torch.tensor([[5.0, 0.0], [1.0, 1.0], [-1.0, 0.0], [1.0, 2.0]]), torch.tensor([0, 1, 0, 2]), means)
    torch.testing.assert_close(score, torch.tensor([1.0, 0.5**0.5, -1.0, 0.0]))  # class 2 has no prototype


def test_momentum_start_by_hand(clip: str, silos: Federation) -> None:
    """Weights and statistics mix, counters do not; what goes back is the change of what the server sent."""
    plan = tiny.plan(fedag(clip, gamma=0.75), TRAINING)
    engine = Sequential(plan, silos)
    host, floats = engine.host, plan.flat().layout.floats
    sent = host.model.read()
    own = sent + 1
    own[floats:] = 7
    part = plan.method.parts[0]
    silo = plan.silo(host.model, silos["a"], Request("train", 1, Message({MODEL: sent})), Memory())
    silo.load(sent)
    part.begin(silo)
    assert torch.equal(silo.model.read(), sent)  # the first time there is nothing to mix with
    silo.memory.of(part)["model"] = own
    part.begin(silo)
    expected = 0.75 * own + 0.25 * sent
    expected[floats:] = 7
    torch.testing.assert_close(silo.model.read(), expected)
    assert torch.equal(silo.start, silo.model.read())
    torch.testing.assert_close(silo.change(), expected - sent)


@pytest.mark.slow
def test_a_silo_goes_on_from_its_own_model_unless_gamma_is_zero(
    clip: str, silos: Federation, made: dict[str, Split]
) -> None:
    """With kd off the server returns what it got, so that mixing changes nothing; else it does."""
    for settings, same in (({"kd": False}, True), ({}, False)):
        with_, without = (run(fedag(clip, gamma, **settings), silos, made)[1] for gamma in (0.9, 0.0))
        pairs = [(kept(with_)["models"][name], kept(without)["models"][name]) for name in silos.names]
        assert all(torch.allclose(one, other, atol=1e-6) == same for one, other in pairs)
        assert "model" in with_.engine.memory["a"]["momentum-start"]
        assert "model" not in without.engine.memory["a"].get("momentum-start", {})


def test_bad_synthetic_images_get_lower_scores(clip: str, silos: Federation, made: dict[str, Split]) -> None:
    longer = dataclasses.replace(TRAINING, rounds=3, epochs=6)
    _, loop = run(fedag(clip), silos, made, longer)
    for name in silos.names:
        scores = kept(loop)["quality"][name]
        assert len(scores) == 12
        assert float(scores[~BAD].mean()) > float(scores[BAD].mean()) + 0.2
        assert float(scores.abs().max()) <= 1 + 1e-6


# ----------------------------------------------------------------------------------------------------------- the server
def test_adapters_learn_alone_before_round_1(clip: str, silos: Federation, made: dict[str, Split]) -> None:
    """Each from its own silo's images: other images for one silo change its adapter alone."""
    vectors = []
    other = {**made, "b": Split(made["b"].inputs.flip(0), made["b"].targets)}
    for images in (made, other):
        loop = loop_of(fedag(clip, init_epochs=3), silos, images)
        before = loop.server.vector.clone()
        loop.blueprint.method.parts[1].prepare(loop.server)
        vectors.append(loop.server.vector)
    layout = loop.server.layout
    for slot in layout.slots:
        moved = not torch.equal(vectors[0][slot.place], before[slot.place])
        differs = not torch.equal(vectors[0][slot.place], vectors[1][slot.place])
        assert moved == slot.name.startswith("adapters")
        assert differs == slot.name.startswith("adapters.1")
    memory = loop.engine.memory
    assert torch.equal(memory["b"]["domain-adapters"]["images"], other["b"].inputs)
    assert torch.equal(memory["a"]["domain-adapters"]["labels"], made["a"].targets)
    assert all(torch.equal(model, kept(loop)["initial"]) for model in kept(loop)["models"].values())


def test_the_server_learns(clip: str, silos: Federation, made: dict[str, Split]) -> None:
    """G on all synthetic images falls, adapter by adapter and together."""
    _, start = run(fedag(clip, init_epochs=0, server_epochs=0), silos, made)
    _, end = run(fedag(clip, init_epochs=5, server_epochs=30, server_lr=0.02), silos, made)
    for name in silos.names:
        before, after = (losses_at(loop, name, made[name]) for loop in (start, end))
        assert after[0] < before[0] - 0.05
        assert after[1] < before[1] - 0.05
    assert not torch.equal(kept(end)["models"]["a"], kept(end)["models"]["b"])


def losses_at(loop: Loop, name: str, split: Split) -> tuple[float, float]:
    """Mean cross-entropy of the own adapter's answer and of the joint one."""
    found = []
    for silo in (name, None):
        output = answered(loop, silo, split)
        found.append(float(F.cross_entropy(output.prediction, split.targets)))
    return found[0], found[1]


def answered(loop: Loop, silo: str | None, split: Split) -> Output:
    server = loop.server
    assert server.own_model is not None
    server.own_model.load(server.method.parts[1].model_for(server, silo, server.vector))
    with torch.no_grad():
        output: Output = server.own_model.module(prepare(split.inputs, torch.device("cpu"), torch.float32))
    return output


@pytest.mark.parametrize("cross", [True, False])
def test_a_known_silo_is_answered_by_its_adapter_and_an_unseen_one_by_all(
    clip: str, silos: Federation, made: dict[str, Split], cross: bool
) -> None:
    history, loop = run(fedag(clip, cross=cross), silos, made)
    server = loop.server
    assert server.own_model is not None
    bank = server.own_model.module
    assert isinstance(bank, AdapterBank)
    server.own_model.load(server.vector)
    rows = {(row["silo"], row["split"]): row for row in history.rows if row["model"] == "global" and row["round"] == 2}
    for data in (*silos.silos, *silos.unseen):
        with torch.no_grad():
            stemmed = bank.stem_in_blocks(prepare(data.test.inputs, torch.device("cpu"), torch.float32))
            phi = bank.logits(bank.adapted(stemmed))
            beta = torch.softmax(bank.mixer(phi)[..., 0], 0) if cross else torch.full(phi.shape[:2], 1 / 3)
        joint = (beta[..., None] * phi).sum(0)
        expected = phi[silos.names.index(data.name)] if data.name in silos.names else joint
        row = rows[data.name, "test"]
        assert row["loss"] == pytest.approx(float(F.cross_entropy(expected, data.test.targets)), rel=1e-5)
        torch.testing.assert_close(answered(loop, None, data.test).prediction, joint)
        assert answered(loop, None, data.test).extra["attention"].shape == (len(data.test), 3)
    messages = open_evaluation(server, ["a", "c", "newcomer"], ["u"])
    place = next(slot.place for slot in server.layout.slots if slot.name == "route")
    routes = {name: float(message.tensors[MODEL][place]) for name, message in messages.items()}
    assert routes == {"a": 0.0, "c": 2.0, "newcomer": -1.0, "u": -1.0}
    assert float(server.vector[place]) == -1
    newcomer = open_round(server, ["newcomer"], {})["newcomer"].tensors[MODEL]
    assert torch.equal(newcomer, kept(loop)["initial"])


def moved(loop: Loop, prefix: str, other: Loop) -> bool:
    return any(
        not torch.equal(loop.server.vector[slot.place], other.server.vector[slot.place])
        for slot in loop.server.layout.slots
        if slot.name.startswith(prefix)
    )


@pytest.mark.slow
def test_ablations_change_what_they_should_and_only_that(clip: str, silos: Federation, made: dict[str, Split]) -> None:
    once = dataclasses.replace(TRAINING, rounds=1)

    def ran(**settings: Any) -> Loop:
        return run(fedag(clip, **settings), silos, made, once)[1]

    def same(one: Loop, other: Loop) -> bool:
        models = all(torch.equal(kept(one)["models"][name], kept(other)["models"][name]) for name in silos.names)
        return models and torch.equal(one.server.vector, other.server.vector)

    full, still = ran(), ran(server_epochs=0)
    trained = kept(still)["models"]  # what silos sent, since the server did nothing
    assert all(not torch.equal(kept(full)["models"][name], trained[name]) for name in silos.names)
    no_kd = ran(kd=False)
    assert all(torch.equal(kept(no_kd)["models"][name], trained[name]) for name in silos.names)
    assert moved(no_kd, "adapters", still)
    assert moved(no_kd, "adapters", full)
    no_cross = ran(cross=False)
    assert not moved(no_cross, "mixer", still)
    assert moved(full, "mixer", still)
    assert moved(no_cross, "adapters", still)
    assert not same(ran(quality=False), full)
    assert not same(ran(lam=5.0), full)
    assert not same(ran(margin=0.5), full)
    assert not same(ran(reduction="sum"), full)
    assert not same(ran(as_printed=True), full)
    # scores act in J alone, lam and the margin in R alone: without these, settings of them are refused
    for settings in ({"kd": False, "quality": False}, {"cross": False, "lam": 5.0}, {"cross": False, "margin": 0.5}):
        with pytest.raises(FairsiloError, match="has no effect with"):
            ran(**settings)
    assert same(ran(lam=0.0, margin=0.5), ran(lam=0.0))
    # all that a silo says without its scores is as with equal ones
    unscored = fedag(clip).without("momentum-start")
    assert kept(run(unscored, silos, made, once)[1])["quality"] == {}
    assert same(run(unscored, silos, made, once)[1], ran(quality=False))


def test_the_servers_copies_of_the_silos_models_take_adams_first_step(
    clip: str, silos: Federation, made: dict[str, Split]
) -> None:
    """One step of Adam moves a weight by its rate, whatever the gradient; statistics alone would not."""
    once = dataclasses.replace(TRAINING, rounds=1)
    still = kept(run(fedag(clip, server_epochs=0), silos, made, once)[1])["models"]
    _, loop = run(fedag(clip, server_epochs=1, server_batch=12, server_lr=0.01), silos, made, once)
    width = loop.server.silo_layout.parameters
    for name, model in kept(loop)["models"].items():
        steps = (model - still[name])[:width].abs()
        torch.testing.assert_close(steps.max(), torch.tensor(0.01), rtol=1e-3, atol=0)
        # all but a bias before a normalisation, whose gradient is rounding, and units that never answer
        assert float((steps > 0.009).float().mean()) > 0.8


def test_a_score_belongs_to_its_image(clip: str, silos: Federation, made: dict[str, Split]) -> None:
    """With all the weight on image 2 mutual learning is about image 2, wherever it stands in a batch."""
    _, loop = run(fedag(clip), silos, made, dataclasses.replace(TRAINING, rounds=1))
    server, part = loop.server, fedag(clip, cross=False).parts[1]
    assert isinstance(part, DomainAdapters)
    assert server.network is not None
    training = Infusion.of(server, part)
    bank = training.bank
    copy = server.network()
    copy.load(kept(loop)["models"]["b"])
    copy.eval()
    for position, chosen in ((1, [4, 2, 7]), (0, [2, 9]), (2, [11, 10, 2])):
        picked = torch.tensor(chosen)
        inputs = prepare(made["b"].inputs[picked], torch.device("cpu"), torch.float32)
        phi = bank.logits(bank.adapted(bank.stem_in_blocks(inputs)))[1]
        theta = copy.module(inputs)
        theta = theta.prediction if isinstance(theta, Output) else theta
        each = (divergence(theta, phi) + divergence(phi, theta)) / 2
        found = training.objective(part, {"b": F.one_hot(torch.tensor(2), 12).float()}, "b", picked, copy)
        expected = each[position] + F.cross_entropy(phi, made["b"].targets[picked])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(each, each[position], rtol=1e-2)  # another image would give another number


def test_a_silo_scores_images_in_their_order(clip: str, silos: Federation, made: dict[str, Split]) -> None:
    _, loop = run(fedag(clip), silos, made, dataclasses.replace(TRAINING, rounds=1))
    data, images = silos["a"], made["a"]
    silo = loop.blueprint.silo(loop.blueprint.flat(), data, Request("train", 1, Message()), Memory())
    model = loop.engine.memory["a"]["momentum-start"]["model"]  # as it was when the images were scored
    seen, drawn = (
        silo.reference(prepare(split.inputs, torch.device("cpu"), torch.float32), model).features
        for split in (data.train, images)
    )
    assert seen is not None
    assert drawn is not None
    means = torch.stack([seen[data.train.targets == label].mean(0) for label in range(3)])
    expected = [
        float(F.cosine_similarity(one, means[label], dim=0)) for one, label in zip(drawn, images.targets, strict=True)
    ]
    assert kept(loop)["quality"]["a"].tolist() == pytest.approx(expected, rel=1e-4)


def test_every_image_counts_once_an_epoch_but_a_last_one_alone() -> None:
    for count, expected in ((12, [5, 5, 2]), (11, [5, 5]), (5, [5]), (2, [2]), (1, [1])):
        batches = list(shuffled(count, 5, torch.Generator().manual_seed(0)))
        assert [len(batch) for batch in batches] == expected
        assert len(set(torch.cat(batches).tolist())) == sum(expected)


def test_silos_with_fewer_images_and_rounds_without_a_silo(
    clip: str, silos: Federation, made: dict[str, Split]
) -> None:
    fewer = {**made, "b": Split(made["b"].inputs[:6], made["b"].targets[:6])}
    training = dataclasses.replace(TRAINING, rounds=4, participation="2")
    history, loop = run(fedag(clip), silos, fewer, training)
    assert {len(record["counted"]) for record in history.rounds} == {2}
    assert len(kept(loop)["quality"]["b"]) == 6
    assert all(len(model) == loop.server.silo_layout.size for model in kept(loop)["models"].values())


def test_a_silo_that_got_no_synthetic_images_takes_part_without_scores(
    clip: str, silos: Federation, made: dict[str, Split]
) -> None:
    class Deaf(Sequential):
        def ask(self, exchange: Exchange) -> Any:
            sharing = exchange.kind == "share"
            heard = {name: one for name, one in exchange.messages.items() if not sharing or name != "b"}
            yield from super().ask(dataclasses.replace(exchange, messages=heard))
            if sharing:
                yield Reply("b", Failure("timeout"), number=exchange.number)

    history, loop = run(fedag(clip), silos, made, engine=Deaf)
    assert set(kept(loop)["quality"]) == {"a", "c"}
    assert history.rounds[-1]["counted"] == ["a", "b", "c"]


# ----------------------------------------------------------------------------------------------------------- whole runs
@pytest.mark.slow
def test_crash_and_resume_and_other_engines_give_the_same_numbers(
    clip: str, silos: Federation, made: dict[str, Split], pool: Pool, tmp_path: Path
) -> None:
    training = dataclasses.replace(TRAINING, epochs=1)
    whole, _ = run(fedag(clip), silos, made, training, folder=tmp_path / "whole")

    class Crash(BaseException):
        pass

    for kind, number in (("opened", 1), ("closed", 2)):

        def crash(event: Event, kind: str = kind, number: int = number) -> None:
            if event.kind == kind and event.round == number:
                raise Crash

        folder = tmp_path / kind
        with pytest.raises(Crash):
            run(fedag(clip), silos, made, training, folder=folder, listener=crash)
        again, _ = run(fedag(clip), silos, made, training, folder=folder)
        assert tiny.numbers(again) == tiny.numbers(whole)
    spread, _ = run(fedag(clip), silos, made, training, engine=lambda plan, people: Processes(plan, people, pool))
    assert tiny.numbers(spread) == tiny.numbers(whole)


def test_silos_send_their_scores_and_own_models_are_measured(
    clip: str, silos: Federation, made: dict[str, Split]
) -> None:
    history, loop = run(fedag(clip), silos, made, dataclasses.replace(TRAINING, rounds=4, epochs=6))
    how = loop.blueprint.method
    assert any("synthetic image" in text for text in how.sends)
    own = [row["metric"] for row in history.rows if row["model"] == "personal" and row["round"] == 4]
    assert min(own) > 0.5
    assert {row["silo"] for row in history.rows if row["model"] == "global"} == {"a", "b", "c", "u"}
    share, *_ = history.rounds[0]["exchanges"]
    assert share["kind"] == "share"
    assert share["bytes_down"] >= sum(len(split) * (3 * 64 + 8) for split in made.values())
    later = history.rounds[1]["exchanges"][0]
    assert later["bytes_up"] < 4 * 3 * loop.server.silo_layout.size + 2000  # scores, not images


def test_what_cannot_be_is_refused_in_a_sentence(clip: str, silos: Federation, made: dict[str, Split]) -> None:
    def refused(how: Method, images: dict[str, Split], said: str) -> None:
        with pytest.raises(FairsiloError, match=said):
            run(how, silos, images)

    refused(fedag(clip), {}, "domain-adapters needs synthetic images; choose a generator")
    refused(fedag(clip), {"a": made["a"], "b": made["b"]}, "for every silo, and 'c' has none")
    with pytest.raises(FairsiloError, match="the images are 6x6, and the server's model takes 8x8; set data"):
        run(fedag(clip), tiny.federation(), made)
    refused(fedag(clip) | TwoHeads(), made, "some tensors never leave their silo")
    refused(Method((MomentumStart(),), "half"), made, "'momentum-start' cannot do without 'domain-adapters'")
    refused(fedag("small-cnn"), made, "backbone is 'small-cnn'; it must be tiny-clip, clip:PATH or package:function")
    refused(fedag("tiny-vit:x"), made, "unknown model 'tiny-vit:x'; did you mean 'tiny-vit'")


# ----------------------------------------------------------------------------------------------------- synthetic images
@pytest.fixture(scope="module")
def digits() -> Federation:
    return federate(glyphs(0, 16, 120), held_out="street")


def test_rendered_images_are_the_same_again_balanced_and_as_many_as_asked_for(digits: Federation) -> None:
    made, again = (make_synthetic("glyphs", digits.roster, 0.4, 0.2, 3) for _ in range(2))
    assert set(made) == set(digits.names) == {"scan", "photo", "print", "sketch"}  # none for the unseen domain
    for silo in digits.silos:
        split = made[silo.name]
        assert torch.equal(split.inputs, again[silo.name].inputs)
        assert len(split) == round(0.4 * len(silo.train))
        counts = split.targets.bincount(minlength=10)
        assert int(counts.max() - counts.min()) <= 1
        assert split.inputs.shape[1:] == silo.train.inputs.shape[1:]
        assert split.inputs.dtype == torch.uint8
    other = make_synthetic("glyphs", digits.roster, 0.4, 0.2, 4)
    assert not torch.equal(made["scan"].inputs, other["scan"].inputs)
    few = make_synthetic("glyphs", digits.roster, 0.01, 0.0, 3)
    assert few["scan"].targets.tolist() == list(range(10))


def test_the_bad_share_of_rendered_images_is_bad_and_the_rest_is_as_without_it(digits: Federation) -> None:
    clean, spoilt = (make_synthetic("glyphs", digits.roster, 0.5, bad, 0) for bad in (0.0, 0.3))
    for name in digits.names:
        unfit = bad_ones(name, len(clean[name]), 0.3, 0)
        assert int(unfit.sum()) == round(0.3 * len(clean[name]))
        differs = (clean[name].inputs != spoilt[name].inputs).flatten(1).any(1)
        assert torch.equal(differs, unfit)
        assert torch.equal(clean[name].targets, spoilt[name].targets)  # a wrong label is a wrong picture
    assert not torch.equal(bad_ones("scan", 60, 0.3, 0), bad_ones("photo", 60, 0.3, 0))
    assert not bad_ones("scan", 60, 0.0, 0).any()


def test_bad_rendered_images_show_another_digit_noise_or_nothing(
    digits: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str | None] = []

    def draw(easel: Easel, digit: str | None) -> Any:
        shown.append(digit)
        return np.full((easel.side, easel.side, 3), 0.5)

    monkeypatch.setitem(STYLES, "scan", draw)
    split = make_synthetic("glyphs", digits.roster, 1.0, 0.6, 0)["scan"]
    unfit = bad_ones("scan", len(split), 0.6, 0)
    noisy = split.inputs.float().flatten(1).std(1) > 5
    for index, digit in enumerate(shown):
        right = digit == CLASSES[int(split.targets[index])]
        assert right == (not bool(unfit[index]) or bool(noisy[index]))
    wrong = sum(digit is not None and digit != CLASSES[int(y)] for digit, y in zip(shown, split.targets, strict=True))
    assert min(wrong, shown.count(None), int(noisy.sum())) >= 5
    assert wrong + shown.count(None) + int(noisy.sum()) == int(unfit.sum())


def test_rendered_images_resemble_their_class_and_domain() -> None:
    """Each digit and style is a picture of its own: nearer to the mean of its class than to the others', mostly."""
    assert set(STROKES) == set(CLASSES)
    for name, draw in STYLES.items():
        images = np.stack(
            [[draw(Easel(96, 0, name, digit, number), digit).mean(2) for number in range(8)] for digit in CLASSES]
        )
        blank = draw(Easel(96, 0, name, "blank"), None)
        assert blank.shape == (96, 96, 3)
        small = images.reshape(10, 8, 12, 8, 12, 8).mean((3, 5)).reshape(10, 8, -1)
        edges = np.abs(small - np.median(small, -1, keepdims=True))  # dark on light or light on dark
        edges = edges / np.linalg.norm(edges, axis=-1, keepdims=True)
        means = edges[:, :6].mean(1)
        right = [(edges[d, n] @ means.T).argmax() == d for d in range(10) for n in (6, 7)]
        assert np.mean(right) > 0.35, name  # 0.1 by chance


@pytest.mark.slow
def test_bad_rendered_images_get_lower_scores_from_a_model_of_the_domain() -> None:
    """What FedAG's silos do, with a real model: scores of unfit images are lower on average."""
    data = federate(glyphs(0, 16, 400), held_out="street")
    silo = data["print"]
    made = make_synthetic("glyphs", data.roster, 0.5, 0.3, 0)["print"]
    unfit = bad_ones("print", len(made), 0.3, 0)
    module = build("small-cnn", 10, 3, 0)
    model = FlatModel(module, Layout.of(module))
    optimizer = torch.optim.Adam([model.parameters], lr=3e-3)
    inputs, targets = prepare(silo.train.inputs, torch.device("cpu"), torch.float32), silo.train.targets
    for _ in range(30):
        model.gradients.zero_()
        F.cross_entropy(module(inputs).prediction, targets).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        means = class_means([(module(inputs).features, targets)], 10)
        output = module(prepare(made.inputs, torch.device("cpu"), torch.float32))
    scores = quality(output.features, made.targets, means)
    assert float(scores[~unfit].mean()) > float(scores[unfit].mean()) + 0.05


def write_folder(path: Path, domains: tuple[str, ...], each: int = 3) -> None:
    for domain in domains:
        for number, name in enumerate(CLASSES):
            (path / domain / name).mkdir(parents=True)
            for index in range(each):
                Image.new("RGB", (20, 20), (20 * number, 80 * index, 9)).save(path / domain / name / f"{index}.png")


def test_a_synthetic_folder_is_read_by_domain_and_a_missing_class_named(tmp_path: Path, digits: Federation) -> None:
    write_folder(tmp_path, (*digits.names, "street"))
    made = make_synthetic(f"folder:{tmp_path}", digits.roster, 0.25, 0.5, 0)
    assert set(made) == set(digits.names)
    for silo in digits.silos:
        split = made[silo.name]
        counts = split.targets.bincount(minlength=10)
        assert len(split) == round(0.25 * len(silo.train))
        assert int(counts.max() - counts.min()) <= 1
        assert split.inputs.shape[1:] == (3, 16, 16)
        assert torch.equal(split.inputs[:, 0, 0, 0], (20 * split.targets).to(torch.uint8))
    again = make_synthetic(f"folder:{tmp_path}", digits.roster, 0.25, 0.5, 0)
    assert torch.equal(made["scan"].inputs, again["scan"].inputs)
    all_there_is = make_synthetic(f"folder:{tmp_path}", digits.roster, 5.0, 0.0, 0)
    assert len(all_there_is["scan"]) == 30
    for file in (tmp_path / "photo" / "7").iterdir():
        file.unlink()
    with pytest.raises(FairsiloError, match=r"has no image of the class '7' in the domain 'photo'"):
        make_synthetic(f"folder:{tmp_path}", digits.roster, 0.25, 0.0, 0)


def test_public_images_of_the_server_stand_for_synthetic_ones(digits: Federation) -> None:
    """A domain that is there has its own; what is not there comes from all but the held-out domain."""

    def split(first: int, classes: range = range(10)) -> Split:
        targets = torch.tensor([number for number in classes for _ in range(3)])
        return Split(torch.full((len(targets), 3, 16, 16), first, dtype=torch.uint8), targets)

    people = dataclasses.replace(digits, silos=(digits["photo"], digits["print"], digits["scan"]))
    people = dataclasses.replace(people, unseen=(dataclasses.replace(digits["scan"], name="street", domain="street"),))
    source = {"scan": split(1), "print": split(2, range(9)), "street": split(3), "web": split(4)}
    made = public_images(source, people.roster, 0.25, 0)
    for silo in people.silos:
        wanted = max(10, round(0.25 * len(silo.train)))
        counts = made[silo.name].targets.bincount(minlength=10)
        assert int(counts.max() - counts.min()) <= 1
        assert len(made[silo.name]) == min(wanted, 30)
    firsts = {name: set(one.inputs[:, 0, 0, 0].tolist()) for name, one in made.items()}
    assert firsts["scan"] == {1}
    assert firsts["photo"] <= {1, 2, 4}
    assert 3 not in set.union(*firsts.values())  # no model may see anything of what is held out
    nine = made["print"].inputs[made["print"].targets == 9][:, 0, 0, 0]
    others = made["print"].inputs[made["print"].targets != 9][:, 0, 0, 0]
    assert set(others.tolist()) == {2}
    assert set(nine.tolist()) <= {1, 4}
    with pytest.raises(FairsiloError, match="of domains that are held out"):
        public_images({"street": split(3)}, people.roster, 0.25, 0)
    with pytest.raises(FairsiloError, match="no image of the class '9'"):
        public_images({"scan": split(1, range(9))}, people.roster, 0.25, 0)


def test_bad_sources_of_synthetic_images_are_refused_in_a_sentence(
    tmp_path: Path, digits: Federation, silos: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(kind: str, people: Federation, said: str) -> None:
        with pytest.raises(FairsiloError, match=said):
            make_synthetic(kind, people.roster, 0.1, 0.0, 0)

    for kind in ("paint", "glyphs:x", "folder", "folder:", "diffusion:"):
        refused(
            kind, digits, f"data.synthetic is '{kind}'; it must be one of glyphs, folder:PATH, diffusion:MODEL, server"
        )
    refused("glyphs", silos, "draws the digits of the embedded federation.*has other classes or the domain 'a'")
    refused("folder:nowhere", digits, "the synthetic folder nowhere does not exist")
    refused("folder:glyphs", digits, "the synthetic folder glyphs does not exist")  # not the real data of that name
    write_folder(tmp_path, ("scan", "photo", "print"), each=1)
    refused(f"folder:{tmp_path}", digits, "has no domain 'sketch'")
    refused("diffusion:model;stepps=3", digits, "the option 'stepps=3'.*did you mean 'steps'.*may come ;tokens=FOLDER")
    refused("diffusion:model;steps=few", digits, "'few' is no number")
    refused("diffusion:model;steps=0", digits, "images and steps at least 1")
    refused("diffusion:model;learn=3;tokens=here", digits, "both tokens=FOLDER and learn=STEPS")
    refused("diffusion:tiny;learn=3", digits, "silos learn the words for their styles in a run, and this is none")
    monkeypatch.setitem(sys.modules, "diffusers", None)
    refused("diffusion:model", digits, r"needs the package diffusers; install it with pip install 'fairsilo\[synth\]'")


TINY = "diffusion:tiny;steps=2;guidance=1"  # the model that comes along, at its fastest


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All prompts that the diffusion model is given."""
    pipeline = pytest.importorskip("diffusers").StableDiffusionPipeline
    whole, found = pipeline.__call__, []

    def called(self: Any, prompt: list[str], **options: Any) -> Any:
        found.extend(prompt)
        return whole(self, prompt, **options)

    monkeypatch.setattr(pipeline, "__call__", called)
    return found


def few(people: Federation, count: int = 12) -> Federation:
    """With so few training samples that little is drawn."""
    return dataclasses.replace(
        people,
        silos=tuple(
            dataclasses.replace(silo, train=Split(silo.train.inputs[:count], silo.train.targets[:count]))
            for silo in people.silos
        ),
    )


@pytest.mark.slow
def test_a_diffusion_model_is_asked_by_the_paper_s_templates(
    tmp_path: Path, digits: Federation, asked: list[str]
) -> None:
    roster = few(digits).roster
    made = make_synthetic(TINY, roster, 1.0, 0.0, 0)
    assert set(made) == set(digits.names)
    assert made["sketch"].inputs.shape == (12, 3, 16, 16)
    assert made["sketch"].targets.tolist() == [*range(10), 0, 1]
    assert "a drawing of 3 in sketch style" in asked
    assert "a photograph of 3 in photo style" in asked
    assert len(asked) == sum(map(len, made.values()))
    again = make_synthetic(TINY, roster, 1.0, 0.0, 0)
    assert torch.equal(made["scan"].inputs, again["scan"].inputs)
    assert len({image.numpy().tobytes() for image in made["scan"].inputs}) == 12  # a stream for each image
    for name in digits.names:
        save_file({f"<{name}>": torch.full((64,), 0.1)}, tmp_path / f"{name}.safetensors")
    other = make_synthetic(f"{TINY};tokens={tmp_path}", roster, 1.0, 0.0, 0)
    assert "a 3 in <scan> style" in asked
    assert not torch.equal(other["scan"].inputs, made["scan"].inputs)
    save_file({"<scan>": torch.full((32,), 0.1)}, tmp_path / "scan.safetensors")
    with pytest.raises(FairsiloError, match="the word <scan> is none of tiny"):
        make_synthetic(f"{TINY};tokens={tmp_path}", roster, 1.0, 0.0, 0)
    (tmp_path / "scan.safetensors").unlink()
    for pickled in ("scan.bin", "scan.pt"):  # opening one may run code
        (tmp_path / pickled).touch()
    with pytest.raises(FairsiloError, match="has no textual inversion of the domain 'scan'"):
        make_synthetic(f"{TINY};tokens={tmp_path}", roster, 1.0, 0.0, 0)
    with pytest.raises(FairsiloError, match=r"the diffusion model .*nothing cannot be loaded"):
        make_synthetic(f"diffusion:{tmp_path / 'nothing'}", roster, 1.0, 0.0, 0)
    assert prompt("real_world", "mug") == "a photograph of mug in real world style"


# ----------------------------------------------------------------------------------------------- words that silos learn
@pytest.mark.parametrize("engine", ["sequential", pytest.param("processes", marks=pytest.mark.slow)])
def test_silos_learn_words_for_their_styles(engine: str, tmp_path: Path, animals: Path, asked: list[str]) -> None:
    source = f"{TINY};learn=2;images=2"
    chosen = settings_of(animals, "fedavg-ft(tuning_lr=0.05)", synthetic=source, synthetic_share=0.2)
    chosen["engine"] = {"name": engine, **({"workers": 2} if engine == "processes" else {})}
    told: list[str] = []
    result = api.run(**chosen, out=tmp_path / "run", listener=lambda event: told.append(event.text))
    assert "silos learn the words for their styles" in told
    words = read_tree(tmp_path / "run" / "synthetic" / ".words")
    assert {name: word.shape for name, word in words.items()} == {"ink": (64,), "paint": (64,)}
    assert not torch.equal(words["ink"], words["paint"])
    people = federation_of(experiment(chosen))
    generator = Generator.of(source.partition(":")[2])
    for name, word in words.items():  # what the silo's own images give, on every engine
        alone = learned_word(generator, people[name].train, people.classes, 0, "style", name)
        torch.testing.assert_close(word, alone, rtol=1e-4, atol=1e-5)
    assert set(asked) == {f"a {name} in <style-{n}> style" for name in people.classes for n in (0, 1)}
    assert result.summary["generalisation"]["mean"] is not None
    assert json.loads((tmp_path / "run" / "run.json").read_text())["method_sends"][-1] == TOKEN


def test_runs_of_one_process_learn_words_once(tmp_path: Path, digits: Federation) -> None:
    """Also where they want other numbers of images; not where silos have other data, or words are made otherwise."""
    shared: dict[tuple[object, ...], torch.Tensor] = {}
    asked: list[int] = []

    def words() -> dict[str, torch.Tensor]:
        asked.append(len(asked))
        return {name: torch.full((64,), 0.1 + len(asked)) for name in people.roster.names}

    def made(share: float, folder: str, learn: int = 2) -> dict[str, Split]:
        source = f"{TINY};learn={learn};images=2"
        return make_synthetic(source, people.roster, share, 0.0, 0, tmp_path / folder, shared, words)

    people = dataclasses.replace(digits, silos=(digits["scan"],))
    made(0.1, "few")
    more = made(0.3, "more")
    assert len(asked) == 1
    assert torch.equal(read_tree(tmp_path / "more" / ".words")["scan"], torch.full((64,), 1.1))
    assert len(more["scan"]) > 10
    made(0.1, "otherwise", learn=3)
    assert len(asked) == 2
    scan = digits["scan"]
    people = dataclasses.replace(digits, silos=(dataclasses.replace(scan, train=scan.train.subset(range(30))),))
    made(1.0, "less")
    assert len(asked) == 3


def test_a_silo_that_cannot_learn_a_word_is_named(tmp_path: Path, silos: Federation) -> None:
    class Answering:
        def __init__(self, answer: Message | Failure) -> None:
            self.answer = answer

        def ask(self, exchange: Exchange) -> Any:
            return (Reply(name, self.answer, 0.0, exchange.number) for name in exchange.silos[:1])

    def refused(answer: Message | Failure, said: str) -> None:
        with pytest.raises(FairsiloError, match=said):
            ask_words(cast(Engine, Answering(answer)), "tiny;learn=1", silos.roster, 0)

    refused(Failure("error", "no memory"), "a could not learn the word for its style: error: no memory")
    for wrong in (Message(), Message({"word": torch.zeros(2, 2)}), Message({"word": torch.tensor([float("nan")])})):
        refused(wrong, "a sent no word for its style")
    refused(Message({"word": torch.zeros(64)}), "no word came for the style of b, c")
    host = Host(tiny.plan("fedavg"), silos)
    request = Request("style", 0, Message({}, {"generator": "some/model;learn=1", "seed": 0, "classes": "cat"}))
    answer = host.answer("a", request, Memory()).message
    assert isinstance(answer, Failure)
    assert "some/model is no folder on this machine" in answer.detail  # nothing is fetched because a server says so


@pytest.mark.slow
def test_a_learned_word_makes_the_silo_s_style() -> None:
    """Light paper and dark boards: images drawn under the word of each are light and dark."""
    generator = Generator("tiny", learn=40, images=3, steps=8)
    bright = {}
    for name, level in (("paper", 235), ("board", 20)):
        stream = torch.Generator().manual_seed(level)
        images = (level + 10 * torch.randn(30, 3, 32, 32, generator=stream)).clamp(0, 255).byte()
        images[:, :, 8:24, 14:18] = 255 - level
        word = learned_word(generator, Split(images, torch.arange(30) % 10), CLASSES, 0, name)
        pipeline = load_diffusion(generator, {"<style-0>": word})
        prompts = [prompt("", digit, "<style-0>") for digit in CLASSES]
        bright[name] = torch.cat(list(drawn(pipeline, generator, prompts, 0, name))).float().mean()
    assert bright["paper"] > bright["board"] + 80


# ------------------------------------------------------------------------------------- can the synthetic images teach?
def test_a_run_says_who_reads_the_synthetic_images_and_shows_them(
    tmp_path: Path, silos: Federation, made: dict[str, Split], clip: str
) -> None:
    history, loop = run(fedag(clip), silos, made)
    assert not any("synthetic images" in note for note in history.rounds[0]["notes"])
    (note,) = [note for note in history.rounds[-1]["notes"] if "synthetic images" in note]
    assert note.startswith("of the synthetic images CLIP by itself names ")
    training = Infusion(loop.server, "test", 0.01, 5)
    models = kept(loop)["models"]
    for name, (alone, taught) in training.readings(models).items():
        images, labels = made[name].inputs, made[name].targets
        features = F.normalize(training.bank.clip.images(images / 127.5 - 1), dim=1)
        named = (features @ training.bank.get_buffer("texts").T).argmax(1)
        assert alone == pytest.approx(float((named == labels).float().mean()))
        copy = loop.server.network()  # type: ignore[misc]
        copy.load(models[name])
        copy.eval()
        said = copy.forward(inputs_for(copy, images)).prediction.argmax(1)
        assert taught == pytest.approx(float((said == labels).float().mean()))
    write_sheet(tmp_path, made)
    sheet = read_sheet(tmp_path)
    assert sheet is not None
    assert sheet.silos == ("a", "b", "c")
    with Image.open(tmp_path / "synthetic.png") as picture:
        assert picture.size == (12 * 48, 3 * 48)
    assert "From top to bottom: a, b, c." in synthetic(sheet)
    assert synthetic(read_sheet(tmp_path / "elsewhere")) == ""


def test_images_that_clip_reads_better_than_its_teachers_cannot_teach() -> None:
    assert teaching({"a": (0.5, 0.9), "b": (0.6, 0.7)}) == (
        "of the synthetic images CLIP by itself names 55 % right, the silos' models 80 %"
    )
    assert teaching({"a": (0.99, 0.64), "b": (0.6, 0.7)}).endswith(": they cannot teach it the styles of a")


# ------------------------------------------------------------------------------- images given to the server, whole runs
def packed_domain(name: str, shift: float, seed: int, count: int = 24) -> Domain:
    split = larger(tiny.samples(count, shift, seed))
    return Domain(name, split.inputs, split.targets, torch.full((count,), UNDECIDED, dtype=torch.int8))


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three domains of the user's, 8 x 8."""
    folder = tmp_path_factory.mktemp("animals")
    names = ("ink", "paint", "stamp")
    domains = {name: packed_domain(name, 20.0 * place, place, 48) for place, name in enumerate(names)}
    write_packed(Dataset("animals", ("cat", "dog", "cow"), domains), folder)
    return folder


def write_classes(path: Path, names: tuple[str, ...], each: int = 2) -> Path:
    """PATH/class/image; red says the class's place among the names."""
    for number, name in enumerate(names):
        (path / name).mkdir(parents=True)
        for index in range(each):
            Image.new("RGB", (20, 20), (40 * number, 9, 9)).save(path / name / f"{index}.png")
    return path


@pytest.fixture
def draws(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A diffusion model that never draws the same twice, as on another machine; all prompts it was given."""
    import diffusers

    whole = diffusers.StableDiffusionPipeline.__call__

    def called(self: Any, prompt: list[str], **options: Any) -> Any:
        other = [torch.Generator().manual_seed(len(asked) + number) for number in range(len(prompt))]
        return whole(self, prompt, **{**options, "generator": other})

    monkeypatch.setattr(diffusers.StableDiffusionPipeline, "__call__", called)
    return asked


def settings_of(animals: Path, how: str = "fedavg", **data: Any) -> dict[str, Any]:
    training = {"rounds": 2, "epochs": 1, "batch_size": 8, "lr": 0.1}
    return {
        "method": how,
        "model": "tiny:TinyNet",
        "data": {"packed": str(animals), **data},
        "train": training,
        "engine": {"name": "sequential"},
    }


def server_split(people: Federation, path: Path) -> Split:
    found = server_data_of(experiment({"data.server": str(path)}), people.roster)
    assert found is not None
    return found


@pytest.mark.parametrize("places", [(".",), ("web",), ("web", "books")])
def test_images_of_the_server_need_no_domains(tmp_path: Path, silos: Federation, places: tuple[str, ...]) -> None:
    for place in places:
        write_classes(tmp_path / place, ("dog", "cow", "cat"))
    split = server_split(silos, tmp_path)
    assert split.inputs.shape == (6 * len(places), 3, 8, 8)
    assert split.inputs.dtype == torch.uint8
    named = [("dog", "cow", "cat")[red // 40] for red in split.inputs[:, 0, 0, 0].tolist()]
    assert [silos.classes[label] for label in split.targets.tolist()] == named


def test_packed_images_of_the_server_may_be_of_one_domain(tmp_path: Path, silos: Federation) -> None:
    web = packed_domain("web", 0.0, 3)
    write_packed(Dataset("web", ("cow", "cat", "dog"), {"web": web}), tmp_path)
    split = server_split(silos, tmp_path)
    assert torch.equal(split.inputs, web.inputs)
    assert torch.equal(split.targets, torch.tensor([2, 0, 1])[web.targets])
    assert list(read_newcomer(str(tmp_path), silos.classes, None)) == ["web"]  # of a new silo as well


def test_images_of_the_server_get_the_shape_of_the_silos(tmp_path: Path, silos: Federation) -> None:
    def flat(split: Split) -> Split:
        return Split(split.inputs[:, :1, :4], split.targets)

    narrow = [
        dataclasses.replace(silo, **{name: flat(silo.split(name)) for name in ("train", "validation", "test")})
        for silo in silos.silos
    ]
    grey = Federation("grey", silos.classes, tuple(narrow))
    assert server_split(grey, write_classes(tmp_path / "web", silos.classes)).inputs.shape == (6, 1, 4, 8)


def test_what_server_and_generator_cannot_use_is_refused_before_anything_is_written(
    tmp_path: Path, animals: Path, draws: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(said: str, **data: Any) -> None:
        with pytest.raises(FairsiloError, match=said):
            api.run(**settings_of(animals, **data), out=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    other = write_classes(tmp_path / "other", ("cat", "dog", "cow", "tree"))
    fewer = write_classes(tmp_path / "fewer", ("cat", "dog"))
    refused("data.server=nowhere does not exist; give PATH/class/image", server="nowhere")
    refused("data.server=glyphs does not exist", server="glyphs")
    refused("other has the class 'tree'", server=str(other))
    refused("fewer has no image of the federation's class 'cow'", server=str(fewer))
    refused("may come ;tokens=FOLDER", synthetic="diffusion:model;stepps=3")
    refused("a folder on their machines, or tiny, not 'model'", synthetic="diffusion:model;learn=3")
    refused("data.synthetic is 'diffusion:;tokens=x'; it must be one of", synthetic="diffusion:;tokens=x")
    (tmp_path / "ink.safetensors").touch()
    refused("has no textual inversion of the domain 'paint'", synthetic=f"diffusion:model;tokens={tmp_path}")
    monkeypatch.setitem(sys.modules, "diffusers", None)
    refused("needs the package diffusers", synthetic="diffusion:model")
    assert draws == []  # nothing was asked of the model


@pytest.mark.slow
def test_what_a_diffusion_model_made_is_kept_and_read_again_at_a_resume(
    tmp_path: Path, animals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("diffusers")
    chosen = settings_of(animals, "fedavg-ft(tuning_lr=0.05)", synthetic=TINY, synthetic_share=0.5)

    class Crash(BaseException):
        pass

    def crash(event: Event) -> None:
        if event.kind == "opened" and event.round == 2:
            raise Crash

    whole = api.run(**chosen, out=tmp_path / "whole")
    with pytest.raises(Crash):
        api.run(**chosen, out=tmp_path / "cut", listener=crash)
    people, folder = federation_of(experiment(chosen)), tmp_path / "cut" / "synthetic"
    made = make_synthetic(TINY, people.roster, 0.5, 0.0, 0)
    monkeypatch.setitem(sys.modules, "diffusers", None)  # another machine, without the package
    assert api.resume(tmp_path / "cut", trust=True).summary == whole.summary
    again = make_synthetic(TINY, people.roster, 0.5, 0.0, 0, folder)
    assert list(again) == ["ink", "paint"]
    for name, split in made.items():
        assert torch.equal(again[name].inputs, split.inputs)
        assert torch.equal(again[name].targets, split.targets)
    assert sorted(file.name for file in folder.iterdir()) == ["ink.safetensors", "paint.safetensors"]
    with pytest.raises(FairsiloError, match="holds synthetic images for other data than the run's config"):
        make_synthetic(TINY, people.roster, 0.7, 0.0, 0, folder)


@pytest.mark.slow
def test_the_cells_of_a_comparison_share_what_a_diffusion_model_made(
    tmp_path: Path, animals: Path, draws: list[str]
) -> None:
    chosen = settings_of(animals, synthetic=TINY, synthetic_share=0.5)
    del chosen["method"]
    api.compare(["fedavg", "fedprox"], seeds=[0, 1], held_out=["stamp", "paint"], out=tmp_path, **chosen)
    files = sorted(tmp_path.glob("*/*/synthetic/*.safetensors"))
    assert len(files) == 16  # two methods, seeds, held-out domains and silos
    people = federation_of(experiment({**chosen, "method": "fedavg"}))
    for name in ("ink", "paint", "stamp"):
        assert len({file.read_bytes() for file in files if file.stem == name}) == 1
        assert sum(name in text for text in draws) == round(0.5 * len(people["ink"].train))  # for one run


def test_a_folder_with_fewer_images_than_asked_for_is_used_and_said(tmp_path: Path, animals: Path) -> None:
    write_classes(tmp_path / "made" / "ink", ("cat", "dog", "cow"), each=30)
    write_classes(tmp_path / "made" / "paint", ("cat", "dog", "cow"))
    training = len(federation_of(experiment(settings_of(animals)))["paint"].train)
    told: list[str] = []

    def listen(event: Event) -> None:
        if event.kind == "note":
            told.append(event.text)

    made = {"synthetic": f"folder:{tmp_path / 'made'}"}
    api.run(**settings_of(animals, **made, synthetic_share=1.0), out=tmp_path / "a", listener=listen)
    short = [text for text in told if "fewer synthetic images" in text]
    assert short == [f"fewer synthetic images than data.synthetic_share asks for: paint 6 of {training}"]
    api.run(**settings_of(animals, **made, synthetic_share=0.1), out=tmp_path / "b", listener=listen)
    assert [text for text in told if "fewer synthetic images" in text] == short


def test_a_run_takes_real_images_of_its_server(tmp_path: Path, animals: Path) -> None:
    write_classes(tmp_path / "public", ("cat", "dog", "cow"), each=10)
    with pytest.raises(FairsiloError, match=r"say where they are: data.server=PATH"):
        api.run(**settings_of(animals, synthetic="server"), out=tmp_path / "a")
    assert not (tmp_path / "a").exists()
    api.run(**settings_of(animals, synthetic="server", server=str(tmp_path / "public")), out=tmp_path / "b")
    assert (tmp_path / "b" / "synthetic.png").exists()


def test_tokens_made_from_silos_images_are_declared(
    tmp_path: Path, animals: Path, draws: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ink", "paint"):
        save_file({f"<{name}>": torch.full((64,), 0.1)}, tmp_path / f"{name}.safetensors")
    common = [f"data.packed={animals}", "model=tiny:TinyNet", "rounds=1", "epochs=1", "engine.name=sequential"]
    for source, declared in ((f"{TINY};tokens={tmp_path}", [TOKEN]), (TINY, [])):
        out = f"run-{len(declared)}"
        code, said, err = call(capsys, "run", "method=fedavg", *common, f"data.synthetic={source}", "--out", out)
        assert (code, err) == (0, "")
        assert (f"fedavg sends, besides the model: {TOKEN}" in said) == bool(declared)
        assert json.loads((tmp_path / out / "run.json").read_text())["method_sends"] == declared
        assert (TOKEN in (tmp_path / out / "report.html").read_text()) == bool(declared)
