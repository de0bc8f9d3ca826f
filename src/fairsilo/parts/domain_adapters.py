"""FedAG (Wang et al., ICML 2025), the server's half: CLIP stays at the server, frozen, with one adapter per silo. The
server learns from the silos' small models, and they from it, on synthetic images in each silo's style."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairsilo.config import TrainSettings, setting
from fairsilo.errors import FairsiloError
from fairsilo.federation import Split
from fairsilo.messages import MODEL, Message
from fairsilo.models.backbones import TEMPLATE, ClipNetwork, backbone_network, similarities
from fairsilo.models.networks import Output, Staged, as_output
from fairsilo.part import Part
from fairsilo.parts.clips import require_clip
from fairsilo.parts.image_adapter import attention
from fairsilo.server import Server, Updates
from fairsilo.silo import Silo, prepare
from fairsilo.vectors import FlatModel, Layout

QUALITY = "momentum-start.quality"  # under which a silo sends the scores of its synthetic images


class DomainAdapters(Staged):
    """Frozen image features through one adapter per silo: of one of them, or of all, weighed by how they answer."""

    def __init__(self, clip: ClipNetwork, texts: Tensor, count: int, as_printed: bool = False, cross: bool = True):
        super().__init__()
        self.clip, self.as_printed, self.cross = clip, as_printed, cross
        self.adapters = nn.ModuleList(attention(clip.width, clip.width) for _ in range(count))
        self.mixer = nn.Linear(len(texts), 1)
        self.register_buffer("texts", texts, persistent=False)
        self.register_buffer("route", torch.tensor([-1.0]))  # the adapter that answers; -1: all of them
        self.kept: dict[str, Tensor] = {}  # image features of synthetic images, which never change

    def stem(self, inputs: Tensor) -> Tensor:
        return self.clip.images(inputs)

    def adapted(self, stemmed: Tensor) -> Tensor:
        """I~_k = A_k(I) * I for every adapter: N x B x d."""
        return torch.stack([adapter(stemmed) * stemmed for adapter in self.adapters])

    def logits(self, adapted: Tensor) -> Tensor:
        """phi_k: N x B x classes."""
        texts = self.get_buffer("texts")
        if self.as_printed:
            return adapted @ texts.T
        return torch.stack([similarities(some, texts, self.clip.scale) for some in adapted])

    def attend(self, phi: Tensor) -> Tensor:
        """beta = softmax_k(MLP(phi_k)): B x N; equal shares where adapters are not trained to work together."""
        scores = self.mixer(phi).squeeze(-1).T
        return torch.softmax(scores if self.cross else torch.zeros_like(scores), 1)

    def tail(self, stemmed: Tensor) -> Output:
        adapted = self.adapted(stemmed)
        phi = self.logits(adapted)
        beta, chosen = self.attend(phi), int(self.get_buffer("route"))
        share = beta if chosen < 0 else F.one_hot(torch.full_like(beta[:, 0], chosen).long(), len(phi)).to(beta)
        return Output(mixed(share, phi), mixed(share, adapted), {"attention": beta})

    def features(self, name: str, images: Tensor) -> Tensor:
        """What CLIP makes of a silo's synthetic images; computed once."""
        if name not in self.kept:
            device, dtype = self.get_buffer("texts").device, self.get_buffer("texts").dtype
            self.kept[name] = self.stem_in_blocks(prepare(images, device, dtype))
        return self.kept[name]


def mixed(share: Tensor, answers: Tensor) -> Tensor:
    """eta = sum_k beta_k phi_k."""
    return (share.T[..., None] * answers).sum(0)


class Losses(NamedTuple):
    """The terms of G for the images of one silo; all but the first and the last are one number per image."""

    mutual: Tensor  # J
    inside: Tensor  # CE(softmax(phi_n), y)
    across: Tensor  # CE(softmax(eta), y)
    margin: Tensor  # R
    total: Tensor


def server_losses(
    phi: Tensor,
    beta: Tensor | None,
    own: int,
    labels: Tensor,
    client: Tensor | None,
    quality: Tensor,
    lam: float,
    margin: float,
    reduction: str = "mean",
) -> Losses:
    """J + mean (as printed: sum) of CE(phi_n) + CE(eta) + lam R; without beta no CE(eta) and R, without client no J."""
    inside = F.cross_entropy(phi[own], labels, reduction="none")
    across = regular = torch.zeros_like(inside)
    if beta is not None:
        across = F.cross_entropy(mixed(beta, phi), labels, reduction="none")
        others = torch.cat([beta[:, :own], beta[:, own + 1 :]], 1)
        if others.shape[1]:
            regular = (margin + others.amax(1) - beta[:, own]).clamp(min=0)
    mutual = inside.new_zeros(()) if client is None else mutual_loss(client, phi[own], quality)
    rest = inside + across + lam * regular
    return Losses(mutual, inside, across, regular, mutual + (rest.mean() if reduction == "mean" else rest.sum()))


def mutual_loss(client: Tensor, clip: Tensor, quality: Tensor) -> Tensor:
    """J = sum_i a_i [KL(theta||phi) + KL(phi||theta)] / (2 sum_i a_i); a negative score counts as none, and where no
    image has a score above it, all count alike."""
    alpha = quality.clamp(min=0).to(clip)
    alpha = torch.where(alpha.sum() > 0, alpha, torch.ones_like(alpha))
    return (alpha * (divergence(client, clip) + divergence(clip, client))).sum() / (2 * alpha.sum())


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """KL(softmax(one) || softmax(other)) per sample; gradients reach both."""
    first, second = F.log_softmax(one, 1), F.log_softmax(other, 1)
    return (first.exp() * (first - second)).sum(1)


@dataclass(frozen=True)
class DomainAdaptersPart(Part):
    """Adapters, attention and the server's copies of the silos' models descend G together; the copies go back."""

    name = "domain-adapters"
    paper = "Wang et al., Enhancing Foundation Models with Federated Domain Knowledge Infusion, ICML 2025"
    formula = (
        "phi_k = s cos(A_k(I)*I, T), eta = sum_k beta_k phi_k, beta = softmax_k(MLP(phi_k));  min 1/N sum_n [J_n + "
        "mean_i CE(phi_n, y) + CE(eta, y) + lam max(0, delta + max_{k!=n} beta_k - beta_n)]"
    )
    keeps = ("a copy of each silo's model and its scores at the server; synthetic images at the silo",)
    tasks = ("classify",)
    ignores_weights = True
    needs_synthetic = True

    adapters: int = setting(4, "how many: one for each silo that trains", low=1)
    backbone: str = setting("tiny-clip", "the server's CLIP: tiny-clip or clip:PATH")
    template: str = setting(TEMPLATE, "the prompt of a class")
    lam: float = setting(0.1, "of the term that prefers a silo's own adapter", low=0)
    margin: float = setting(1e-3, "by which the own adapter's attention should lead (delta)", low=0)
    quality: bool = setting(True, "weigh synthetic images by their scores")
    kd: bool = setting(True, "silos' models and adapters learn from each other (J)")
    cross: bool = setting(True, "adapters learn to answer together; else their mean answers at unseen silos")
    reduction: str = setting("mean", "of a batch's terms, or their sum as printed", choices=("mean", "sum"))
    as_printed: bool = setting(False, "plain products of features instead of scaled cosines")
    init_epochs: int = setting(5, "epochs of each adapter on its synthetic images before round 1", low=0)
    server_epochs: int = setting(3, "epochs over the synthetic images a round", low=0)
    server_lr: float = setting(1e-4, "of Adam on the server", low=0, open_low=True)
    server_batch: int = setting(32, "synthetic images of each silo a step", low=2)

    def server_network(self, classes: tuple[str, ...]) -> nn.Module:
        clip = require_clip(self.name, backbone_network(self.backbone, len(classes)))
        texts = clip.prompts(classes, self.template)
        if self.as_printed:
            with torch.no_grad():
                texts = clip.encode(clip.tokens([self.template.format(name) for name in classes]))
        return DomainAdapters(clip, texts, self.adapters, self.as_printed, self.cross)

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        if layout.wire is not layout:
            raise FairsiloError(f"{self.name} trains silos' whole models, and some tensors never leave their silo")

    def prepare(self, server: Server) -> None:
        flat, network = self._network(server)
        self._check(server, network)
        flat.load(server.vector)
        for index, name in enumerate(server.names):
            split, prefix = server.synthetic[name], f"adapters.{index}."
            features, labels = network.features(name, split.inputs), split.targets.to(server.vector.device)
            leaves = flat.leaves(lambda slot, prefix=prefix: slot.name.startswith(prefix))
            optimizer = torch.optim.Adam(leaves, lr=self.server_lr)
            for epoch in range(self.init_epochs):
                for chosen in self._batches(server, len(split), "initial", name, epoch):
                    flat.gradients.zero_()
                    phi = network.logits(network.adapted(features[chosen]))[index]
                    F.cross_entropy(phi, labels[chosen]).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
        server.vector = flat.read()
        messages = {name: Message(_tensors(server.synthetic[name]), {"part": self.name}) for name in server.names}
        server.ask("share", messages)
        assert server.network is not None
        initial = server.network().read()
        models = dict.fromkeys(server.names, initial)
        server.memory.of(self).update(initial=initial, models=models, quality={})

    def _check(self, server: Server, network: DomainAdapters) -> None:
        if len(server.names) != self.adapters:
            raise FairsiloError(
                f"{self.name} has {self.adapters} adapters, and {len(server.names)} silos train; "
                f"set adapters={len(server.names)}"
            )
        for name in server.names:
            if not len(server.synthetic.get(name, ())):
                raise FairsiloError(f"{self.name} needs synthetic images for every silo, and {name!r} has none")
        size, wanted = tuple(server.synthetic[server.names[0]].inputs.shape[-2:]), network.clip.image_size
        if wanted is not None and size != (wanted, wanted):
            raise FairsiloError(
                f"the images are {size[0]}x{size[1]}, and the server's {self.backbone} takes {wanted}x{wanted}; "
                f"set data.size={wanted}"
            )

    def share(self, silo: Silo, message: Message) -> Message:
        silo.memory.of(self).update(message.tensors)
        return Message()

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        kept = server.memory.of(self)
        message.tensors[MODEL] = kept["models"].get(silo, kept["initial"])  # a newcomer begins as all did
        return message

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        return torch.zeros_like(server.vector)

    def step(self, server: Server, updates: Updates, direction: Tensor) -> Tensor:
        kept = server.memory.of(self)
        models, scores = dict(kept["models"]), dict(kept["quality"])
        for name, delta, message in zip(updates.silos, updates.deltas, updates.messages, strict=True):
            models[name] = models[name] + delta
            if QUALITY in message.tensors:
                scores[name] = message.tensors[QUALITY]
        flat, network = self._network(server)
        flat.load(server.vector)
        copies = {name: self._copy(server, models[name]) for name in server.names}
        optimizers = {name: torch.optim.Adam([copy.parameters], lr=self.server_lr) for name, copy in copies.items()}
        shared = torch.optim.Adam([flat.parameters], lr=self.server_lr)
        for epoch in range(self.server_epochs):
            queues = [self._batches(server, len(server.synthetic[name]), name, epoch) for name in server.names]
            for turn in itertools.zip_longest(*queues):  # a silo with fewer images sits out the last steps
                flat.gradients.zero_()
                for index, (name, chosen) in enumerate(zip(server.names, turn, strict=True)):
                    if chosen is not None:
                        copies[name].gradients.zero_()
                        loss = self._loss(server, network, index, chosen, copies[name], scores.get(name))
                        (loss / len(server.names)).backward()  # type: ignore[no-untyped-call]
                        optimizers[name].step()
                shared.step()
        kept["models"] = {name: copy.read() for name, copy in copies.items()}
        kept["quality"] = scores
        return flat.read() - server.vector

    def _loss(
        self,
        server: Server,
        network: DomainAdapters,
        index: int,
        chosen: Tensor,
        copy: FlatModel,
        scores: Tensor | None,
    ) -> Tensor:
        """G_n on a batch of a silo's synthetic images."""
        name = server.names[index]
        split, device = server.synthetic[name], server.vector.device
        phi = network.logits(network.adapted(network.features(name, split.inputs)[chosen]))
        client = None
        if self.kd:
            client = as_output(copy.module(prepare(split.inputs[chosen], device, copy.layout.dtype))).prediction
        known = self.quality and scores is not None and len(scores) == len(split)
        alpha = scores[chosen] if known and scores is not None else torch.ones(len(chosen))
        beta = network.attend(phi) if self.cross else None
        labels = split.targets[chosen].to(device)
        return server_losses(phi, beta, index, labels, client, alpha, self.lam, self.margin, self.reduction).total

    def model_for(self, server: Server, silo: str | None, vector: Tensor) -> Tensor:
        answering = vector.clone()
        slot = next(slot for slot in server.layout.slots if slot.name == "route")
        answering[slot.place] = server.names.index(silo) if silo in server.names else -1
        return answering

    def _network(self, server: Server) -> tuple[FlatModel, DomainAdapters]:
        assert server.module is not None
        assert isinstance(server.module.module, DomainAdapters)
        return server.module, server.module.module

    def _copy(self, server: Server, vector: Tensor) -> FlatModel:
        assert server.network is not None
        copy = server.network()
        copy.load(vector)
        copy.train()
        return copy

    def _batches(self, server: Server, count: int, *purpose: object) -> Iterator[Tensor]:
        """A shuffled epoch; a last batch of one image is left out, since batch normalisation cannot take it."""
        order = torch.randperm(count, generator=server.stream(self.name, *purpose))
        for start in range(0, max(count - 1, 1), self.server_batch):
            yield order[start : start + self.server_batch]


def _tensors(split: Split) -> dict[str, Tensor]:
    return {"images": split.inputs, "labels": split.targets}
