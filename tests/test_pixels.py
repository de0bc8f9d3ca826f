"""Images as a network wants them: in [-1, 1], or with a mean and a deviation of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fairsilo
import tiny
from fairsilo.core.messages import Message, Request
from fairsilo.core.output import Output
from fairsilo.core.pixels import Pixels
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.silo import Memory, inputs_for, prepare
from fairsilo.core.vectors import FlatModel, Layout
from fairsilo.engine.features import keep_features
from fairsilo.errors import FairsiloError
from fairsilo.models.networks import Staged

MEAN, DEVIATION = (0.2, 0.4, 0.6), (0.3, 0.2, 0.1)
CPU = torch.device("cpu")
SHORT = dataclasses.replace(tiny.TRAINING, rounds=2)


def per_channel(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values).view(1, -1, 1, 1)


class Undoing(tiny.TinyNet):
    """Asks for a normalisation and undoes it, so that it trains as the plain network does."""

    normalisation = (MEAN, DEVIATION)

    def forward(self, inputs: Tensor) -> Output:
        plain: Output = super().forward(2 * (inputs * per_channel(DEVIATION) + per_channel(MEAN)) - 1)
        return plain


def flat(module: nn.Module) -> FlatModel:
    return FlatModel(module, Layout.of(module))


def images(count: int = 5) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, 6, 6), generator=stream, dtype=torch.uint8)


# ------------------------------------------------------------------------------------------------------------- formula
def test_a_network_gets_what_it_asks_for() -> None:
    bytes_, wanted = images(), (images() / 255 - per_channel(MEAN)) / per_channel(DEVIATION)
    found = inputs_for(flat(Undoing(3, 3)), bytes_)
    assert torch.equal(found, wanted)
    black = inputs_for(flat(Undoing(3, 3)), torch.zeros(1, 3, 1, 1, dtype=torch.uint8)).flatten()
    assert black.tolist() == pytest.approx([-0.2 / 0.3, -0.4 / 0.2, -0.6 / 0.1])


def test_without_a_wish_images_lie_between_minus_one_and_one_to_the_last_bit() -> None:
    found = inputs_for(flat(tiny.TinyNet(3, 3)), images())
    assert torch.equal(found, images().float().div(127.5).sub(1))
    assert torch.equal(found, prepare(images(), CPU, torch.float32))


def test_the_wish_of_a_network_inside_another_counts() -> None:
    outer = nn.Sequential(Undoing(3, 3))
    assert Pixels.of(outer).normalisation == (MEAN, DEVIATION)
    assert Pixels.of(nn.Linear(2, 2)).normalisation is None


def test_one_number_stands_for_all_channels_and_floats_pass() -> None:
    pixels = Pixels(((0.5,), (0.25,)))
    assert pixels.seen(torch.tensor([[[[255]]]], dtype=torch.uint8), CPU, torch.float32).item() == 2.0
    given = torch.rand(2, 3, 4, 4)
    assert pixels.seen(given, CPU, torch.float32) is given


@pytest.mark.parametrize("pixels", [Pixels(), Pixels((MEAN, DEVIATION))])
def test_back_to_the_unit_interval_and_forth(pixels: Pixels) -> None:
    seen = pixels.seen(images(), CPU, torch.float32)
    unit = pixels.to_unit(seen)
    assert torch.allclose(unit, images() / 255, atol=1e-6)
    assert torch.allclose(pixels.from_unit(unit), seen, atol=1e-5)


def test_a_deviation_of_zero_is_refused() -> None:
    with pytest.raises(FairsiloError, match="divides by"):
        Pixels(((0.5,), (0.0,)))


# ------------------------------------------------------------------------------------------------------------- padding
def test_crops_are_padded_with_what_black_becomes() -> None:
    zeros = Split(torch.zeros(6, 3, 6, 6, dtype=torch.uint8), torch.arange(6) % 3)
    wanted = inputs_for(flat(Undoing(3, 3)), zeros.inputs[:1])[0, :, 0, 0]
    for model, black in ((Undoing, wanted), (tiny.TinyNet, -1.0)):
        blueprint = tiny.plan("fedavg", model=model, augment="crop+flip")
        data = SiloData("a", "a", zeros, zeros, zeros)
        silo = blueprint.silo(blueprint.flat(), data, Request("train", 1, Message()), Memory())
        for batch in silo.batches():
            assert torch.equal(batch.inputs, torch.as_tensor(black).view(1, -1, 1, 1).expand_as(batch.inputs))


# ---------------------------------------------------------------------------------------------------------- everywhere
def history(how: str, model: Any, **more: Any) -> list[float]:
    loop = tiny.looped(tiny.plan(how, SHORT, model=model, **more), tiny.federation(), server_data=tiny.synthetic())
    return [row["loss"] for row in loop.run().rows]


@pytest.mark.parametrize("how", ["fedavg", "elcfs", "harmofl", "fedavg-ft", "tent", "moon"])
def test_a_network_that_undoes_its_normalisation_trains_as_one_without(how: str) -> None:
    """Training, evaluation, restyled images, the server's own training, adaptation: all go by the same formula."""
    augment = "crop+flip" if how == "fedavg" else "none"
    plain, undone = (history(how, model, augment=augment) for model in (tiny.TinyNet, Undoing))
    assert undone == pytest.approx(plain, rel=1e-3)


def test_fedmix_averages_what_the_network_sees() -> None:
    blueprint = tiny.plan("fedmix(group=2)", model=Undoing)
    model, data = blueprint.flat(), tiny.federation()["a"]
    silo = blueprint.silo(model, data, Request("share", 0, Message()), Memory())
    sent = blueprint.method.parts[0].share(silo, Message()).tensors["inputs"]
    assert torch.allclose(sent.mean(0), inputs_for(model, data.train.inputs).mean(0), atol=1e-5)


class Frozen(Staged):
    """What the frozen first stage sees, averaged over the image, and a head."""

    normalisation = (MEAN, DEVIATION)

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)
        self.head = nn.Linear(channels, classes)

    def stem(self, inputs: Tensor) -> Tensor:
        return self.scale * inputs.mean((2, 3))

    def tail(self, stemmed: Tensor) -> Output:
        return Output(self.head(stemmed), stemmed)


def test_kept_features_are_of_normalised_images() -> None:
    people = tiny.federation()
    ready = keep_features(tiny.plan("fedavg", model=Frozen), people)
    assert ready.plan.stemmed
    kept = ready.federation["a"].train.take(range(24))[0]
    wanted = (people["a"].train.inputs / 255 - per_channel(MEAN)) / per_channel(DEVIATION)
    assert torch.allclose(kept, wanted.mean((2, 3)), atol=1e-5)


def test_a_finished_run_predicts_by_the_same_formula(tmp_path: Path) -> None:
    found = []
    for number, model in enumerate((tiny.TinyNet, Undoing)):
        settings = {"rounds": 1, "epochs": 1, "batch_size": 8, "engine": {"name": "sequential"}}
        made = tmp_path / str(number)
        fairsilo.run(method="fedavg", model=model, federation=tiny.federation(), out=made, **settings)
        trained = fairsilo.load(made, model=model)
        rows = trained.adapt({"new": tiny.federation().unseen[0].test}, "tent")
        found.append((trained.predict(images()), torch.tensor([row["loss"] for row in rows])))
    for plain, undone in zip(*found, strict=True):
        assert torch.allclose(plain, undone, atol=1e-4)
