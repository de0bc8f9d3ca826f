"""FedOT: offsite tuning (Xiao et al., 2023) as FedAG compares with it. Silos get the first and last blocks of CLIP's
image encoder to train, and between them an emulator: some of the middle blocks, frozen. The server plugs what they
learned into the whole encoder."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fairsilo.core.part import About, Part
from fairsilo.errors import FairsiloError
from fairsilo.fields import setting
from fairsilo.methods.clips import require_blocks
from fairsilo.models.backbones import TEMPLATE, ClipNetwork, PromptClassifier
from fairsilo.models.clip_networks import emulated, with_blocks


@dataclass(frozen=True)
class Offsite(Part):
    """The first and last l blocks are trained through an emulator of the middle and averaged; the server has all."""

    name = "offsite"
    about = About(
        paper="Xiao, Lin and Han, Offsite-Tuning: Transfer Learning without Full Model, 2023",
        formula=(
            "W_ends <- sum_i p_i w_i, trained through blocks round(j (m-1)/(n-1)) of the middle; evaluated with all"
        ),
    )
    needs = frozenset({"classification"})

    ends: int = setting(0, "blocks trained at each end; 0: a sixth of all", low=0)
    emulator: int = setting(0, "blocks of the middle that silos get; 0: half of it", low=0)
    template: str = setting(TEMPLATE, "the prompt of a class")

    def network(self, network: nn.Module, classes: tuple[str, ...]) -> nn.Module:
        clip = require_blocks(self.name, network)
        ends, middle = self._blocks(clip)
        kept = self.emulator or max(1, middle // 2)
        if kept > middle:
            raise FairsiloError(f"{self.name}: the emulator has {kept} blocks, and between the ends there are {middle}")
        own = with_blocks(clip.pretrained, ends, emulated(ends, middle, kept))
        return PromptClassifier(clip, clip.prompts(classes, self.template), own)

    def server_network(self, network: nn.Module, classes: tuple[str, ...], silos: tuple[str, ...]) -> nn.Module:
        clip = require_blocks(self.name, network)
        ends, middle = self._blocks(clip)
        own = with_blocks(clip.pretrained, ends, list(range(ends, ends + middle)))
        return PromptClassifier(clip, clip.prompts(classes, self.template), own)

    def _blocks(self, clip: ClipNetwork) -> tuple[int, int]:
        count = len(clip.pretrained.vision_model.encoder.layers)
        ends = self.ends or max(1, count // 6)
        if count - 2 * ends < 1:
            raise FairsiloError(f"{self.name}: {ends} blocks at each end leave nothing of the {count} for the middle")
        return ends, count - 2 * ends
