"""IOP-FL, outside part (Jiang et al., IEEE TMI 2023): at the unseen silo every convolution becomes a mixture of the
silos' personal kernels and the global ones, mixed anew for each image by small routers that learn without labels.

Masks are also asked to be smooth, and the same after turns and flips; those change what a digit is, so classes must
agree under noise alone. Reported is the last epoch, not the best on test data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import WIRE, Sends
from fairsilo.core.messages import Message
from fairsilo.core.optimizers import Adam
from fairsilo.core.output import as_output
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server
from fairsilo.core.silo import Batches, Silo
from fairsilo.core.vectors import Layout
from fairsilo.errors import FairsiloError
from fairsilo.fields import setting
from fairsilo.methods.batch_norms import batch_norms, mean_entropy, require_batch_norms, use_batch_statistics
from fairsilo.methods.contours import disagreement, roughness
from fairsilo.models.mixtures import routed

MODELS = "each silo's personal model, to the server and on to unseen silos"


@dataclass(frozen=True)
class RoutedKernels(Part):
    """W(x) = sum_k sigmoid(r_k(x)) W_k over the personal models and the global one; routers and BatchNorm train."""

    name = "routed-kernels"
    about = About(
        paper="Jiang et al., IOP-FL: Inside-Outside Personalization for Federated Medical Image Segmentation, TMI 2023",
        formula="min over routers, gamma, beta: 10 H(f(x)) + 0.1 ||softmax f(x) - softmax f(x + noise)||^2",
        sends=(Sends("model", MODELS, WIRE, exchange="share", optional="it has not trained yet", to="everybody"),),
    )
    needs = frozenset({"image-task", "part:trajectory"})
    does = frozenset({"adapts-once"})

    adapt_epochs: int = setting(10, "epochs over the test images", low=1)
    adapt_lr: float = setting(1e-3, "of Adam, at test time", low=0, open_low=True)
    adapt_batch: int = setting(32, "images a step when adapting", low=2)
    entropy_weight: float = setting(10.0, "of the mean entropy", low=0)
    consistency_weight: float = setting(0.1, "of the agreement under noise", low=0)
    smooth_weight: float = setting(0.1, "of the difference between pixels", low=0, rare="in segmentation")
    noise: float = setting(0.1, "standard deviation of the noise; images mostly lie in [-1, 1]", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.consistency_weight:
            self.refuse_idle("consistency_weight=0", "noise")

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_batch_norms(self.name, layout)
        if not any(len(slot.shape) == 4 for slot in layout.slots):
            raise FairsiloError(f"{self.name} mixes kernels, and the network has no convolution; take model=small-cnn")

    def share(self, silo: Silo, message: Message) -> Message:
        model = silo.memory.get("trajectory", {}).get("model")
        return Message() if model is None else Message({"model": silo.model.layout.to_wire(model)})

    def equip(self, server: Server, message: Message) -> Message:
        answers = server.ask("share", dict.fromkeys(server.names, Message({}, {"part": self.name})))
        models = [answer.tensors["model"] for _, answer in sorted(answers.items()) if answer.tensors]
        message.tensors[f"{self.name}.models"] = torch.stack([server.vector, *models])
        return message

    def adapt(self, silo: Silo, batches: Batches) -> Iterator[Tensor]:
        models = silo.message.tensors[f"{self.name}.models"]
        network = routed(silo.model.module, [silo.model.layout.wire.views(model) for model in models])
        for norm in batch_norms(network):
            norm.requires_grad_(True)
        optimizer = Adam([one for one in network.parameters() if one.requires_grad], lr=self.adapt_lr)
        for _ in range(self.adapt_epochs):
            network.train()
            for inputs in batches(self.adapt_batch):
                optimizer.zero_grad()
                loss = self._loss(network, inputs)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        use_batch_statistics(network)
        with torch.no_grad():
            for inputs in batches(self.adapt_batch):
                yield as_output(network(inputs)).prediction

    def _loss(self, network: nn.Module, inputs: Tensor) -> Tensor:
        noisy = inputs + self.noise * torch.randn_like(inputs)
        clean = as_output(network(inputs)).prediction
        away = disagreement(lambda x: as_output(network(x)).prediction.softmax(1), noisy, clean.softmax(1))
        loss = self.entropy_weight * mean_entropy(clean) + self.consistency_weight * away
        return loss + self.smooth_weight * roughness(clean.softmax(1)) if clean.dim() == 4 else loss
