"""What the parts around CLIP have in common."""

from __future__ import annotations

from torch import nn

from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import ClipNetwork, VitNetwork


def require_clip(part: str, network: nn.Module) -> ClipNetwork:
    if not isinstance(network, ClipNetwork):
        raise FairsiloError(f"{part} is built around CLIP; set model=tiny-clip, or model=clip:PATH")
    return network


def require_vit(part: str, network: nn.Module) -> VitNetwork:
    if not isinstance(network, VitNetwork):
        raise FairsiloError(f"{part} is built around a vision transformer; set model=tiny-vit, or model=vit:PATH")
    return network
