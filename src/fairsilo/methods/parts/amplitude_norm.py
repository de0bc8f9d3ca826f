"""HarmoFL's amplitude normalisation (Jiang et al., AAAI 2022). Differs from FedAvg by what the networks see: images
whose low-frequency amplitude is the federation's mean one, in training, at evaluation and on unseen silos.

The released code keeps a running amplitude that its first batch fixes; here each silo sends the mean amplitude of all
its training images once, the server averages them, and the result goes with every model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.attachments import Sends, Sizes
from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server
from fairsilo.core.silo import Batch, Silo
from fairsilo.errors import FairsiloError
from fairsilo.fields import setting
from fairsilo.methods.spectra import PLANE, low_amplitude, window_sizes, with_low_amplitude

AMPLITUDE = "once, the mean low-frequency amplitude of its training images"
MEAN = "to every silo the mean of these amplitudes"


@dataclass(frozen=True)
class AmplitudeNorm(Part):
    """FFT(x) = A e^(iP); in the window A becomes the mean over silos of their mean amplitude."""

    name = "amplitude-norm"
    about = About(
        paper="Jiang, Wang and Dou, HarmoFL: Harmonizing Local and Global Drifts in Federated Learning, AAAI 2022",
        formula="x' = IFFT(A' e^(iP)) with A' = mean amplitude of the federation at low frequencies, A elsewhere",
        sends=(
            Sends("amplitude", AMPLITUDE, PLANE, "float", per="mean", exchange="share"),
            Sends("amplitude-norm.amplitude", MEAN, PLANE, "float", to="silos"),
        ),
        keeps=("the mean amplitude at the server",),
    )
    needs = frozenset({"image-task"})
    does = frozenset({"normalises-images"})

    window: float = setting(
        0.0, "half-size of the window as a share of the image; 0: the zero frequency alone", low=0, high=0.5
    )

    def sizes(self, known: Sizes) -> dict[str, int]:
        return window_sizes(known, self.window)

    def prepare(self, server: Server) -> None:
        answers = server.ask("share", dict.fromkeys(server.names, Message({}, {"part": self.name})))
        if not answers:
            raise FairsiloError(f"{self.name}: no silo sent its amplitude")
        found = [answers[name].tensors["amplitude"] for name in sorted(answers)]
        server.memory.of(self)["amplitude"] = torch.stack(found).mean(0)

    def share(self, silo: Silo, message: Message) -> Message:
        batches = silo.evaluation_batches(silo.data.train)
        pixels = silo.model.pixels
        total = sum(low_amplitude(pixels.to_unit(batch.inputs), self.window).sum(0) for batch in batches)
        return Message({"amplitude": torch.as_tensor(total) / len(silo.data.train)})

    def accompany(self, server: Server, message: Message) -> Message:
        message.tensors[f"{self.name}.amplitude"] = server.memory.of(self)["amplitude"]
        return message

    def inputs(self, silo: Silo, inputs: Tensor, batch: Batch, training: bool) -> Tensor:
        mean = silo.message.tensors[f"{self.name}.amplitude"]
        pixels = silo.model.pixels
        return pixels.from_unit(with_low_amplitude(pixels.to_unit(inputs), mean, self.window))
