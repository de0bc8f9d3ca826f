"""FedAG (Wang et al., ICML 2025), the server's half: CLIP stays at the server, frozen, with one adapter per silo. The
server learns from the silos' small models, and they from it, on synthetic images in each silo's style."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.messages import MODEL, Message
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import Layout
from fairsilo.errors import FairsiloError
from fairsilo.fields import around, setting
from fairsilo.methods.infusion import Infusion
from fairsilo.methods.requirements import require_all_sent
from fairsilo.models.backbones import TEMPLATE, ClipNetwork
from fairsilo.models.clip_networks import adapter_bank
from fairsilo.models.registry import build

QUALITY = "momentum-start.quality"  # under which a silo sends the scores of its synthetic images


@dataclass(frozen=True)
class DomainAdapters(Part):
    """Adapters, attention and the server's copies of the silos' models descend G together; the copies go back."""

    name = "domain-adapters"
    about = About(
        paper="Wang et al., Enhancing Foundation Models with Federated Domain Knowledge Infusion, ICML 2025",
        formula=(
            "phi_k = s cos(A_k(I)*I, T), beta = softmax_k(MLP(phi_k)), eta = sum_k beta_k phi_k;  min 1/N sum_n "
            "[J_n + mean_i CE(phi_n, y) + CE(eta, y) + lam max(0, delta + max_{k!=n} beta_k - beta_n)]"
        ),
        sends=(EACH_UPDATE,),
        keeps=("a copy of each silo's model, and its scores, at the server", "its synthetic images at the silo"),
    )
    needs = frozenset({"classification", "synthetic-images"})
    does = frozenset({"ignores-weights"})

    backbone: str = setting("tiny-clip", "the server's CLIP: tiny-clip, clip:PATH or package:function")
    template: str = setting(TEMPLATE, "the prompt of a class")
    lam: float = setting(0.1, "of the term by which a silo's own adapter leads", low=0, search=around(10))
    margin: float = setting(1e-3, "by which its attention should lead (delta)", low=0)
    quality: bool = setting(True, "weigh synthetic images by the silos' scores")
    kd: bool = setting(True, "adapters and silos' models learn from each other (J)")
    cross: bool = setting(True, "adapters learn to answer together; else their mean answers at unseen silos")
    reduction: str = setting("mean", "of a batch's terms; as printed their sum", choices=("mean", "sum"))
    as_printed: bool = setting(False, "products of plain features instead of scaled cosines")
    init_epochs: int = setting(5, "epochs of each adapter alone before round 1", low=0)
    server_epochs: int = setting(3, "epochs over the synthetic images a round", low=0)
    server_lr: float = setting(1e-4, "of Adam on the server", low=0, open_low=True, search=around(10))
    server_batch: int = setting(32, "synthetic images of each silo a step", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cross:
            self.refuse_idle("cross=false", "lam", "margin")
        if not self.kd:
            self.refuse_idle("kd=false", "quality")

    def server_network(self, network: nn.Module, classes: tuple[str, ...], silos: tuple[str, ...]) -> nn.Module:
        clip = build(self.backbone, len(classes), 3, seed=0)
        if not isinstance(clip, ClipNetwork):
            raise FairsiloError(
                f"{self.name}.backbone is {self.backbone!r}; it must be tiny-clip, clip:PATH or package:function"
            )
        return adapter_bank(clip, classes, self.template, len(silos), self.cross, self.as_printed)

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_all_sent(self.name, layout, "trains the silos' whole models")

    def prepare(self, server: Server) -> None:
        training = Infusion.of(server, self)
        server.vector = training.alone(self.init_epochs)
        assert server.network is not None
        initial = server.network().read()
        server.memory.of(self).update(initial=initial, models=dict.fromkeys(server.names, initial), quality={})
        images = {name: Message(training.images(name), {"part": self.name}) for name in server.names}
        server.ask("share", images)

    def share(self, silo: Silo, message: Message) -> Message:
        silo.memory.of(self).update(message.tensors)
        return Message()

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        kept = server.memory.of(self)
        message.tensors[MODEL] = kept["models"].get(silo, kept["initial"])  # a newcomer begins where all began
        return message

    def collect(self, server: Server, updates: Updates) -> Updates:
        kept = server.memory.of(self)
        models, scores = dict(kept["models"]), dict(kept["quality"])
        for name, delta, message in zip(updates.silos, updates.deltas, updates.messages, strict=True):
            models[name] = models[name] + delta
            if QUALITY in message.tensors:
                scores[name] = message.tensors[QUALITY]
        kept.update(models=models, quality=scores)
        return updates

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        return torch.zeros_like(server.vector)

    def step(self, server: Server, direction: Tensor) -> Tensor:
        kept, training = server.memory.of(self), Infusion.of(server, self)
        loss = partial(training.objective, self, kept["quality"])
        vector, kept["models"] = training.together(kept["models"], self.server_epochs, loss)
        return vector - server.vector

    def model_for(self, server: Server, silo: str | None, vector: Tensor) -> Tensor:
        answering = vector.clone()
        slot = next(slot for slot in server.layout.slots if slot.name == "route")
        answering[slot.place] = server.names.index(silo) if silo in server.names else -1
        return answering
