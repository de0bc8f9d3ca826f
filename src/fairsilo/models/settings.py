"""What can be set in brackets behind the names of our own networks."""

from __future__ import annotations

from dataclasses import dataclass

from fairsilo.fields import setting

MOMENTUM = 0.01  # of batch normalisation in EfficientNets
USUAL_MOMENTUM = 0.1  # as PyTorch has it
MOMENTUM_SHARE = "share of a batch in BatchNorm's running statistics; 0.5 follows a silo that takes few steps a round"
MOMENTUM_HELP = "share of a batch in BatchNorm's running statistics; 0.1 keeps up with short local training"


@dataclass(frozen=True)
class NoSettings:
    """Of a network that has none."""


@dataclass(frozen=True)
class NormSettings:
    norm: str = setting(
        "batch", "normalisation; group: every image by itself, as private training needs it", choices=("batch", "group")
    )


@dataclass(frozen=True)
class UNetSettings:
    norm: str = setting(
        "batch",
        "normalisation; no: by the batch alone, without weights and running statistics",
        choices=("batch", "instance", "group", "no"),
    )
    bn_momentum: float = setting(USUAL_MOMENTUM, "of norm=batch: " + MOMENTUM_SHARE, low=0, high=1)
    width: int = setting(32, "channels of the first level, which double with each; a multiple of 8", low=8)


@dataclass(frozen=True)
class VitSettings:
    size: int = setting(224, "side of the images in pixels, a multiple of the patch", low=1)
    patch: int = setting(16, "side of a patch in pixels", low=1)


@dataclass(frozen=True)
class B0Settings:
    bn_momentum: float = setting(MOMENTUM, MOMENTUM_HELP, low=0, high=1)


@dataclass(frozen=True)
class Lite0Settings:
    weights: str = setting("imagenet", "where training starts", choices=("imagenet", "random"))
    bn_momentum: float = setting(MOMENTUM, MOMENTUM_HELP, low=0, high=1)


@dataclass(frozen=True)
class CharLSTMSettings:
    vocabulary: int = setting(0, "how many characters texts consist of; 0: as many as there are classes", low=0)
