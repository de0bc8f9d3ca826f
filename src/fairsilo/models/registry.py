"""Networks by name: our own, backbones, and any function of the user's; settings stand in brackets behind the name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

import fairsilo.models.siglip  # noqa: F401 - makes its kind known
from fairsilo.core import streams
from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import backbone_network
from fairsilo.models.char_lstm import CharLSTM
from fairsilo.models.described import GROUP, chosen, is_backbone, read, unknown
from fairsilo.models.efficientnets import EfficientNetB0, EfficientNetLite0
from fairsilo.models.networks import MLP, ResNet10, SmallCNN
from fairsilo.models.resnets import ResNet18, ResNet50
from fairsilo.models.unet import UNet
from fairsilo.models.vits import VitBase, VitTiny
from fairsilo.plugins import called, found_by, is_reference, registered

NETWORKS: dict[str, Callable[..., nn.Module]] = {  # called with classes, channels and settings by name
    "small-cnn": SmallCNN,
    "resnet-10": ResNet10,
    "resnet-18": ResNet18,
    "resnet-50": ResNet50,
    "efficientnet-b0": EfficientNetB0,
    "efficientnet-lite0": EfficientNetLite0,
    "vit-tiny": VitTiny,
    "vit-base": VitBase,
    "unet": UNet,
    "char-lstm": CharLSTM,
    "mlp": MLP,
}


def build(text: str, classes: int, channels: int, seed: int) -> nn.Module:
    """The network of a text (`unet`, `unet(norm=group)` or `package:function`), its weights from the seed alone."""
    make = _maker(text)
    with streams.ambient(seed, "initial weights"):
        module = called(make, (classes, channels), f"model {text!r}", "(classes, channels)")
    if not isinstance(module, nn.Module):
        raise FairsiloError(f"model {text!r} gave a {type(module).__name__}; it must return a torch.nn.Module")
    return module


def _maker(text: str) -> Any:
    name, settings = (model := read(text)).name, model.settings
    if name in NETWORKS:
        return partial(NETWORKS[name], **dataclasses.asdict(chosen(name, settings)))
    if is_backbone(text):
        return lambda classes, _: backbone_network(text, classes)
    if name in registered(GROUP) or is_reference(name):
        found = found_by(GROUP, name, "model")
        return partial(found, **settings) if settings and callable(found) else found
    raise unknown(name)
