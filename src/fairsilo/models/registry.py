"""Networks by name: our own, backbones, and any function of the user's."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fairsilo.core import streams
from fairsilo.errors import FairsiloError, nearest
from fairsilo.models.backbones import SHIPPED, backbone_network, is_backbone
from fairsilo.models.networks import ResNet10, SmallCNN
from fairsilo.plugins import called, found_by, is_reference, registered

_GROUP = "fairsilo.models"
NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {"small-cnn": SmallCNN, "resnet-10": ResNet10}


def build(name: str, classes: int, channels: int, seed: int) -> nn.Module:
    """The network `name` (or `package:function`), its initial weights drawn from the seed alone."""
    make = _maker(name)
    with streams.ambient(seed, "initial weights"):
        module = called(make, (classes, channels), f"model {name!r}", "(classes, channels)")
    if not isinstance(module, nn.Module):
        raise FairsiloError(f"model {name!r} gave a {type(module).__name__}; it must return a torch.nn.Module")
    return module


def _maker(name: str) -> Callable[[int, int], nn.Module]:
    if name in NETWORKS:
        return NETWORKS[name]
    if is_backbone(name):
        return lambda classes, _: backbone_network(name, classes)
    if name in registered(_GROUP) or is_reference(name):
        return found_by(_GROUP, name, "model")  # type: ignore[no-any-return]
    known = (*NETWORKS, *SHIPPED, *registered(_GROUP))
    raise FairsiloError(
        f"unknown model {name!r}{nearest(name, known)} (pretrained: clip:PATH, vit:PATH or "
        "resnet:PATH; your own: 'package:function', called with the number of classes and of channels)"
    )


def names_code(name: str) -> bool:
    """Whether building this model imports code that the name itself points to."""
    return name not in NETWORKS and not is_backbone(name) and is_reference(name)
