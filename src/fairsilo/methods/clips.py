"""What the parts around CLIP have in common."""

from __future__ import annotations

from torch import nn

from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import ClipNetwork, VitNetwork
from fairsilo.models.own_encoders import ImageTextNetwork


def require_clip(part: str, network: nn.Module) -> ClipNetwork:
    if not isinstance(network, ClipNetwork):
        raise FairsiloError(f"{part} is built around CLIP; set model=tiny-clip, or model=clip:PATH")
    return network


def require_blocks(part: str, network: nn.Module) -> ClipNetwork:
    """CLIP as `transformers` has it: a part that changes blocks of its image encoder can name them."""
    clip = require_clip(part, network)
    if isinstance(clip, ImageTextNetwork):
        raise FairsiloError(f"{part} changes blocks inside CLIP's transformer; set model=clip:PATH, not {clip.source}")
    return clip


def require_vit(part: str, network: nn.Module) -> VitNetwork:
    if not isinstance(network, VitNetwork):
        raise FairsiloError(f"{part} is built around a vision transformer; set model=tiny-vit, or model=vit:PATH")
    return network
