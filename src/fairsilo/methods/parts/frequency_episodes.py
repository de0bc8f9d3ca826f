"""ELCFS (Liu et al., CVPR 2021). Differs from FedAvg by episodes: a step on the silo's images must also help on the
same images in another silo's style, which is the low-frequency amplitude of one of its images.

First order. Of masks, contours and what surrounds them must also stay apart in every style.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fairsilo.core.attachments import Sends, Sizes
from fairsilo.core.local import descend
from fairsilo.core.messages import Message
from fairsilo.core.output import Output, features_in
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server
from fairsilo.core.silo import Batch, Silo, inputs_for
from fairsilo.errors import FairsiloError
from fairsilo.fields import around, between, setting
from fairsilo.methods.contours import contour_contrast
from fairsilo.methods.spectra import PLANE, amplitude, window, window_sizes, with_low_amplitude
from fairsilo.methods.steps import looked_ahead

BANK = "once, the low-frequency amplitudes of some of its training images, which go to every silo"
RAW = "frequency-episodes.raw"  # in a restyled batch: the images as they were


@dataclass(frozen=True)
class FrequencyEpisodes(Part):
    """grad L(w; x) + grad L(w - inner_lr clip(grad L(w; x)); x in another style), applied to w."""

    name = "frequency-episodes"
    about = About(
        paper="Liu et al., FedDG: Federated Domain Generalization via Episodic Learning, CVPR 2021",
        formula="A' = r A + (1 - r) A_other at low frequencies;  w <- w - eta (g(w; x) + g(w - a clip(g(w; x)); x'))",
        sends=(Sends("amplitudes", BANK, ("images", *PLANE), "float", exchange="share", to="everybody"),),
        keeps=("the bank of amplitudes at the server",),
    )
    needs = frozenset({"image-task", "raw-images"})

    window: float = setting(0.1, "half of the window, by the image's size", low=0, high=0.5, search=between(0.01, 0.3))
    bank: int = setting(32, "images a silo whose amplitudes are shared", low=1)
    inner_lr: float = setting(1e-3, "of the step inside an episode", low=0, search=around(100))
    inner_clip: float = setting(100.0, "bound of each entry of the inner gradient", low=0, open_low=True)
    contrast: float = setting(0.1, "weight of the contrast of contours", low=0, rare="in segmentation")
    temperature: float = setting(0.05, "of that contrast", low=0, open_low=True, rare="in segmentation")

    def sizes(self, known: Sizes) -> dict[str, int]:
        return window_sizes(known, self.window)

    def prepare(self, server: Server) -> None:
        answers = server.ask("share", dict.fromkeys(server.names, Message({}, {"part": self.name})))
        if not answers:
            raise FairsiloError(f"{self.name}: no silo sent amplitudes")
        server.memory.of(self)["bank"] = {name: answers[name].tensors["amplitudes"] for name in sorted(answers)}

    def share(self, silo: Silo, message: Message) -> Message:
        split = silo.data.train
        chosen = torch.randperm(len(split), generator=silo.stream(self.name))[: self.bank]
        images = silo.model.pixels.to_unit(inputs_for(silo.model, split.take(chosen)[0]))
        rows, columns = window(images.shape[-2], images.shape[-1], self.window)
        return Message({"amplitudes": amplitude(images)[..., rows, columns].contiguous()})

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        others = [found for name, found in server.memory.of(self)["bank"].items() if name != silo]
        if others:  # alone, a silo has no other style to borrow
            message.tensors[f"{self.name}.bank"] = torch.cat(others)
        return message

    def draw(self, silo: Silo, indices: Tensor, stream: torch.Generator) -> dict[str, Tensor]:
        """Whose amplitudes an image gets, and how much of its own it keeps."""
        bank, count = silo.message.tensors.get(f"{self.name}.bank"), len(indices)
        if bank is None:
            return {}
        chosen = torch.randint(len(bank), (count,), generator=stream)
        return {"chosen": chosen, "own": torch.rand(count, 1, 1, 1, generator=stream)}

    def begin(self, silo: Silo) -> None:
        if (bank := silo.message.tensors.get(f"{self.name}.bank")) is not None:
            silo.hold(f"{self.name}.bank", bank)

    def train(self, silo: Silo) -> Tensor:
        return descend(silo, self._episode)

    def _episode(self, silo: Silo, batch: Batch) -> Tensor:
        return looked_ahead(silo, batch, partial(self._restyled, silo, batch), self.inner_lr, self.inner_clip)

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        if silo.task.name != "segment" or RAW not in batch.extra or not self.contrast:
            return loss
        raw, other = features_in(silo.forward(batch.extra[RAW])), features_in(output)
        return loss + self.contrast * contour_contrast(raw, other, batch.targets, self.temperature)

    def _restyled(self, silo: Silo, batch: Batch) -> Batch:
        bank, inputs = silo.scratch.get(f"{self.name}.bank"), batch.inputs
        if bank is not None:
            chosen, own = (batch.extra[f"{self.name}.{key}"] for key in ("chosen", "own"))
            pixels, other = silo.model.pixels, bank.to(inputs)[chosen]
            mixed = with_low_amplitude(pixels.to_unit(inputs), other, self.window, own.to(inputs.dtype))
            inputs = pixels.from_unit(mixed)
        return replace(batch, inputs=inputs, extra={RAW: batch.inputs})
