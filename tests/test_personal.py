"""What makes a model a silo's own: each rule against a loop written by hand, or against its limit."""

from __future__ import annotations

import copy
import dataclasses
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

import tiny
from fairsilo.analysis.metrics import results
from fairsilo.core.local import descend, fine_tune, follow, gradient, training_only
from fairsilo.core.measuring import measure
from fairsilo.core.messages import MODEL, Message, Request
from fairsilo.core.round import open_round
from fairsilo.core.silo import Memory, Silo
from fairsilo.core.vectors import AUXILIARY, FlatModel
from fairsilo.data.federation import Federation
from fairsilo.engine.host import Blueprint
from fairsilo.errors import FairsiloError
from fairsilo.methods.alignment import adversarial
from fairsilo.methods.heads import is_head, shifted
from fairsilo.methods.text import method
from fairsilo.reproduction.tables import FOLDER
from fairsilo.runs.saved import SavedRun

PLAIN = dataclasses.replace(tiny.TRAINING, momentum=0.0, weight_decay=0.0)


def silo_of(how: str, people: Federation, training: Any = PLAIN, **numbers: Any) -> Silo:
    """Silo `a`, with the first global model loaded."""
    plan = tiny.plan(how, training)
    layout, vector = plan.start()
    message = Message({MODEL: layout.to_wire(vector)}, numbers)
    silo = plan.silo(plan.flat(), people["a"], Request("train", 1, message), Memory())
    silo.load(message.tensors[MODEL])
    return silo


def by_hand(silo: Silo) -> nn.Module:
    """A plain copy of the network the silo holds, of which nobody knows."""
    module = copy.deepcopy(silo.model.module)
    module.train()
    return module


def same(module: nn.Module, views: dict[str, Tensor]) -> None:
    for name, tensor in module.state_dict().items():
        if name in views:
            torch.testing.assert_close(views[name], tensor, rtol=1e-5, atol=1e-6)


def personal_rows(how: str, people: Federation) -> list[dict[str, Any]]:
    return [row for row in tiny.run(how, people)[0].rows if row["model"] == "personal"]


# ------------------------------------------------------------------------------------------------------------ keeping
def test_local_training_is_each_silo_alone(people: Federation) -> None:
    alone = Federation(people.name, people.classes, (people["a"],), people.unseen)
    one = [row["metric"] for row in personal_rows("fedavg", alone)]
    other = [row["metric"] for row in personal_rows("local", people) if row["silo"] == "a"]
    assert one == other
    history, loop = tiny.run("local", people)
    assert {row["model"] for row in history.rows} == {"personal"}
    assert loop.server.layout.size == 0
    numbers = 8 * 3 * 2 * 40  # at most: three silos, two splits, what is measured of 3 classes; no model
    assert all(e["bytes_up"] < numbers for record in history.rounds for e in record["exchanges"])


def test_fedmtl_as_released_is_local_training_with_a_mean_for_the_unseen(people: Federation) -> None:
    assert personal_rows("fedmtl", people) == personal_rows("local", people)
    history, _ = tiny.run("fedmtl", people)
    assert any(row["unseen"] for row in history.rows)


def test_fedmtl_regulariser_by_hand(people: Federation) -> None:
    others = torch.linspace(-1, 1, tiny.plan("fedavg").start()[0].parameters)
    silo = silo_of("fedmtl(regularizer=true)", people, **{"multi-task.silos": 3})
    silo.message.tensors["multi-task.others"] = others
    part = silo.method.parts[0]
    part.begin(silo)
    zero = torch.zeros(())
    found = part.loss(silo, zero, None, None)  # type: ignore[arg-type]
    own = silo.parameters.detach()
    size = len(own)  # 241 parameters: f = floor(log10(241) + 1) + 1 = 4
    assert 100 <= size < 1000
    expected = 1e-4 * (own.square().sum() + (2 / 3) ** 2 * (own + others).square().sum())
    torch.testing.assert_close(found.detach(), expected)
    found.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(silo.model.gradients, 1e-4 * (2 * own + 2 * (2 / 3) ** 2 * (own + others)))


def test_fedmtl_hands_each_silo_the_sum_of_the_others(people: Federation) -> None:
    _, loop = tiny.run("fedmtl(regularizer=true)", people)
    models = loop.server.memory["multi-task"]["models"]
    loop.server.facts = {}  # as at the start of a round
    message = open_round(loop.server, ["b"], {})["b"]
    torch.testing.assert_close(message.tensors["multi-task.others"], models["a"] + models["c"])
    own = loop.engine.memory["a"]["silo"]["own"][: len(models["a"])]
    torch.testing.assert_close(models["a"], own, rtol=1e-4, atol=1e-6)
    newcomer = open_round(loop.server, ["d"], {})["d"]
    torch.testing.assert_close(newcomer.tensors["multi-task.others"], models["a"] + models["b"] + models["c"])


def test_fedper_takes_the_body_and_keeps_the_head(people: Federation) -> None:
    _, loop = tiny.run("fedper", people)
    plan, server = loop.blueprint, loop.server
    silo = plan.silo(plan.flat(), people["a"], Request("train", 4, Message()), loop.engine.memory["a"])
    silo.load(server.vector)
    held = silo.model.layout.views(silo.model.read())
    mean = server.layout.views(server.vector)
    assert torch.equal(held["features.0.weight"], mean["features.0.weight"])
    assert not torch.equal(held["head.weight"], mean["head.weight"])
    heads = [loop.engine.memory[name]["silo"]["own"] for name in people.names]
    weights = torch.tensor([24.0, 18, 30]) / 72
    averaged = (weights[:, None] * torch.stack(heads)).sum(0)
    torch.testing.assert_close(
        torch.cat([mean["head.weight"].flatten(), mean["head.bias"]]), averaged, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("chosen", [is_head, lambda slot: not is_head(slot)])
def test_training_some_tensors_leaves_the_others(chosen: Any, people: Federation) -> None:
    silo = silo_of("fedavg", people, tiny.TRAINING)
    before = silo.model.layout.views(silo.model.read())
    training_only(silo, chosen, silo.batches())
    after = silo.model.layout.views(silo.model.read())
    for slot in silo.model.layout.slots:
        if slot.role == "parameter":
            assert torch.equal(before[slot.name], after[slot.name]) != chosen(slot)
    assert all(parameter.requires_grad for parameter in silo.model.module.parameters())


def test_fedrep_by_hand(people: Federation) -> None:
    """The head alone for the local epochs, then the body alone for one."""
    silo = silo_of("fedrep", people, dataclasses.replace(PLAIN, epochs=2))
    module = by_hand(silo)
    head = [p for name, p in module.named_parameters() if name.startswith("head")]
    body = [p for name, p in module.named_parameters() if not name.startswith("head")]
    for parameters, batches in ((head, silo.batches("head")), (body, silo.batches(epochs=1))):
        for batch in batches:
            module.zero_grad()
            F.cross_entropy(module(batch.inputs).prediction, batch.targets).backward()
            with torch.no_grad():
                for parameter in parameters:
                    parameter -= 0.1 * parameter.grad  # type: ignore[operator]
    silo.method.hooks("train")[0](silo)
    same(module, silo.model.layout.views(silo.model.read()))


def test_fedrep_by_batches_trains_the_head_on_every_eleventh(people: Federation) -> None:
    silo = silo_of("fedrep(turns=batches)", people, dataclasses.replace(PLAIN, batch_size=2))  # twelve batches
    heads = []
    plain = gradient

    def watched(silo: Silo, batch: Any, terms: bool = True, corrections: bool = True) -> Tensor:
        heads.append(silo.model.layout.views(silo.model.read())["head.weight"].clone())
        return plain(silo, batch, terms, corrections)

    from fairsilo.methods.heads import Alternating

    follow(silo, Alternating(silo), silo.batches(), watched)
    moved = [not torch.equal(one, other) for one, other in pairwise(heads)]
    assert moved == [False] * 10 + [True]


def test_fedbabu_never_trains_the_head_and_fine_tunes_from_the_new_model(people: Federation) -> None:
    history, loop = tiny.run("fedbabu(finetune_epochs=2)", people)
    first = loop.blueprint.start()[0].views(loop.blueprint.start()[1])
    last = loop.server.layout.views(loop.server.vector)
    assert torch.equal(first["head.weight"], last["head.weight"])
    assert not torch.equal(first["features.0.weight"], last["features.0.weight"])
    kinds = [[e["kind"] for e in record["exchanges"]] for record in history.rounds]
    assert kinds == [["train", "personalise", "evaluate"]] * 3
    without, _ = tiny.run("fedbabu(finetune_epochs=0)", people)
    assert ["personalise"] not in [[e["kind"] for e in record["exchanges"]] for record in without.rounds]
    assert results(without.rows, [3], "personal", "test").keys() == {"a", "b", "c"}


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_fine_tuning_by_hand_from_the_new_global_model(schedule: str, people: Federation) -> None:
    training = dataclasses.replace(PLAIN, lr_schedule=schedule)  # of the rounds: tuning has the whole rate
    history, loop = tiny.run("fedavg | fine-tune(finetune_epochs=2, finetune_steps=4)", people, training)
    plan = loop.blueprint
    silo = plan.silo(plan.flat(), people["a"], Request("personalise", 3, Message()), Memory())
    silo.load(loop.server.vector)
    module = by_hand(silo)
    for batch in islice(silo.batches("fine-tune", 2), 4):
        module.zero_grad()
        F.cross_entropy(module(batch.inputs).prediction, batch.targets).backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[operator]
    fine_tune(silo, lambda _: True, 2, 4)
    same(module, silo.model.layout.views(silo.model.read()))
    found = measure(silo, "test")
    row = next(
        r for r in history.rows if (r["round"], r["silo"], r["model"], r["split"]) == (3, "a", "personal", "test")
    )
    assert (row["loss"], row["metric"]) == (found.loss, found.metric)


def test_all_silos_are_personalised_whoever_took_part(people: Federation) -> None:
    training = dataclasses.replace(tiny.TRAINING, participation="1")
    history, _ = tiny.run("fedavg | fine-tune", people, training)
    for number in (1, 2, 3):
        assert {row["silo"] for row in history.rows if row["round"] == number and row["model"] == "personal"} == {
            "a",
            "b",
            "c",
        }


# -------------------------------------------------------------------------------------------------------- second models
def test_pfedme_goes_back_to_its_limit_without_inner_pull(people: Federation) -> None:
    """One inner step, lam * eta = 1, mu 0: w takes theta's place after each batch, so the pull stays 0: plain SGD."""
    silo = silo_of("pfedme(lam=10, inner_steps=1, mu=0)", people)
    module = by_hand(silo)
    for batch in silo.batches():
        module.zero_grad()
        F.cross_entropy(module(batch.inputs).prediction, batch.targets).backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[operator]
    silo.method.hooks("train")[0](silo)
    same(module, silo.model.layout.views(silo.model.read()))


def test_ditto_with_aggregate_personal_averages_the_personal_models(people: Federation) -> None:
    one_round = dataclasses.replace(tiny.TRAINING, rounds=1)
    _, loop = tiny.run("ditto(aggregate_personal=true)", people, one_round)
    own = torch.stack([loop.engine.memory[name]["personal-model"]["model"] for name in people.names])
    floats = loop.server.layout.floats
    mean = (torch.tensor([24.0, 18, 30])[:, None] / 72 * own).sum(0)
    torch.testing.assert_close(loop.server.vector[:floats], mean[:floats], rtol=1e-5, atol=1e-6)


def test_a_trajectory_is_the_running_mean_of_local_models(people: Federation) -> None:
    kept = []
    for number in (1, 2):
        training = dataclasses.replace(PLAIN, rounds=number)
        _, loop = tiny.run("iop-fl(alpha=0.25)", people, training)
        kept.append(loop.engine.memory["a"]["trajectory"]["model"])
        before = loop.server.vector if number == 1 else None
        if before is not None:
            start = before
    plan = tiny.plan("iop-fl(alpha=0.25)", dataclasses.replace(PLAIN, rounds=2))
    silo = plan.silo(plan.flat(), people["a"], Request("train", 2, Message()), Memory())
    silo.load(start)
    descend(silo)
    floats = silo.model.layout.floats
    expected = 0.25 * kept[0] + 0.75 * silo.model.read()
    torch.testing.assert_close(kept[1][:floats], expected[:floats], rtol=1e-5, atol=1e-6)


def test_fedrod_gradients_are_those_of_its_two_losses(people: Federation) -> None:
    for stop in (True, False):
        silo = silo_of(f"fedrod(stop_gradient={stop})", people)
        module = by_hand(silo)
        batch = next(iter(silo.batches()))
        silo.method.parts[0].begin(silo)
        gradient(silo, batch)
        output = module(batch.inputs)
        own = module.get_submodule(f"{AUXILIARY}.two-heads.head")
        counts = torch.bincount(people["a"].train.targets, minlength=3)
        shared, features = output.prediction, output.features
        loss = F.cross_entropy(shared + counts.log(), batch.targets)
        if stop:
            shared, features = shared.detach(), features.detach()
        (loss + F.cross_entropy(shared + own(features), batch.targets)).backward()
        layout = silo.model.layout
        for name, parameter in module.named_parameters():
            slot = next(slot for slot in layout.slots if slot.name == name)
            found = silo.model.gradients[slot.place].view(slot.shape)
            torch.testing.assert_close(found, parameter.grad, rtol=1e-4, atol=1e-6)


def test_fedrod_predicts_with_both_heads_at_home_and_one_outside(people: Federation) -> None:
    _, loop = tiny.run("fedrod", people)
    assert not any(AUXILIARY in slot.name for slot in loop.server.layout.slots)
    plan = loop.blueprint
    silo = plan.silo(plan.flat(), people["a"], Request("train", 4, Message()), loop.engine.memory["a"])
    silo.load(loop.server.vector)
    vector = silo.model.read()
    own = silo.method.hooks("personal")[0](silo, vector)
    batch = next(iter(silo.evaluation_batches(people["a"].test)))
    plain, personal = silo.reference(batch.inputs, vector), silo.reference(batch.inputs, own)
    second = silo.model.module.get_submodule(f"{AUXILIARY}.two-heads.head")
    assert plain.features is not None
    torch.testing.assert_close(personal.prediction, plain.prediction + second(plain.features).detach())
    assert not torch.equal(personal.prediction, plain.prediction)


def test_balanced_softmax_of_equal_classes_is_cross_entropy() -> None:
    logits, targets = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    balanced = F.cross_entropy(shifted(logits, torch.tensor([7, 7, 7])), targets)
    torch.testing.assert_close(balanced, F.cross_entropy(logits, targets))


# ---------------------------------------------------------------------------------------------------------- adversary
def test_the_adversary_descends_and_the_features_ascend() -> None:
    torch.manual_seed(0)
    adversary = nn.Linear(4, 1)
    local, fixed = torch.randn(6, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    loss = adversarial(local, fixed, adversary)
    loss.backward()
    reversed_, weight = local.grad, adversary.weight.grad
    assert fixed.grad is None
    local.grad, adversary.weight.grad = None, None
    logits = torch.cat([adversary(local), adversary(fixed.detach())]).flatten()
    truth = torch.tensor([1.0] * 6 + [0.0] * 6)
    plain = F.binary_cross_entropy_with_logits(logits, truth)
    plain.backward()
    torch.testing.assert_close(loss, plain)
    assert reversed_ is not None
    torch.testing.assert_close(reversed_, -local.grad)
    torch.testing.assert_close(weight, adversary.weight.grad)


def test_the_adversary_learns_stays_private_and_starts_alike(people: Federation) -> None:
    plan = tiny.plan("only-da(align=adversarial)")
    name = f"{AUXILIARY}.feature-alignment.adversary.0.weight"
    first, again = (plan.start()[0].views(plan.start()[1])[name] for _ in range(2))
    assert torch.equal(first, again)
    _, loop = tiny.run("only-da(align=adversarial)", people)
    assert loop.blueprint.start()[0].wire.size == tiny.plan("fedavg").start()[0].size
    kept = [loop.engine.memory[silo]["silo"]["own"] for silo in people.names]
    assert not torch.equal(kept[0], kept[1])


# ------------------------------------------------------------------------------------------------------- saved models
def test_best_is_by_validation_and_last_is_last(people: Federation, tmp_path: Path) -> None:
    training = dataclasses.replace(tiny.TRAINING, rounds=6, lr=0.5)  # bumpy
    history, loop = tiny.run("fedavg", people, training, folder=tmp_path)
    run_folder = SavedRun(tmp_path)
    for name in people.names:
        rows = [
            r for r in history.rows if r["silo"] == name and r["model"] == "personal" and r["split"] == "validation"
        ]
        best = max(rows, key=lambda r: (r["metric"], -r["loss"], -r["round"]))
        for which, row in (("best", best), ("last", rows[-1])):
            silo = silo_of("fedavg", people)
            silo.data = people[name]
            silo.model.load(silo.model.layout.pack(run_folder.read_model(("personal", which, name))))
            assert measure(silo, "validation").loss == row["loss"]
    assert not any(store.models for store in loop.engine.stores.values())  # type: ignore[attr-defined]


def test_a_silo_that_sits_out_keeps_its_last_model(people: Federation, tmp_path: Path) -> None:
    training = dataclasses.replace(tiny.TRAINING, rounds=6, participation="1")
    history, _ = tiny.run("ditto", people, training, folder=tmp_path)
    took_part = {name for record in history.rounds for name in record["counted"]}
    assert len(took_part) > 1
    assert {path.stem for path in (tmp_path / "models" / "personal" / "last").iterdir()} == took_part


def test_without_validation_there_is_no_best(people: Federation, tmp_path: Path) -> None:
    bare = [dataclasses.replace(silo, validation=silo.test.subset([])) for silo in people.silos]
    tiny.run("fedavg", Federation("t", people.classes, tuple(bare)), folder=tmp_path)
    assert not (tmp_path / "models" / "personal" / "best").exists()
    assert (tmp_path / "models" / "personal" / "last" / "a.safetensors").exists()


def test_kept_local_models_add_up_to_the_mean(people: Federation, tmp_path: Path) -> None:
    plan = tiny.plan("fedavg")
    run_folder = SavedRun(tmp_path)
    from fairsilo.config import EvaluateSettings
    from fairsilo.engine.loop import Loop
    from fairsilo.engine.sequential import Sequential

    loop = Loop(
        plan,
        people.roster,
        Sequential(plan, people, folder=run_folder.folder),
        evaluate=EvaluateSettings(keep_local=True),
        records=run_folder,
    )
    loop.run()
    assert run_folder.local_rounds() == [1, 2, 3]
    sent, changes = run_folder.read_local(2)
    moved = sent + sum(weight * changes[name] for name, weight in zip("abc", (24 / 72, 18 / 72, 30 / 72), strict=True))
    floats = plan.start()[0].floats
    torch.testing.assert_close(moved[:floats], run_folder.read_local(3)[0][:floats], rtol=1e-5, atol=1e-6)


# -------------------------------------------------------------------------------------------------------- compositions
@pytest.mark.slow
def test_communication_of_faa_schedules(people: Federation) -> None:
    """FFT-GP's Table 15: what FAA in every n-th round costs on top of GA."""
    training = dataclasses.replace(tiny.TRAINING, rounds=16, batch_size=64)
    extra = []
    for how in ("ga(warmup=0)", *(f"faa(warmup=0, every={n})" for n in (8, 2, 1))):
        history, _ = tiny.run(how, people, training)
        traffic = {"train": 0, "probe": 0}
        for record in history.rounds:
            for exchange in record["exchanges"]:
                if exchange["kind"] in traffic:
                    traffic[exchange["kind"]] += exchange["bytes_down"] + exchange["bytes_up"]
        extra.append(traffic["probe"] / traffic["train"])
    # besides models, little is sent: what was measured, which counts beside so small a model
    assert extra == [pytest.approx(share, rel=0.25) for share in (0, 0.125, 0.5, 1)]


def test_models_a_to_g_are_one_line_each() -> None:
    listed = yaml.safe_load((FOLDER / "grace" / "table4-glyphs.yaml").read_text())["methods"]
    parts = [[part.name for part in method(text).parts] for text in listed]
    client, server = ["meta-learning", "feature-alignment"], ["gradient-agreement"]
    assert parts == [[], ["model-contrast"], ["model-contrast", *server], server, *[client] * 3, *[server + client] * 3]


@pytest.mark.parametrize(
    ("how", "training", "sentence"),
    [
        ("local | faa", {}, "no tensor is shared, so 'fairness-aware' would have no effect"),
        ("fedrep", {"keep_optimizer_state": True}, "starts its optimisers anew each round"),
        ("fedbabu", {"keep_optimizer_state": True}, "starts its optimisers anew each round"),
        ("pfedme", {"lr_schedule": "cosine", "lr": 0.02}, "a cosine leaves them no learning rate; give inner_lr"),
        ("pfedme", {"lr": 0.2}, "from 2 on its steps diverge"),
        ("ditto | pfedme", {}, "both own the local loop"),
        ("tent | dsbn", {}, "both adapt the model at test time"),
        ("ditto | fine-tune", {}, "both make the silo's own model"),
        ("fedrod | iop-fl", {}, "both make the silo's own model"),
        ("local | tent", {}, "no tensor is shared, so 'entropy-steps' would have no effect"),
        ("scaffold | fedrep", {}, "'control-variates' counts local steps that move every tensor alike"),
        ("fednova | pfedme", {"lr": 0.02}, "'normalized-averaging' counts local steps"),
        ("pfedme", {"optimizer": "adam", "lr": 0.02}, "set train.optimizer=sgd"),
        ("fedprox | ditto(aggregate_personal=true)", {}, "so 'proximal' would have no effect"),
        ("ditto(aggregate_personal=true)", {"keep_optimizer_state": True}, "starts its optimisers anew"),
    ],
)
def test_refused(how: str, training: dict[str, Any], sentence: str, people: Federation) -> None:
    with pytest.raises(FairsiloError, match=sentence):
        tiny.plan(how, dataclasses.replace(tiny.TRAINING, **training)).check(people.roster, False)


class Headless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(108, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.last(inputs.flatten(1))
        return out


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("fedper", "the network has no head of its own"),
        ("fedbabu", "the network has no head of its own"),
        ("fedrep", "the network has no head of its own"),
        ("fine-tune(finetune_what=head)", "the network has no head of its own"),
        ("fedrod", "needs a network whose attribute `head`"),
        ("tent", "the network has no BatchNorm with running statistics"),
        ("dsbn", "the network has no BatchNorm with running statistics"),
        ("iop-fl", "the network has no BatchNorm with running statistics"),
    ],
)
def test_networks_that_a_method_cannot_use(how: str, sentence: str, people: Federation) -> None:
    plan: Blueprint = tiny.plan(how, model=lambda *_: Headless())
    with pytest.raises(FairsiloError, match=sentence):
        plan.check(people.roster, False)


def test_norms_without_scale_and_shift_leave_tent_nothing_to_train(people: Federation) -> None:
    def unscaled(classes: int, channels: int) -> nn.Module:
        network = tiny.TinyNet(classes, channels)
        network.features[1] = nn.BatchNorm2d(network.features[1].num_features, affine=False)
        return network

    tiny.plan("dsbn", model=unscaled).check(people.roster, False)
    with pytest.raises(FairsiloError, match="trains scale and shift of BatchNorm, and the network has none to train"):
        tiny.plan("tent", model=unscaled).check(people.roster, False)


class Occupied(tiny.TinyNet):
    def __init__(self) -> None:
        super().__init__(3, 3)
        self.auxiliary = nn.Linear(2, 2)


def test_networks_in_the_way_of_auxiliary_modules_are_refused(people: Federation) -> None:
    for make, sentence in (
        (Occupied, "the name of what methods add; rename it"),
        (lambda: nn.Sequential(), "needs a network whose attribute `head`"),
    ):
        with pytest.raises(FairsiloError, match=sentence):
            tiny.plan("fedrod", model=lambda *_, make=make: make()).check(people.roster, False)


def test_what_stands_beside_the_network_trains_in_fedreps_body_turn(people: Federation) -> None:
    _, loop = tiny.run("fedrod | fedrep", people)
    first = loop.blueprint.start()[0].views(loop.blueprint.start()[1])
    kept = loop.engine.memory["a"]["silo"]["own"]
    own = [slot for slot in loop.blueprint.start()[0].own if slot.name == f"{AUXILIARY}.two-heads.head.weight"]
    position = sum(slot.length for slot in loop.blueprint.start()[0].own if slot.start < own[0].start)
    assert not torch.equal(kept[position : position + own[0].length], first[own[0].name].flatten())


def test_momenta_survive_in_meta_learning_too(people: Federation) -> None:
    kept = dataclasses.replace(tiny.TRAINING, keep_optimizer_state=True)
    one, other = (tiny.run("per-fedavg", people, training)[0].vector for training in (tiny.TRAINING, kept))
    assert not torch.equal(one, other)


def test_a_flat_model_gives_leaves_over_its_own_storage(people: Federation) -> None:
    model: FlatModel = tiny.plan("fedavg").flat()
    leaves = model.leaves(is_head)
    with torch.no_grad():
        leaves[0].zero_()
    assert not model.layout.views(model.read())["head.weight"].any()
    model.gradients.fill_(1.0)
    assert leaves[0].grad is not None
    assert leaves[0].grad.eq(1).all()
