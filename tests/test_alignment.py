"""Feature alignment: when it counts, and the ratio of its gradient to the task's that a round's record shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tiny
import tiny_backbones
from fairsilo.core.local import gradient
from fairsilo.core.messages import MODEL, Message, Request
from fairsilo.core.roster import Roster
from fairsilo.core.silo import Memory, Silo
from fairsilo.core.vectors import AUXILIARY, PRIVATE
from fairsilo.data.federation import Federation
from fairsilo.engine.features import keep_features
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError
from fairsilo.methods import alignment
from fairsilo.methods.alignment import RATIO, begin_ratio, coral, gradient_ratio, ratio_is_due
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.heads import features_width
from fairsilo.methods.text import method

SHOWN = "feature-alignment.ratio"


def silo_of(how: str, people: Federation) -> Silo:
    plan = tiny.plan(how)
    layout, vector = plan.start()
    message = Message({MODEL: layout.to_wire(vector)})
    silo = plan.silo(plan.flat(), people["a"], Request("train", 1, message), Memory())
    silo.load(message.tensors[MODEL])
    return silo


def test_grace_aligns_with_a_tenth_of_the_weight_that_fft_gp_has() -> None:
    weights = {
        name: next(part.align_weight for part in CATALOGUE[name].make().parts if hasattr(part, "align_weight"))
        for name in ("grace", "grace-client", "bgp", "fft-gp", "only-da")
    }
    assert weights == {"grace": 0.1, "grace-client": 0.1, "bgp": 1.0, "fft-gp": 1.0, "only-da": 1.0}


def test_rounds_of_warmup_are_those_of_plain_training(people: Federation) -> None:
    plain, late = (tiny.run(how, people)[0] for how in ("fedavg", "only-da(align_warmup=2)"))
    early = tiny.run("only-da(align_warmup=1)", people)[0]
    rows = [[row for row in run.rows if row["round"] <= 2] for run in (plain, late, early)]
    assert rows[0] == rows[1] != rows[2]
    assert not torch.equal(plain.vector, late.vector)
    assert [SHOWN in record["shown"] for record in late.rounds] == [False, False, True]


def test_a_warmup_as_long_as_the_run_is_refused(people: Federation) -> None:
    with pytest.raises(FairsiloError, match=r"waits for 3 rounds, and train.rounds is 3: it would do nothing"):
        tiny.plan("only-da(align_warmup=3)").check(people.roster, False)


def test_the_ratio_is_that_of_the_two_gradients(people: Federation) -> None:
    silo = silo_of("only-da(align_weight=0.5)", people)
    batch = next(silo.batches())
    with torch.no_grad():
        silo.parameters.add_(0.1)
    silo.model.train()
    fixed = silo.reference(batch.inputs, silo.start).features
    lengths = []
    for which in ("term", "loss"):
        silo.model.gradients.zero_()
        with silo.model.keeping_statistics():
            output = silo.forward(batch.inputs)
            assert output.features is not None
            assert fixed is not None
            term = 0.5 * coral(output.features, fixed)
            (term if which == "term" else F.cross_entropy(output.prediction, batch.targets)).backward()
        lengths.append(float(silo.model.gradients.double().norm()))
    begin_ratio(silo)
    assert not ratio_is_due(silo, 0)
    assert ratio_is_due(silo, 1)  # of three: half-way
    gradient(silo, batch)
    assert float(silo.scratch[RATIO]) == pytest.approx(lengths[0] / lengths[1], rel=1e-4)
    assert silo.scratch[RATIO] > 0


@pytest.mark.parametrize("how", ["only-da", "bgp", "grace", "grace(align=adversarial)", "fft-gp(align=mmd)"])
def test_every_round_shows_the_ratio_of_every_silo(how: str, people: Federation) -> None:
    history, _ = tiny.run(how, people)
    for record in history.rounds:
        assert set(record["shown"][SHOWN]) == {"a", "b", "c"}
        assert all(value > 0 for value in record["shown"][SHOWN].values())


def test_measuring_it_changes_no_number(people: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    with_it, _ = tiny.run("bgp", people)
    monkeypatch.setattr(alignment, "find_ratio", lambda *_: None)
    without, _ = tiny.run("bgp", people)
    assert torch.equal(with_it.vector, without.vector)
    assert with_it.rows == without.rows
    assert SHOWN not in without.rounds[0]["shown"]


def test_ten_times_the_weight_is_ten_times_the_ratio_at_first(people: Federation) -> None:
    silos = [silo_of(f"only-da(align_weight={weight})", people) for weight in (0.1, 1.0)]
    for silo in silos:
        begin_ratio(silo)
        assert ratio_is_due(silo, 1)
        silo.model.train()
        with torch.no_grad():
            silo.parameters.add_(0.1)
        gradient(silo, next(silo.batches()))
    assert float(silos[1].scratch[RATIO]) == pytest.approx(10 * float(silos[0].scratch[RATIO]), rel=1e-4)


def test_a_loss_without_a_gradient_has_no_ratio(people: Federation) -> None:
    silo = silo_of("only-da", people)
    constant = torch.zeros(())
    assert not gradient_ratio(silo, constant, constant).isfinite()
    output = silo.forward(next(silo.batches()).inputs)
    assert gradient_ratio(silo, constant, output.prediction.sum()) == 0


def test_it_is_measured_in_a_run_of_one_step_too(people: Federation) -> None:
    one = dataclasses.replace(tiny.TRAINING, batch_size=64)
    history, _ = tiny.run("bgp", people, one)
    assert set(history.rounds[0]["shown"][SHOWN]) == {"a", "b", "c"}
    nine = tiny.federation({"a": 9, "b": 18, "c": 30})  # a batch of 8, and one sample that is left out
    history, _ = tiny.run("bgp", nine)
    assert "a" in history.rounds[0]["shown"][SHOWN]


def test_the_number_is_declared() -> None:
    assert any("alignment's gradient" in text for text in method("bgp").sends)
    assert not method("bgp").individual_updates  # and a running sum is still enough


# ---------------------------------------------------------------------------------------------------------- adversaries
@pytest.mark.parametrize(("width", "expected"), [(64, [24, 64, 1]), (5, [24, 5, 1]), (0, [24, 1])])
def test_the_adversary_is_as_large_as_asked(width: int, expected: list[int], people: Federation) -> None:
    layout = tiny.plan(f"only-da(align=adversarial, adversary_width={width})").start()[0]
    shapes = [slot.shape for slot in layout.slots if slot.group == AUXILIARY and len(slot.shape) == 2]
    assert [shapes[0][1], *(shape[0] for shape in shapes)] == expected


def test_the_size_of_an_adversary_that_is_not_there_is_refused() -> None:
    with pytest.raises(FairsiloError, match="adversary_width has no effect with align=coral"):
        method("bgp(adversary_width=8)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("fedclip | bgp(align=adversarial)", marks=pytest.mark.slow),
        "promptfl | grace(align=adversarial)",
    ],
)
def test_adversarial_alignment_around_clip(how: str, tmp_path: Path) -> None:
    """The adversary reads what is aligned: adapted image features, or the classes' text features."""
    people = tiny_backbones.enlarged(tiny.federation())
    training = dataclasses.replace(tiny.TRAINING, rounds=2, lr=0.02)
    plan = tiny.plan(how, training, model=f"clip:{tiny_backbones.write_clip(tmp_path / 'clip')}")
    ready = keep_features(plan, people, None)
    loop = Loop(ready.plan, ready.federation.roster, Sequential(ready.plan, ready.federation, strict=True))
    history = loop.run()
    assert all(value > 0 for record in history.rounds for value in record["shown"][SHOWN].values())
    layout, start = ready.plan.start()
    adversary = [slot for slot in layout.slots if slot.group == AUXILIARY]
    assert adversary
    assert all(slot.kind == PRIVATE for slot in adversary)
    own = loop.engine.memory["a"]["silo"]["own"]
    assert not torch.equal(own, torch.cat([start[slot.place] for slot in layout.own]))  # it learned
    plain = Loop(*_without_alignment(how, plan, people)).run()
    assert not torch.equal(history.vector, plain.vector)  # and the shared model felt it


def _without_alignment(how: str, plan: Any, people: Federation) -> tuple[Any, Roster, Sequential]:
    without = dataclasses.replace(plan, method=method(how).without("feature-alignment"))
    ready = keep_features(without, people, None)
    return ready.plan, ready.federation.roster, Sequential(ready.plan, ready.federation, strict=True)


def test_a_network_that_does_not_tell_its_features_width_is_refused_in_a_sentence() -> None:
    with pytest.raises(FairsiloError, match="give it an attribute `features_width`"):
        features_width("feature-alignment", nn.Conv2d(3, 4, 3))
    deeper = nn.Module()
    deeper.head = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    assert features_width("feature-alignment", deeper) == 7
