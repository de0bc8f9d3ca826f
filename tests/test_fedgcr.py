"""FedGCR: customised prompts around a frozen ViT, clusters of silos, weights by the losses of silos and clusters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tiny
from fairsilo.config import EngineSettings
from fairsilo.core.messages import Message, Request
from fairsilo.core.method import Method
from fairsilo.core.output import Output
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.server import Updates
from fairsilo.core.silo import Memory, Silo
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Callback, Event, silent
from fairsilo.engine.host import Blueprint
from fairsilo.engine.loop import History, Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError
from fairsilo.methods.contrasts import feature_contrast, group_contrast
from fairsilo.methods.loss_weights import cluster_losses, group_weights, influence, quantised
from fairsilo.methods.parts.clustering import Clustering
from fairsilo.methods.parts.group_prompts import GroupPrompts
from fairsilo.methods.parts.group_weights import GroupWeights
from fairsilo.methods.parts.visual_prompts import VisualPrompts
from fairsilo.methods.representations import Known, centres_of, clustering_accuracy, mixture, renumbered, representation
from fairsilo.methods.text import method
from fairsilo.models.backbones import VitNetwork
from fairsilo.models.vit_networks import GroupedVit
from fairsilo.runs.saved import SavedRun
from tiny_backbones import write_vit

FEDGCR = Method((GroupPrompts(), Clustering(clusters=2), GroupWeights()), "fedgcr")
FEDGC = FEDGCR.without(GroupWeights)
FEDGR = Method((VisualPrompts(), Clustering(clusters=2), GroupWeights()), "fedgr")
TRAINING = dataclasses.replace(tiny.TRAINING, lr=0.01)
TYPES = {"a": "dark", "b": "dark", "c": "bright", "d": "bright", "e": "bright"}


@pytest.fixture(scope="module", autouse=True)
def _plain_kernels() -> Iterator[None]:
    """On some processors oneDNN takes 0.7 ms to set up each of a tiny network's layers, 17 times what it computes."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    yield
    torch.backends.mkldnn.enabled = before


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"vit:{write_vit(tmp_path_factory.mktemp('vit'))}"


def grown(split: Split) -> Split:
    """The same images at the size that the tiny ViT takes."""
    return Split(F.interpolate(split.inputs.float(), size=8).to(torch.uint8), split.targets)


def grow(silo: SiloData) -> SiloData:
    parts = {name: grown(silo.split(name)) for name in ("train", "validation", "test")}
    return dataclasses.replace(silo, **parts)


@pytest.fixture(scope="module")
def people() -> Federation:
    shifts = {"dark": -60.0, "bright": 60.0}
    silos = [tiny.silo(name, shifts[TYPES[name]], 12 + 3 * i, 10 * i) for i, name in enumerate(TYPES)]
    return Federation("types", tuple("012"), tuple(map(grow, silos)), (grow(tiny.silo("u", 0.0, 9, 99)),))


def plan(how: Method, vit: str, **training: Any) -> Blueprint:
    return tiny.plan(how, dataclasses.replace(TRAINING, **training), model=vit)


def run(
    how: Method,
    vit: str,
    people: Federation,
    folder: Path | None = None,
    listener: Callback = silent,
    **training: Any,
) -> tuple[History, Loop]:
    blueprint = plan(how, vit, **training)
    run_folder = SavedRun(folder) if folder else None
    if run_folder:
        run_folder.create()
    engine = Sequential(blueprint, people, strict=True, folder=folder)
    loop = Loop(blueprint, people.roster, engine, settings=EngineSettings(), records=run_folder, listener=listener)
    return loop.run(), loop


def silo_of(how: Method, vit: str, data: SiloData, message: Message | None = None, round_: int = 1) -> Silo:
    blueprint = plan(how, vit)
    silo = blueprint.silo(blueprint.flat(), data, Request("train", round_, message or Message()), Memory())
    silo.load(blueprint.start()[1])
    return silo


def network(vit: str) -> GroupedVit:
    module = plan(FEDGCR, vit).flat().module
    assert isinstance(module, GroupedVit)
    with torch.no_grad():
        module.gc_net[2].weight *= 30  # so that an image's own prompt matters
    return module.eval()


# ---------------------------------------------------------------------------------------------------------- the network
def test_the_prompt_of_an_image_does_not_depend_on_the_others_of_its_batch(vit: str, people: Federation) -> None:
    """The released code gives sample i the prompts of other samples."""
    module = network(vit)
    images = people["a"].train.inputs[:5].float() / 127.5 - 1
    images = torch.cat([images, people["e"].train.inputs[:3].float() / 127.5 - 1])
    together = module(images)
    for index in range(len(images)):
        alone = module(images[index : index + 1])
        torch.testing.assert_close(together.prediction[index], alone.prediction[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together.extra["h"][index], alone.extra["h"][0], rtol=1e-4, atol=1e-5)
    turned = module(images.flip(0))
    torch.testing.assert_close(turned.features.flip(0), together.features, rtol=1e-4, atol=1e-5)
    prompts = module.prompts + together.extra["h"][:, None]
    torch.testing.assert_close(module.vit.token(images, prompts), together.features)
    mixed = module.vit.token(images, module.prompts + together.extra["h"].flip(0)[:, None])
    assert not torch.allclose(mixed, together.features, atol=1e-3)


def test_the_first_stage_gets_no_gradient_and_the_rest_does(vit: str, people: Federation) -> None:
    module = network(vit)
    images = (people["a"].train.inputs[:4].float() / 127.5 - 1).requires_grad_(True)
    module(images).extra["h"].square().sum().backward()
    assert images.grad is None
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in module.gc_net.parameters())
    module.zero_grad()
    F.cross_entropy(module(images).prediction, people["a"].train.targets[:4]).backward()
    for parameter in (module.prompts, module.gc_net[0].weight, module.gc_net[2].weight, module.head.weight):
        assert bool(parameter.grad.abs().sum() > 0)
    assert all(parameter.grad is None for parameter in module.vit.parameters())


def test_only_prompts_gc_net_and_head_are_trained_and_sent(vit: str) -> None:
    layout, start = plan(FEDGCR, vit).start()
    gc_net = {f"gc_net.{index}.{leaf}" for index in (0, 2) for leaf in ("weight", "bias")}
    assert {slot.name for slot in layout.slots} == {"prompts", "head.weight", "head.bias", *gc_net}
    assert layout.wire is layout
    assert {slot.group for slot in layout.slots if slot.name.startswith("head")} == {"head"}
    views = layout.views(start)
    assert views["prompts"].shape == (4, 16)
    assert views["gc_net.0.weight"].shape == (64, 16)
    assert 0.01 < float(views["prompts"].std()) < 0.03


def test_the_frozen_vit_stays_in_evaluation_mode(vit: str) -> None:
    module = network(vit).train()
    assert module.training
    assert module.dropout.training
    assert not any(one.training for one in module.vit.pretrained.modules())


def test_it_is_built_around_a_vit_and_needs_clusters(vit: str, people: Federation) -> None:
    with pytest.raises(FairsiloError, match="vision transformer"):
        tiny.plan(FEDGCR).start()
    for how in (Method((GroupPrompts(),), "one"), Method((VisualPrompts(), GroupWeights()), "two")):
        with pytest.raises(FairsiloError, match="cannot do without 'clustering'"):
            plan(how, vit).check(people.roster, server_data=False)
    assert isinstance(plan(FEDGR, vit).network(vit), VitNetwork)


# ----------------------------------------------------------------------------------------------------------- the losses
def test_contrasts_by_hand() -> None:
    """Unit vectors along the axes: cosines are 0 or 1, and so are products."""
    known = Known(torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]), torch.tensor(1), torch.tensor([0.0, 0.0, 3.0]))
    prompts = torch.tensor([[0.0, 5.0, 0.0], [5.0, 0.0, 0.0]])
    far, near = math.log(2 + math.exp(2)), math.log(2 + math.exp(2)) - 2
    torch.testing.assert_close(group_contrast(prompts, known, 0.5, "cosine"), torch.tensor([near, far]))
    exact = math.log(math.exp(10) + 1 + 1) - 10  # 5 * 2 with the own centre, 0 with the others
    torch.testing.assert_close(group_contrast(prompts[:1], known, 1.0, "dot"), torch.tensor([exact]))
    z, received, previous = (torch.tensor([row]) for row in ([1.0, 1.0], [2.0, 2.0], [1.0, -1.0]))
    expected = -math.log(math.exp(2) / (math.exp(2) + 1))
    torch.testing.assert_close(feature_contrast(z, received, previous, 0.5, "cosine"), torch.tensor([expected]))
    expected = -math.log(math.exp(4) / (math.exp(4) + 1))
    torch.testing.assert_close(feature_contrast(z, received, previous, 1.0, "dot"), torch.tensor([expected]))


def test_weights_of_the_terms() -> None:
    known = Known(torch.eye(3)[:2], torch.tensor(1), torch.eye(3)[2])
    output = Output(torch.zeros(1, 3), torch.eye(2)[:1], {"h": torch.eye(3)[1:2]})
    groups = math.log(2 + math.exp(2)) - 2
    features = {0.5: math.log(1 + math.exp(-2)), 1.0: math.log(1 + math.exp(-1))}
    for part, progress, expected in (
        (GroupPrompts(), 0.3, 0.5 * groups + 0.1 * features[0.5]),
        (GroupPrompts(gc_weight=2.0, ra_weight=0.0), 0.3, 2 * groups),
        (GroupPrompts(variant="released"), 0.0, 0.05 * groups + 0.05 * features[1.0]),
        (GroupPrompts(variant="released"), 1.0, 0.1 * groups + 0.05 * features[1.0]),
    ):
        got = part.terms(output, known, torch.eye(2)[:1], torch.eye(2)[1:], progress)
        assert float(got) == pytest.approx(expected, rel=1e-5)


def test_the_released_variant_trains_with_and_without_h_in_round_1(vit: str, people: Federation) -> None:
    how = method("fedgcr(variant=released, clusters=2, head_dropout=0)")
    for round_, factor in ((1, 1.0), (2, 0.0)):
        silo = silo_of(how, vit, people["a"], round_=round_)
        batch = next(silo.batches())
        module = silo.model.module
        assert isinstance(module, GroupedVit)
        loss = how.parts[0].loss(silo, torch.tensor(3.0), silo.forward(batch.inputs), batch)
        with torch.no_grad():
            module.gc_net[2].weight.zero_()  # now h is 0, and the network's own answer is the one without it
            module.gc_net[2].bias.zero_()
            alone = silo.task.loss(silo.forward(batch.inputs).prediction, batch.targets)
        torch.testing.assert_close(loss, 3.0 + factor * alone)
        assert loss.requires_grad == bool(factor)


def test_the_loss_uses_the_received_and_the_previous_model(vit: str, people: Federation) -> None:
    silo = silo_of(FEDGCR, vit, people["a"], round_=2)
    part = FEDGCR.parts[0]
    batch = next(silo.batches())
    output = silo.forward(batch.inputs)
    zero = torch.zeros(())
    assert part.loss(silo, zero, output, batch) == 0
    silo.scratch["clusters"] = known = Known(torch.randn(2, 16), torch.tensor(0), torch.randn(16))
    assert part.loss(silo, zero, output, batch) == 0  # no earlier model: the silo's first round
    before = silo.start + 0.5 * torch.randn_like(silo.start)
    silo.memory.of(part)["previous"] = before
    part.begin(silo)
    received, previous = (silo.reference(batch.inputs, vector).features for vector in (silo.start, before))
    expected = part.terms(output, known, received, previous, 2 / 3)
    torch.testing.assert_close(part.loss(silo, zero, output, batch), expected)
    assert not torch.allclose(received, previous)


@pytest.mark.parametrize("term", ["gc_weight", "ra_weight"])
def test_the_first_round_has_no_contrast_and_the_second_has(term: str, vit: str, people: Federation) -> None:
    off = {"gc_weight": 0.0, "ra_weight": 0.0}
    parts = FEDGC.parts[1:]
    one, other = (Method((GroupPrompts(**settings), *parts), "m") for settings in (off, off | {term: 5.0}))
    runs = [run(how, vit, people, rounds=2)[0] for how in (one, other)]
    first, second = ([[row for row in found.rows if row["round"] == number] for found in runs] for number in (1, 2))
    assert first[0] == first[1]
    assert second[0] != second[1]
    assert not torch.allclose(runs[0].vector, runs[1].vector, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- clusters
def rows_of(types: list[int], seed: int = 0, noise: float = 0.1) -> np.ndarray:
    stream = np.random.default_rng(seed)
    centres = stream.normal(size=(max(types) + 1, 32))
    return 5 + 0.01 * (centres[types] + noise * stream.normal(size=(len(types), 32)))


GEOMETRIC = [kind for kind, count in enumerate((10, 6, 3, 2, 1)) for _ in range(count)]  # FedGCR's, DIF = 10


def names_of(values: list[int]) -> dict[str, int]:
    return {f"s{index}": value for index, value in enumerate(values)}


@pytest.mark.parametrize("seed", range(3))
def test_separable_types_are_recovered(seed: int) -> None:
    types = {name: str(kind) for name, kind in names_of(GEOMETRIC).items()}
    for clusters in (5, 6, 7):
        labels = mixture(rows_of(GEOMETRIC, seed), clusters, "diag", 1e-3, seed)
        assert clustering_accuracy(names_of(labels), types) == 1.0
        assert len(set(labels)) == clusters
    assert clustering_accuracy(names_of(mixture(rows_of(GEOMETRIC, seed), 3, "diag", 1e-3, seed)), types) < 1.0


def test_the_order_of_silos_does_not_change_the_partition() -> None:
    for seed in range(3):
        rows = rows_of([0, 0, 1, 2, 2, 2, 3, 3, 1, 0], seed, noise=1.0)  # so noisy that another start ends elsewhere
        order = np.random.default_rng(seed).permutation(len(rows))
        labels, turned = mixture(rows, 3, "diag", 1e-3, 7), mixture(rows[order], 3, "diag", 1e-3, 7)
        assert [labels[index] for index in order] == turned


def test_fewer_points_than_clusters() -> None:
    rows = rows_of([0, 0, 1, 1, 1], noise=0.0)
    assert len(set(mixture(rows, 4, "diag", 1e-3, 0))) == 2
    assert mixture(rows[:2], 4, "diag", 1e-3, 0) == [0, 0]
    assert mixture(rows[:1], 4, "diag", 1e-3, 0) == [0]
    rounding = rows[:2] * (1 + 1e-8 * np.random.default_rng(0).normal(size=rows[:2].shape))
    assert mixture(rounding, 2, "diag", 1e-3, 0) == [0, 0]


def test_clusters_keep_their_numbers_and_centres() -> None:
    before = {"a": 0, "b": 0, "c": 1, "d": 2}
    assert renumbered({"a": 1, "b": 1, "c": 0, "d": 0, "e": 2}, before) == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2}
    assert renumbered({"a": 3, "b": 1}, {}) == {"a": 1, "b": 0}
    rows = torch.tensor([[1.0, 3.0], [3.0, 5.0], [7.0, 7.0]])
    old = torch.tensor([[9.0, 9.0], [8.0, 8.0], [0.0, 0.0]])
    expected = torch.tensor([[2.0, 4.0], [8.0, 8.0], [7.0, 7.0]])
    assert torch.equal(centres_of(rows, torch.tensor([0, 0, 2]), old), expected)
    assert torch.equal(centres_of(rows, torch.tensor([0, 0, 1])), expected[[0, 2]])


# two stretched types: along the lines y = x and y = x + 4
STRETCHED = torch.tensor([[0.5 * step, 0.5 * step + side] for side in (0.0, 4.0) for step in range(8)])


@pytest.mark.parametrize("covariance", ["diag", "spherical", "tied", "full"])
def test_the_shape_of_a_cluster_is_the_one_that_was_asked_for(covariance: str) -> None:
    """Only shapes that may be tilted find the two lines; the others cut across them."""
    names = tuple("abcdefghijklmnop")
    part = Clustering(clusters=2, covariance=covariance)
    messages = [Message({"clustering.representation": row}) for row in STRETCHED]
    server: Any = SimpleNamespace(
        memory=Memory(), facts={}, domains=2, note=print, stream=lambda *_: torch.Generator().manual_seed(0)
    )
    layout: Any = None
    part.collect(server, Updates(names, torch.zeros(16, 1), torch.ones(16), messages, layout))
    found = [server.facts["clusters"][name] for name in names]
    assert (found in ([0] * 8 + [1] * 8, [1] * 8 + [0] * 8)) == (covariance in ("tied", "full"))


def test_clustering_accuracy_by_hand() -> None:
    types = dict(zip("abcdef", "xxyyyz", strict=True))
    assert clustering_accuracy(dict.fromkeys("abcdef", 0), types) == 3 / 6
    assert clustering_accuracy(dict(zip("abcdef", (0, 0, 0, 1, 1, 1), strict=True)), types) == 4 / 6
    assert clustering_accuracy(dict(zip("abcdef", (5, 5, 1, 2, 2, 3), strict=True)), types) == 1.0


def test_the_representation_counts_classes_equally(vit: str, people: Federation) -> None:
    data = people["a"]
    few = Split(data.train.inputs[[0, 1, 3, 4, 6]], torch.tensor([0, 1, 0, 1, 0]))  # class 2 is absent
    silo = silo_of(FEDGCR, vit, dataclasses.replace(data, train=few))
    h = silo.reference(silo.batch(few, torch.arange(5)).inputs, silo.start).extra["h"]
    expected = (h[[0, 2, 4]].mean(0) + h[[1, 3]].mean(0)) / 2
    torch.testing.assert_close(representation(silo), expected)
    assert not torch.allclose(expected, h.mean(0))
    silo.evaluation_batch = 2
    torch.testing.assert_close(representation(silo), expected)
    assert not silo.model.module.training


def test_a_limited_number_of_batches_is_drawn_from_all_samples(vit: str, people: Federation) -> None:
    data = people["e"]
    order = torch.argsort(data.train.targets)  # sorted by class: the first samples would be of one class only
    silo = silo_of(
        FEDGCR, vit, dataclasses.replace(data, train=Split(data.train.inputs[order], data.train.targets[order]))
    )
    few, all_ = representation(silo, 1), representation(silo)
    assert torch.equal(few, representation(silo, 1))
    assert not torch.allclose(few, all_)
    assert torch.allclose(representation(silo, 100), all_, atol=1e-6)
    silo.data = dataclasses.replace(data, train=Split(silo.data.train.inputs[:8], silo.data.train.targets[:8]))
    assert (few - all_).norm() < (representation(silo) - all_).norm()


def test_without_prompts_of_its_own_a_network_is_represented_by_features(vit: str, people: Federation) -> None:
    silo = silo_of(FEDGR, vit, people["a"])
    split = people["a"].train
    features = silo.reference(silo.batch(split, torch.arange(len(split))).inputs, silo.start).features
    means = torch.stack([features[split.targets == label].mean(0) for label in range(3)])
    torch.testing.assert_close(representation(silo), means.mean(0))


@pytest.mark.parametrize("how", [FEDGCR, FEDGR], ids=["fedgcr", "fedgr"])
def test_a_run_finds_the_types_and_sends_their_centres(how: Method, vit: str, people: Federation) -> None:
    history, loop = run(how, vit, people)
    memory = loop.server.memory["clustering"]
    assert clustering_accuracy(memory["clusters"], TYPES) == 1.0
    assert len(set(memory["clusters"].values())) == 2
    dark = torch.stack([memory["representations"][name] for name in ("a", "b")]).mean(0)
    torch.testing.assert_close(memory["centres"][memory["clusters"]["a"]], dark)
    assert history.rounds[0]["notes"] == ["clusters of 3, 2 silos"]
    for name in TYPES:
        sent = how.hooks("broadcast")[0](loop.server, name, Message())
        assert sent.numbers["clustering.own"] == memory["clusters"][name]
        assert sent.tensors["clustering.centres"].shape == (2, 16)
    assert how.hooks("broadcast")[0](loop.server, "newcomer", Message()) == Message()


def test_a_round_keeps_the_numbers_of_the_round_before(vit: str, people: Federation) -> None:
    _, loop = run(FEDGC, vit, people, rounds=1)
    server, part = loop.server, FEDGC.parts[1]
    memory = server.memory.of(part)
    before, rows = dict(memory["clusters"]), memory["representations"]
    messages = [Message({"clustering.representation": rows[name]}) for name in ("a", "d")]
    updates = Updates(("a", "d"), server.vector.expand(2, -1), torch.ones(2), messages, server.layout)
    for numbers in (before, {name: 1 - number for name, number in before.items()}):
        memory["clusters"] = numbers
        part.collect(server, updates)
        assert server.facts["clusters"] == memory["clusters"] == numbers
        for name in ("b", "c", "e"):  # who sat this round out
            members = [other for other in TYPES if numbers[other] == numbers[name]]
            torch.testing.assert_close(
                memory["centres"][numbers[name]], torch.stack([rows[m] for m in members]).mean(0)
            )


def test_a_silo_that_sits_out_is_clustered_by_its_last_representation(vit: str, people: Federation) -> None:
    history, loop = run(FEDGCR, vit, people, rounds=4, participation="2")
    memory = loop.server.memory["clustering"]
    seen = {name for record in history.rounds for name in record["counted"]}
    assert set(memory["clusters"]) == set(memory["representations"]) == seen
    assert len(seen) > 2
    assert clustering_accuracy(memory["clusters"], TYPES) == 1.0
    for record in history.rounds:
        assert math.isclose(sum(record["weights"].values()), 1, abs_tol=1e-9)
        assert set(record["weights"]) == set(record["counted"])


def test_silos_can_be_compared_by_the_model_they_received(vit: str, people: Federation) -> None:
    """At a high rate local models differ by how long they were trained, and so do representations under them."""
    often = torch.arange(len(people["c"].train)).repeat(4)
    far = dataclasses.replace(
        people["c"], train=Split(*(getattr(people["c"].train, one)[often] for one in ("inputs", "targets")))
    )
    silos = Federation("types", people.classes, (people["a"], people["b"], far, people["d"], people["e"]))
    found = {}
    for under in ("local", "received"):
        how = Method((GroupPrompts(), Clustering(clusters=2, under=under), GroupWeights()), "fedgcr")
        _, loop = run(how, vit, silos, rounds=1, lr=0.5)
        memory = loop.server.memory["clustering"]
        found[under] = clustering_accuracy(memory["clusters"], TYPES)
    assert found == {"local": 0.6, "received": 1.0}
    assert Clustering().under == "received"
    released, chosen = method("fedgcr(variant=released)"), method("fedgcr(variant=released, max_batches=5)")
    assert [(part.under, part.max_batches) for part in (released.parts[1], chosen.parts[1])] == [
        ("received", 3),
        ("received", 5),
    ]
    start = representation(silo_of(how, vit, people["d"]))
    torch.testing.assert_close(memory["representations"]["d"], start)


def test_by_default_as_many_types_are_looked_for_as_silos_have_domains(vit: str, people: Federation) -> None:
    typed = tuple(dataclasses.replace(silo, domain=TYPES[silo.name]) for silo in people.silos)
    how = Method((GroupPrompts(), Clustering(), GroupWeights()), "fedgcr")
    for silos, expected in ((typed, 2), (people.silos, 5)):  # otherwise every silo is a domain of its own
        _, loop = run(how, vit, dataclasses.replace(people, silos=silos), rounds=1)
        found = loop.server.memory["clustering"]["clusters"]
        assert len(set(found.values())) == expected
        assert clustering_accuracy(found, TYPES) == 1


def test_features_are_contrasted_with_the_received_and_the_previous_model(vit: str, people: Federation) -> None:
    """RA tells z of the received model from z of the silo's own last one; the two are different models here."""
    how = Method((GroupPrompts(gc_weight=0.0, ra_weight=2.0, temperature=0.5), *FEDGCR.parts[1:]), "fedgcr")
    silo = silo_of(how, vit, people["a"], round_=2)
    stream = torch.Generator().manual_seed(3)
    local, previous = (silo.start + 0.3 * torch.randn(len(silo.start), generator=stream) for _ in range(2))
    batch = silo.batch(people["a"].train, torch.arange(6))
    outputs = {
        key: silo.reference(batch.inputs, one) for key, one in (("l", local), ("r", silo.start), ("p", previous))
    }
    z, received, earlier = (F.normalize(output.features, dim=1) for output in outputs.values())
    expected = F.softplus(((z * earlier).sum(1) - (z * received).sum(1)) / 0.5).mean()
    assert not torch.allclose(received, earlier, atol=1e-2)
    part = how.parts[0]
    assert float(part.loss(silo, torch.tensor(1.0), outputs["l"], batch)) == 1  # nothing to compare with in round 1
    silo.memory.of(part)["previous"] = previous
    part.begin(silo)
    silo.scratch["clusters"] = Known(torch.eye(2, 16), torch.tensor(0), torch.ones(16))
    found = part.loss(silo, torch.tensor(1.0), outputs["l"], batch)
    torch.testing.assert_close(found, 1 + 2 * expected)
    silo.model.load(local)
    part.finish(silo, Message())
    assert torch.equal(silo.memory.of(part)["previous"], local)


def test_gc_net_and_head_are_as_large_as_asked(vit: str, people: Federation) -> None:
    plain = network(vit)
    width = plain.vit.width
    how = Method((GroupPrompts(gc_width=2, head="mlp"), Clustering(clusters=2), GroupWeights()), "fedgcr")
    layout = plan(how, vit).start()[0]
    shapes = {slot.name: slot.shape for slot in layout.slots}
    assert shapes["gc_net.0.weight"] == (2 * width, width)
    assert shapes["gc_net.2.weight"] == (width, 2 * width)
    assert shapes["head.0.weight"] == (width, width)
    assert shapes["head.2.weight"] == (3, width)
    assert {slot.group for slot in layout.slots if slot.name.startswith("head")} == {"head"}
    assert plain.gc_net[0].weight.shape == (4 * width, width)
    history, loop = run(how, vit, people, rounds=2)
    assert not torch.equal(loop.server.vector, loop.blueprint.start()[1])
    with torch.no_grad():
        module: Any = plan(how, vit).flat().module.eval()
        features = module(torch.zeros(1, 3, 8, 8)).features
        hidden = torch.relu(features @ module.head[0].weight.T + module.head[0].bias)
        expected = hidden @ module.head[2].weight.T + module.head[2].bias
        torch.testing.assert_close(module(torch.zeros(1, 3, 8, 8)).prediction, expected)
    assert all(record["counted"] for record in history.rounds)


def test_prompts_can_have_ten_times_the_rate(vit: str, people: Federation) -> None:
    """As the released code trains them; a first step of Adam is as long as its rate."""
    moved = {}
    for groups in (None, "prompts=10"):
        _, loop = run(FEDGCR, vit, people, rounds=1, optimizer="adam", lr=1e-4, lr_groups=groups, batch_size=64)
        layout, start = loop.blueprint.start()
        change = layout.views(loop.server.vector - start)
        moved[groups] = {name: float(change[name].abs().max()) for name in ("prompts", "head.weight")}
    assert moved["prompts=10"]["prompts"] == pytest.approx(10 * moved[None]["prompts"], rel=0.05)
    assert moved["prompts=10"]["head.weight"] == pytest.approx(moved[None]["head.weight"], rel=0.05)


# -------------------------------------------------------------------------------------------------------------- weights
def test_the_influence_of_clusters_grows_from_nothing() -> None:
    assert [influence(r, 0.5, 0.5) for r in (1, 2, 3)] == [0.0, 0.25, 0.375]
    assert influence(200, 0.5, 0.5) == pytest.approx(0.5)
    assert influence(1, 0.5, 0.9, released=True) == pytest.approx(0.05)
    assert influence(10, 0.5, 0.9, released=True) == pytest.approx(0.5 * (1 - 0.9**10))


SHARES = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
LOSSES = torch.tensor([1.0, 4.0, 2.0], dtype=torch.float64)
CLUSTERS = torch.tensor([0, 0, 1])


def test_weights_by_hand() -> None:
    powered = torch.tensor([0.2 * 1, 0.3 * 16, 0.5 * 4], dtype=torch.float64)
    torch.testing.assert_close(group_weights(SHARES, LOSSES, CLUSTERS, 0.0, 1.0), powered / powered.sum())
    grouped = torch.tensor([0.2 * 2.5, 0.3 * 2.5, 0.5 * 2], dtype=torch.float64)
    torch.testing.assert_close(group_weights(SHARES, LOSSES, CLUSTERS, 1.0, 0.0), grouped / grouped.sum())
    half = torch.tensor([0.2 * (1 * 2.8), 0.3 * (4 * 2.8), 0.5 * 4], dtype=torch.float64)  # (0.2 + 0.3 * 4) / 0.5
    torch.testing.assert_close(group_weights(SHARES, LOSSES, CLUSTERS, 0.5, 1.0, True), half / half.sum())
    assert cluster_losses(LOSSES, CLUSTERS, torch.ones(3)).tolist() == [2.5, 2.5, 2.0]


@pytest.mark.parametrize(
    ("losses", "clusters", "beta", "q"),
    [
        (LOSSES, CLUSTERS, 0.3, -1.0),  # losses do not count
        (torch.full_like(LOSSES, 0.7), CLUSTERS, 0.3, 2.0),  # equal losses
        (LOSSES, torch.zeros(3, dtype=torch.int64), 1.0, 5.0),  # one cluster, and only clusters count
        (torch.zeros(3, dtype=torch.float64), CLUSTERS, 0.5, 30.0),  # nothing left to learn
    ],
)
def test_limits_at_which_weights_are_the_shares(losses: Tensor, clusters: Tensor, beta: float, q: float) -> None:
    for weighted in (False, True):
        torch.testing.assert_close(group_weights(SHARES, losses, clusters, beta, q, weighted), SHARES)


def test_weights_sum_to_one_and_favour_high_losses_and_poor_clusters() -> None:
    weights = group_weights(SHARES, LOSSES, CLUSTERS, 0.5, 50.0)
    assert float(weights.sum()) == pytest.approx(1)
    assert bool(torch.isfinite(weights).all())
    alone = torch.tensor([0, 1, 2])
    # with a poor companion silo 0 counts more than by itself
    assert group_weights(SHARES, LOSSES, CLUSTERS, 0.5, 1.0)[0] > group_weights(SHARES, LOSSES, alone, 0.5, 1.0)[0]


def test_quantised_losses() -> None:
    losses = torch.tensor([2.510699, 0.0552909, 250.0, 0.0], dtype=torch.float64)
    found = quantised(losses)
    torch.testing.assert_close(found[:3], torch.tensor([100 / 39, 100 / 1808, 100.0], dtype=torch.float64))
    assert 0 < float(found[3]) <= 1e-9


@pytest.mark.parametrize("how", [FEDGCR, FEDGR], ids=["fedgcr", "fedgr"])
def test_a_round_weighs_silos_by_the_losses_of_the_model_they_received(
    how: Method, vit: str, people: Federation
) -> None:
    history, loop = run(how, vit, people, rounds=2)
    sizes = torch.tensor([len(people[name].train) for name in TYPES], dtype=torch.float64)
    clusters = torch.tensor([loop.server.memory["clustering"]["clusters"][name] for name in TYPES])
    for number, beta in ((1, 0.0), (2, 0.25)):
        before = plan(how, vit).start()[1] if number == 1 else run(how, vit, people, rounds=1)[0].vector
        losses = torch.tensor([loss_of(how, vit, people[name], before) for name in TYPES], dtype=torch.float64)
        expected = group_weights(sizes / sizes.sum(), losses, clusters, beta, 1.0)
        found = torch.tensor([history.rounds[number - 1]["weights"][name] for name in TYPES], dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
        assert not torch.allclose(found, sizes / sizes.sum(), atol=1e-4)


def loss_of(how: Method, vit: str, data: SiloData, vector: Tensor) -> float:
    silo = silo_of(how, vit, data)
    batch = silo.batch(data.train, torch.arange(len(data.train)))
    return float(F.cross_entropy(silo.reference(batch.inputs, vector).prediction.double(), batch.targets))


def test_fedgc_alone_clusters_and_weighs_by_samples(vit: str, people: Federation) -> None:
    history, loop = run(FEDGC, vit, people, rounds=2)
    total = sum(len(silo.train) for silo in people.silos)
    for record in history.rounds:
        assert record["weights"] == pytest.approx({silo.name: len(silo.train) / total for silo in people.silos})
    assert clustering_accuracy(loop.server.memory["clustering"]["clusters"], TYPES) == 1.0


def with_weights(**settings: Any) -> Method:
    return Method((*FEDGC.parts, GroupWeights(**settings)), "fedgcr")


def test_sources_of_the_loss(vit: str, people: Federation) -> None:
    sizes = {silo.name: len(silo.train) for silo in people.silos}
    first = run(with_weights(loss_source="released", variant="released"), vit, people, rounds=1)[0].rounds[0]
    assert first["weights"] == pytest.approx({name: size / sum(sizes.values()) for name, size in sizes.items()})
    shares = torch.tensor([size / sum(sizes.values()) for size in sizes.values()], dtype=torch.float64)
    of_epoch = with_weights(loss_source="epoch")

    def check(record: dict[str, Any], losses: list[float]) -> None:
        expected = group_weights(shares, torch.tensor(losses, dtype=torch.float64), torch.zeros(5), 0.0, 1.0)
        found = torch.tensor(list(record["weights"].values()), dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)

    # batches of one size: the epoch's loss is the mean over its steps
    many = run(of_epoch, vit, people, rounds=1, batch_size=3)[0].rounds[0]
    check(many, list(many["train_loss"].values()))
    # one batch an epoch, so that two epochs' mean tells the second's loss
    settings: dict[str, Any] = {"rounds": 1, "batch_size": 64, "momentum": 0.0}
    once, twice = (run(of_epoch, vit, people, epochs=epochs, **settings)[0].rounds[0] for epochs in (1, 2))
    check(twice, [2 * twice["train_loss"][name] - once["train_loss"][name] for name in sizes])


# ----------------------------------------------------------------------------------------------------------- whole runs
class Crash(BaseException):
    """Not an Exception: nothing may catch it."""


def crash_at(stage: str) -> Callable[[Event], None]:
    def crash(event: Event) -> None:
        if event.kind == stage and event.round == 2:
            raise Crash

    return crash


@pytest.mark.slow  # the laws do it for a sample
@pytest.mark.parametrize(
    ("how", "stages"),
    [(FEDGCR, ("opened", "reply", "closed", "saved")), (FEDGC, ("reply",)), (FEDGR, ("reply",))],
    ids=["fedgcr", "fedgc", "fedgr"],
)
def test_three_rounds_resume_identically(
    how: Method, stages: tuple[str, ...], vit: str, people: Federation, tmp_path: Path
) -> None:
    whole = tiny.numbers(run(how, vit, people, tmp_path / "whole")[0])
    for stage in stages:
        with pytest.raises(Crash):
            run(how, vit, people, tmp_path / stage, crash_at(stage))
        assert tiny.numbers(run(how, vit, people, tmp_path / stage)[0]) == whole, stage


@pytest.mark.slow
def test_it_learns(vit: str, people: Federation) -> None:
    history, _ = run(FEDGCR, vit, people, rounds=9, epochs=2, optimizer="adam", lr=0.01, momentum=0.0)
    scores = {
        number: np.mean([row["metric"] for row in history.rows if row["round"] == number and row["model"] == "global"])
        for number in (1, 9)
    }
    assert scores[9] > max(scores[1], 1 / 3) + 0.2
