"""Kept features beyond the plain case: in files, with worker processes, in whole runs; and methods that need more than
features."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
import tiny_backbones
from fairsilo import api
from fairsilo.core.local import task_loss
from fairsilo.core.messages import Message, Request
from fairsilo.core.samples import InFile, SiloData, Split
from fairsilo.core.silo import Memory
from fairsilo.data.federation import Federation, pooled
from fairsilo.engine.features import Prepared, keep_features
from fairsilo.engine.loop import History, Loop
from fairsilo.engine.processes import Pool, Processes
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError
from fairsilo.laws.tiny import looped
from fairsilo.methods.contrasts import prototype_contrast
from fairsilo.methods.parts.prototype_contrast import PrototypeContrast
from fairsilo.models import backbones
from fairsilo.models.clip_networks import AdapterBank
from fairsilo.runs.replayed import Replayed

SHORT = dataclasses.replace(tiny.TRAINING, rounds=2)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"clip:{tiny_backbones.write_clip(tmp_path_factory.mktemp('clip'))}"


@pytest.fixture(scope="module")
def people() -> Federation:
    return tiny_backbones.enlarged(tiny.federation())


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(2)
    yield made
    made.close()


def run(how: str, model: str, people: Federation, rounds: int = 2, **more: Any) -> tuple[History, Prepared]:
    plan = tiny.plan(how, dataclasses.replace(SHORT, rounds=rounds), model=model)
    ready = keep_features(plan, people, **more)
    engine = Sequential(ready.plan, ready.federation, strict=True)
    return Loop(ready.plan, ready.federation.roster, engine).run(), ready


@pytest.mark.slow
def test_workers_read_features_from_their_files(clip: str, people: Federation, pool: Pool, tmp_path: Path) -> None:
    alone, _ = run("fedclip", clip, people)
    ready = keep_features(tiny.plan("fedclip", SHORT, model=clip), people, limit=0.0, folder=tmp_path / "features")
    assert all(isinstance(silo.train.storage, InFile) for silo in ready.federation.silos)
    engine = Processes(ready.plan, ready.federation, pool, strict=True)
    assert torch.equal(Loop(ready.plan, ready.federation.roster, engine).run().vector, alone.vector)


@pytest.mark.parametrize("name", ["sequential", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_run_past_the_limit_leaves_no_features_behind(
    clip: str, people: Federation, tmp_path: Path, name: str
) -> None:
    settings: dict[str, Any] = {"model": clip, "method": "fedclip", "rounds": 1, "epochs": 1, "optimizer": "adam"}
    engine = {"name": name, "features_limit": 0.0} | ({"workers": 2} if name == "processes" else {})
    result = api.run(out=tmp_path / "run", federation=people, engine=engine, **settings)
    assert "in files" in result.folder.joinpath("run.json").read_text()
    assert not (result.folder / "features").exists()


def test_a_part_of_a_tensor_is_not_taken_for_all_of_it(clip: str, people: Federation) -> None:
    """Validation may be every second training sample: the same memory, read in another way."""
    silo = people["a"]
    half = Split(silo.train.inputs[::2], silo.train.targets[::2])
    cut = Federation("cut", people.classes, (dataclasses.replace(silo, validation=half), people["b"]))
    kept = keep_features(tiny.plan("fedclip", SHORT, model=clip), cut).federation["a"]
    assert torch.equal(kept.validation.inputs, kept.train.inputs[::2])
    first = SiloData("a", "a", silo.train, half, silo.test)
    second = SiloData("b", "b", half, half, silo.test)
    assert len(pooled(Federation("two", people.classes, (first, second))).silos[0].train) == len(silo.train) + len(half)


def test_prompts_are_not_read_again_every_round(
    clip: str, people: Federation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read: list[int] = []
    encode = backbones.ClipNetwork.read
    monkeypatch.setattr(backbones.ClipNetwork, "read", lambda *given: (read.append(1), encode(*given))[1])
    backbones._class_features.clear()
    counts = []
    for rounds in (1, 3):
        read.clear()
        settings: dict[str, Any] = {"model": clip, "method": "fedclip", "rounds": rounds, "epochs": 1}
        folder = tmp_path / str(rounds)
        api.run(out=folder, federation=people, engine={"name": "sequential"}, optimizer="adam", **settings)
        counts.append(len(read))
    assert counts == [1, 0]


@pytest.mark.slow
def test_the_servers_clip_sees_test_images_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedAG's CLIP is the server's: what it makes of test images is kept, with the same numbers."""
    seen: list[int] = []
    stem = AdapterBank.stem
    monkeypatch.setattr(AdapterBank, "stem", lambda *given: (seen.append(len(given[1])), stem(*given))[1])
    counts, rows = [], []
    for rounds, kept in ((1, True), (3, True), (3, False)):
        seen.clear()
        training = dataclasses.replace(tiny.TRAINING, rounds=rounds)
        plan, people, images, made = tiny.on_backbone("fedag", tiny.federation(), training)
        assert plan.encoded
        plan = dataclasses.replace(plan, encoded=kept)
        history = looped(plan, people, server_data=images, synthetic=made).run()
        counts.append(len(seen))
        rows.append(history.rows)
    assert counts[0] == counts[1] < counts[2]
    assert rows[1] == rows[2]


def test_a_pooled_run_can_be_looked_at_again(tmp_path: Path) -> None:
    clip = f"clip:{tiny_backbones.write_clip(tmp_path / 'clip', size=16)}"
    settings: dict[str, Any] = {"method": "clip-adapter", "model": clip, "rounds": 1, "epochs": 1, "optimizer": "adam"}
    data = {"name": "glyphs", "domains": ["scan", "print"], "held_out": "-", "size": 16}
    result = api.run(out=tmp_path / "run", data=data, engine={"name": "sequential"}, **settings)
    assert Replayed(result.folder).silos == ("pooled",)


def test_labels_that_are_no_class_are_refused(people: Federation) -> None:
    wrong = Split(people["b"].test.inputs, people["b"].test.targets + 1)
    silos = (people["a"], dataclasses.replace(people["b"], test=wrong))
    with pytest.raises(FairsiloError, match="'b' has labels from 1 to 3, and there are 3 classes"):
        Federation("wrong", people.classes, silos)


# ------------------------------------------------------------------------------------ methods that need more than that
def test_a_method_that_works_on_images_gets_images(clip: str, people: Federation) -> None:
    history, ready = run("fedclip | elcfs(bank=4)", clip, people)
    assert ready.said.endswith("frequency-episodes works on the images themselves")
    assert ready.federation is people
    assert torch.isfinite(history.vector).all()


def test_the_prototype_contrast_takes_the_place_of_what_is_trained(clip: str, people: Federation) -> None:
    """(1 - share) criterion + share InfoNCE, with FedCLIP's criterion; 0.5 in round 2 of 3."""
    plan = tiny.plan("fedclip | fedproc", dataclasses.replace(SHORT, rounds=3), model=clip)
    silo = plan.silo(plan.flat(), people["a"], Request("train", 2, Message()), Memory())
    silo.load(plan.start()[1])
    batch = next(silo.batches())
    output = silo.forward(batch.inputs)
    assert output.features is not None
    means, known = torch.randn(3, output.features.shape[1]), torch.tensor([True, True, True])
    silo.scratch["prototypes"] = means, known
    part = next(part for part in plan.method.parts if isinstance(part, PrototypeContrast))
    part.begin(silo)
    criterion = task_loss(silo, output, batch)
    near = prototype_contrast(output.features, batch.targets, means, known, part.temperature)
    assert not torch.allclose(criterion, silo.task.loss(output.prediction, batch.targets))
    torch.testing.assert_close(part.loss(silo, criterion, output, batch), 0.5 * criterion + 0.5 * near)


def test_what_pulls_at_frozen_features_is_refused(clip: str, people: Federation) -> None:
    for how, part in (("fedproto", "prototype-pull"), ("fedproc", "prototype-contrast")):
        with pytest.raises(FairsiloError, match=f"{part} moves the network's features, which are frozen in this model"):
            run(f"promptfl | {how}", clip, people)
        run(f"fedclip | {how}", clip, people)


def test_moon_contrasts_what_promptfl_trains(clip: str, people: Federation) -> None:
    plain, _ = run("promptfl", clip, people)
    moon, _ = run("promptfl | moon", clip, people)
    assert (moon.vector - plain.vector).abs().max() > 1e-5
