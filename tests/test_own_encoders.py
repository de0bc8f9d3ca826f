"""Two encoders of a user's own where CLIP is, such as CLIP's ResNet: what runs on them, and what refuses them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tiny
from fairsilo.api import run
from fairsilo.config import experiment
from fairsilo.errors import FairsiloError
from fairsilo.methods.pieces import references
from fairsilo.models.backbones import Backbone, ClipNetwork, similarities
from fairsilo.models.own_encoders import ImageTextNetwork
from fairsilo.models.registry import build
from fairsilo.runs.opened import read_experiment
from tiny_backbones import enlarged

WIDTH = 12
HERE = "test_own_encoders:resnet_clip"


class TinyResnet(nn.Module):
    """As CLIP's ResNets: convolutions with batch normalisation, and attention in the place of the last pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MultiheadAttention(8, 2, batch_first=True)
        self.project = nn.Linear(8, WIDTH)

    def forward(self, pixels: Tensor) -> Tensor:
        found = self.stem(pixels)
        cells = (found + self.block(found)).flatten(2).mT
        middle = cells.mean(1, keepdim=True)
        return self.project(self.pool(middle, cells, cells, need_weights=False)[0][:, 0])


def described(texts: Sequence[str]) -> Tensor:
    seeds = [zlib.crc32(text.encode()) for text in texts]
    return torch.stack([torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def resnet_clip(classes: int, channels: int) -> ImageTextNetwork:
    torch.manual_seed(3)
    images = TinyResnet()
    with torch.no_grad():  # running statistics that training must leave alone
        images.train()(torch.rand(16, 3, 8, 8))
    return ImageTextNetwork(images, described, size=8, mean=(0.4, 0.5, 0.6), deviation=(0.2, 0.25, 0.5), scale=20.0)


def any_size_clip(classes: int, channels: int) -> ImageTextNetwork:
    torch.manual_seed(4)
    return ImageTextNetwork(TinyResnet(), described)


def wrong_clip(classes: int, channels: int) -> ImageTextNetwork:
    return ImageTextNetwork(TinyResnet(), lambda _: torch.zeros(WIDTH), size=8)


def test_images_are_normalised_and_encoded_by_the_given_module() -> None:
    network = resnet_clip(3, 3).train()  # the encoder stays as it is in evaluation
    inputs = 2 * torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1)) - 1
    mean, deviation = (torch.tensor(some).view(1, 3, 1, 1) for some in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.5)))
    wanted = network.pretrained(((inputs + 1) / 2 - mean) / deviation)
    torch.testing.assert_close(network.images(inputs), wanted)
    assert not network.pretrained.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    texts = network.prompts(["cat", "alarm_clock"])
    torch.testing.assert_close(
        texts, nn.functional.normalize(described(["a photo of a cat", "a photo of a alarm clock"]))
    )
    logits = similarities(network.images(inputs), texts, network.scale)
    torch.testing.assert_close(logits, 20 * nn.functional.cosine_similarity(wanted[:, None], texts[None], dim=2))


def test_a_name_of_ours_leads_to_no_class_of_a_users_own() -> None:
    class Own(ClipNetwork):
        pass

    assert Backbone.known["clip"] is ClipNetwork
    assert Own not in Backbone.known.values()


SETTINGS: dict[str, Any] = {"train": {"rounds": 2, "epochs": 1, "lr": 0.01}, "engine": {"name": "sequential"}}


@pytest.mark.parametrize("how", ["clip-zero-shot", "fedclip", "fft-gp | fedclip"])
def test_what_trains_behind_the_encoders_runs_on_them(how: str, tmp_path: Path) -> None:
    found = run(method=how, federation=enlarged(tiny.federation()), model=HERE, out=tmp_path / "run", **SETTINGS)
    assert found.summary["generalisation"]["mean"] is not None


def test_nothing_of_the_encoders_is_trained_or_sent() -> None:
    plan = tiny.plan("fedclip", model=HERE)
    names = [slot.name for slot in plan.layout.slots]
    assert names
    assert all(name.startswith("adapter.") for name in names)


GLYPHS = {"name": "glyphs", "synthetic": "glyphs", "share": "40", "held_out": "scan"}


@pytest.mark.slow
def test_fedag_takes_them_as_its_servers_clip(tmp_path: Path) -> None:
    backbone = "test_own_encoders:any_size_clip"
    found = run(
        method=f"fedag(backbone={backbone}, init_epochs=1, server_epochs=1)",
        model="small-cnn",
        data=GLYPHS,
        out=tmp_path / "run",
        **SETTINGS,
    )
    assert found.summary["generalisation"]["mean"] is not None


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("promptfl", "a learned context needs the tokens of CLIP's text encoder"),
        ("fedot", "changes blocks inside CLIP's transformer; set model=clip:PATH, not TinyResnet"),
        ("clip-lora | fedavg", "changes blocks inside CLIP's transformer; set model=clip:PATH, not TinyResnet"),
    ],
)
def test_what_reaches_inside_them_refuses(how: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(FairsiloError, match=why):
        run(method=how, federation=enlarged(tiny.federation()), model=HERE, out=tmp_path / "run", **SETTINGS)


def test_a_text_encoder_that_gives_no_rows_is_named() -> None:
    with pytest.raises(FairsiloError, match=r"the text encoder beside TinyResnet gave \(12,\) for 1 texts, not rows"):
        build("test_own_encoders:wrong_clip", 3, 3, 0)


def test_a_network_that_is_no_clip_is_refused_by_fedag(tmp_path: Path) -> None:
    why = "backbone is 'small-cnn'; it must be tiny-clip, clip:PATH or package:function"
    with pytest.raises(FairsiloError, match=why):
        run(method="fedag(backbone=small-cnn)", model="small-cnn", data=GLYPHS, out=tmp_path / "run", **SETTINGS)


def test_code_that_a_setting_names_needs_trust(tmp_path: Path) -> None:
    assert references(f"fedag(backbone={HERE}, lam=0.1) | fedprox(mu=0.1)") == [HERE]
    assert references("fedag(backbone=clip:weights)") == []  # a checkpoint, which runs no code
    assert references("mine:Part(x=3) | other:part") == ["mine:Part", "other:part"]
    (tmp_path / "config.yaml").write_text(f"method: fedag(backbone={HERE})\n")
    assert experiment({"method": f"fedag(backbone={HERE})"}).method.startswith("fedag")
    with pytest.raises(FairsiloError, match=f"names code that would be imported and run: {HERE}"):
        read_experiment(tmp_path)
    assert read_experiment(tmp_path, trust=True).method == f"fedag(backbone={HERE})"
