"""FedAG (Wang et al., ICML 2025): the server's training on synthetic images, and the objective it descends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core.optimizers import Adam
from fairsilo.core.server import Server
from fairsilo.core.silo import inputs_for
from fairsilo.core.vectors import FlatModel
from fairsilo.errors import FairsiloError
from fairsilo.models.backbones import similarities
from fairsilo.models.clip_networks import AdapterBank, mixed


def momentum_start(own: Tensor, received: Tensor, gamma: float) -> Tensor:
    """Where a silo's training starts: between its own last model and the one that came back."""
    return gamma * own + (1 - gamma) * received


class Rules(Protocol):
    """Which terms the objective has, and how strong they are: the settings of the part."""

    @property
    def name(self) -> str: ...
    @property
    def server_lr(self) -> float: ...
    @property
    def server_batch(self) -> int: ...
    @property
    def kd(self) -> bool: ...
    @property
    def quality(self) -> bool: ...
    @property
    def cross(self) -> bool: ...
    @property
    def lam(self) -> float: ...
    @property
    def margin(self) -> float: ...
    @property
    def reduction(self) -> str: ...


class Infusion:
    """Trains the server's adapters, and its copies of the silos' models, on each silo's synthetic images.

    Args:
        server: Its own network is an `AdapterBank` with one adapter per silo.
        purpose: The part's name, of the random streams that shuffle the images.
        rate: Of Adam.
        batch_size: Images of each silo a step.
    """

    @classmethod
    def of(cls, server: Server, rules: Rules) -> Infusion:
        return cls(server, rules.name, rules.server_lr, rules.server_batch)

    def __init__(self, server: Server, purpose: str, rate: float, batch_size: int) -> None:
        assert server.own_model is not None
        assert isinstance(server.own_model.module, AdapterBank)
        self.server, self.purpose, self.rate, self.batch_size = server, purpose, rate, batch_size
        for name in server.names:
            if not len(server.synthetic.get(name, ())):
                raise FairsiloError(f"{purpose} needs synthetic images for every silo, and {name!r} has none")
        self.flat, self.bank = server.own_model, server.own_model.module
        self.flat.load(server.vector)

    def alone(self, epochs: int) -> Tensor:
        """Each adapter on its silo's images, by cross-entropy; returns the server's vector."""
        for index, name in enumerate(self.server.names):
            # a new optimiser for each: where the loss does not reach, moments are zero and nothing moves
            optimizer = self._optimizer(self.flat)
            for epoch in range(epochs):
                for chosen in self._batches(name, "initial", epoch):
                    phi, labels = self.answers(name, chosen)
                    self.flat.backward(F.cross_entropy(phi[index], labels))
                    optimizer.step()
        return self.flat.read()

    def objective(self, rules: Rules, scores: dict[str, Tensor], name: str, chosen: Tensor, copy: FlatModel) -> Tensor:
        """G_n on a batch of a silo's synthetic images; they count alike where the silo did not score them."""
        phi, labels = self.answers(name, chosen)
        client = None
        if rules.kd:
            images = self.server.synthetic[name].take(chosen)[0]
            client = copy.forward(inputs_for(copy, images)).prediction
        alpha = scores[name][chosen] if rules.quality and name in scores else torch.ones(len(chosen))
        beta, own = self.bank.attend(phi) if rules.cross else None, self.server.names.index(name)
        return server_losses(phi, beta, own, labels, client, alpha, rules.lam, rules.margin, rules.reduction).total

    def together(
        self, models: dict[str, Tensor], epochs: int, loss: Callable[[str, Tensor, FlatModel], Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Adapters and the silos' models descend the mean over silos of `loss(silo, indices of images, its model)`.

        Returns the server's vector and the silos' models. In the last round a note says what the images can teach.
        """
        assert self.server.network is not None
        if self.server.round == self.server.rounds:
            self.server.notes.append(teaching(self.readings(models)))
        names, copies = self.server.names, {}
        for name in names:
            copies[name] = copy = self.server.network()
            copy.load(models[name])
            copy.train()
        learner = self._optimizer(self.flat)
        tutors = {name: self._optimizer(copy) for name, copy in copies.items()}
        for epoch in range(epochs):
            queues = [self._batches(name, epoch) for name in names]
            for turn in itertools.zip_longest(*queues):  # a silo with fewer images sits out the last steps
                self.flat.gradients.zero_()
                for name, chosen in zip(names, turn, strict=True):
                    if chosen is not None:
                        copies[name].gradients.zero_()
                        share = loss(name, chosen, copies[name]) / len(names)
                        share.backward()  # type: ignore[no-untyped-call]
                        tutors[name].step()
                learner.step()
        return self.flat.read(), {name: copy.read() for name, copy in copies.items()}

    @torch.no_grad()
    def readings(self, models: dict[str, Tensor]) -> dict[str, tuple[float, float]]:
        """Silo -> the share of its synthetic images that CLIP by itself names right, and that the silo's model does."""
        assert self.server.network is not None
        found, copy = {}, self.server.network()
        copy.eval()
        for name in self.server.names:
            images, labels = self.server.synthetic[name].take(range(len(self.server.synthetic[name])))
            self.answers(name, torch.arange(1))  # so that CLIP has seen all of them
            alone = similarities(self.bank.known[name], self.bank.get_buffer("texts"), self.bank.clip.scale)
            copy.load(models[name])
            taught = copy.forward(inputs_for(copy, images)).prediction
            right = [(given.argmax(1).cpu() == labels.cpu()).double().mean() for given in (alone, taught)]
            found[name] = (float(right[0]), float(right[1]))
        return found

    def images(self, name: str) -> dict[str, Tensor]:
        """All synthetic images of a silo, with their labels."""
        images, labels = self.server.synthetic[name].take(range(len(self.server.synthetic[name])))
        return {"images": images, "labels": labels}

    def answers(self, name: str, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Every adapter's logits of some synthetic images, and their labels; CLIP itself runs once for each image."""
        split, bank, vector = self.server.synthetic[name], self.bank, self.server.vector
        if name not in bank.known:
            some = split.blocks(8 * bank.block)  # as floats all images together might not fit
            seen = [bank.stem_in_blocks(inputs_for(self.flat, one)) for one, _ in some]
            bank.known[name] = torch.cat(seen)
        return bank.logits(bank.adapted(bank.known[name][chosen])), split.targets[chosen].to(vector.device)

    def _batches(self, name: str, *purpose: object) -> Iterator[Tensor]:
        generator = self.server.stream(self.purpose, name, *purpose)
        return shuffled(len(self.server.synthetic[name]), self.batch_size, generator)

    def _optimizer(self, model: FlatModel) -> torch.optim.Optimizer:
        return Adam([model.parameters], lr=self.rate, fused=True)


def shuffled(count: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Indices in random order, in batches; batch normalisation cannot take a last batch of one image."""
    order = torch.randperm(count, generator=generator)
    for start in range(0, max(count - 1, 1), batch_size):
        yield order[start : start + batch_size]


class Losses(NamedTuple):
    """The terms of one silo's G; between the first and the last, one number per image."""

    mutual: Tensor  # J
    inside: Tensor  # CE(softmax(phi_n), y)
    across: Tensor  # CE(softmax(eta), y)
    lead: Tensor  # R
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
    across = lead = torch.zeros_like(inside)
    if beta is not None:
        across = F.cross_entropy(mixed(beta, phi), labels, reduction="none")
        others = torch.cat([beta[:, :own], beta[:, own + 1 :]], 1)
        if others.shape[1]:
            lead = (margin + others.amax(1) - beta[:, own]).clamp(min=0)
    mutual = inside.new_zeros(()) if client is None else mutual_loss(client, phi[own], quality)
    rest = inside + across + lam * lead
    return Losses(mutual, inside, across, lead, mutual + (rest.mean() if reduction == "mean" else rest.sum()))


def mutual_loss(client: Tensor, clip: Tensor, quality: Tensor) -> Tensor:
    """J = sum_i a_i [KL(theta||phi) + KL(phi||theta)] / (2 sum_i a_i). A negative score counts as none, since it would
    turn the divergence round; where no score is positive, all images count alike."""
    alpha = quality.clamp(min=0).to(clip)
    alpha = torch.where(alpha.sum() > 0, alpha, torch.ones_like(alpha))
    return (alpha * (divergence(client, clip) + divergence(clip, client))).sum() / (2 * alpha.sum())


def divergence(one: Tensor, other: Tensor) -> Tensor:
    """KL(softmax(one) || softmax(other)) per sample; gradients reach both."""
    first, second = F.log_softmax(one, 1), F.log_softmax(other, 1)
    return (first.exp() * (first - second)).sum(1)


def teaching(readings: dict[str, tuple[float, float]]) -> str:
    """What readings come to, in a sentence; CLIP learns nothing from images that it reads better than its teachers."""
    alone, taught = (100 * sum(pair[turn] for pair in readings.values()) / len(readings) for turn in (0, 1))
    said = f"of the synthetic images CLIP by itself names {alone:.0f} % right, the silos' models {taught:.0f} %"
    worse = [name for name, (one, other) in readings.items() if one >= other]
    return said + (f": they cannot teach it the styles of {', '.join(worse)}" if worse else "")
