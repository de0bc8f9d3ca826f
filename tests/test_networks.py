"""The networks that come along, and the way to one of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from fairsilo.core.output import Output, as_output
from fairsilo.errors import FairsiloError
from fairsilo.models.networks import BasicBlock, ResNet10, SmallCNN
from fairsilo.models.registry import build


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", ["small-cnn", "resnet-10"])
@pytest.mark.parametrize(("classes", "channels", "size"), [(5, 3, 32), (2, 1, 28), (10, 3, 17)])
def test_a_network_predicts_every_class_for_any_image(name: str, classes: int, channels: int, size: int) -> None:
    module = build(name, classes, channels, 0).eval()
    with torch.no_grad():
        output = module(torch.rand(2, channels, size, size))
    assert output.prediction.shape == (2, classes)
    assert output.features.shape == (2, module.head.in_features)
    assert torch.equal(module.head(output.features), output.prediction)


def test_resnet_10_has_the_widths_and_the_size_of_the_paper() -> None:
    module = ResNet10(10)
    blocks = [layer for layer in module.features if isinstance(layer, BasicBlock)]
    assert [block.first.out_channels for block in blocks] == [64, 128, 256, 512]
    assert [block.first.stride for block in blocks] == [(1, 1), (2, 2), (2, 2), (2, 2)]
    assert [isinstance(block.shortcut, nn.Identity) for block in blocks] == [True, False, False, False]
    # stem 1 728 + 128; blocks 73 984, 230 144, 919 040, 3 673 088; head 5 130
    assert parameters(module) == 1728 + 128 + 73984 + 230144 + 919040 + 3673088 + 5130
    assert 4.85e6 < parameters(module) < 4.95e6
    # a 10-layer network: the stem, four blocks of two, the head
    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == 10


def test_resnet_10_keeps_the_resolution_of_small_images_until_the_second_block() -> None:
    module = ResNet10(2, width=4).eval()
    inputs, sizes = torch.rand(1, 3, 32, 32), []
    with torch.no_grad():
        for layer in module.features:
            inputs = layer(inputs)
            sizes.append(inputs.shape[-1] if isinstance(layer, BasicBlock) else None)
    assert [size for size in sizes if size] == [32, 16, 8, 4]


def test_the_small_network_is_small() -> None:
    # convolutions 432 + 4 608 + 18 432, norms 2 (16 + 32 + 64), 1024 x 64 + 64, 64 x 7 + 7
    assert parameters(SmallCNN(7)) == 432 + 4608 + 18432 + 224 + 65600 + 455


def test_initial_weights_depend_on_the_seed_alone() -> None:
    found = []
    for global_seed, seed in ((1, 0), (2, 0), (1, 1)):
        torch.manual_seed(global_seed)
        found.append(build("small-cnn", 3, 3, seed).state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert not torch.equal(found[0]["head.weight"], found[2]["head.weight"])


def test_building_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    build("small-cnn", 3, 3, 0)
    assert torch.equal(torch.random.get_rng_state(), before)


# ------------------------------------------------------------------------------------------------------ the user's own
@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write a module into the folder the user stands in."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> None:
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)

    return write


def test_a_model_beside_the_configuration_is_found(beside: Callable[[str, str], None]) -> None:
    beside(
        "own_model_a",
        "from torch import nn\n"
        "def make(classes, channels):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 4, classes))\n",
    )
    first, second = build("own_model_a:make", 5, 2, 3), build("own_model_a:make", 5, 2, 3)
    assert first[1].weight.shape == (5, 8)
    assert torch.equal(first[1].weight, second[1].weight)
    output = as_output(first(torch.rand(1, 2, 2, 2)))
    assert output.prediction.shape == (1, 5)
    assert output.features is None


def test_a_class_is_a_maker_too(beside: Callable[[str, str], None]) -> None:
    beside(
        "own_model_b",
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self, classes, channels):\n"
        "        super().__init__(channels, classes)\n",
    )
    assert build("own_model_b:Net", 4, 3, 0).weight.shape == (4, 3)


def refused(name: str) -> str:
    with pytest.raises(FairsiloError) as problem:
        build(name, 2, 3, 0)
    return str(problem.value)


def test_a_misspelt_network_is_refused_with_the_nearest_and_the_other_way() -> None:
    assert refused("resnet10") == (
        "unknown model 'resnet10'; did you mean 'resnet-10'? "
        "(pretrained: clip:PATH, siglip:PATH, vit:PATH, resnet:PATH or efficientnet:PATH; your own: "
        "'package:function', called with the number of classes and of channels)"
    )
    assert "; known: char-lstm, efficientnet-b0, " in refused("no-such-network")


def test_a_package_that_is_not_there_is_refused() -> None:
    assert refused("no_such_package:make") == (
        "model 'no_such_package:make' cannot be imported: No module named 'no_such_package'"
    )


def test_a_function_that_is_not_there_is_refused() -> None:
    assert refused("json:make") == "model 'json:make' cannot be imported: module 'json' has no attribute 'make'"


def test_a_thing_that_cannot_be_called_is_refused(beside: Callable[[str, str], None]) -> None:
    beside("own_model_c", "make = 5\n")
    assert refused("own_model_c:make") == (
        "model 'own_model_c:make' is not callable; it must be a function of (classes, channels)"
    )


def test_a_maker_that_makes_no_module_is_refused(beside: Callable[[str, str], None]) -> None:
    beside("own_model_d", "def make(classes, channels):\n    return [classes, channels]\n")
    assert refused("own_model_d:make") == ("model 'own_model_d:make' gave a list; it must return a torch.nn.Module")


def test_an_output_passes_and_a_bare_prediction_is_wrapped() -> None:
    prediction = torch.rand(2, 3)
    given = Output(prediction, torch.rand(2, 4), extra="more")
    assert as_output(given) is given
    assert as_output(prediction).prediction is prediction
