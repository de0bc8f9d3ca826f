"""FedGR, the server half of FedGCR (AAAI 2024). Differs from FedAvg by weights that grow with the loss of a silo and
of its cluster, the cluster's influence rising from 0 as clusters become reliable."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE, Sends
from fairsilo.core.messages import Message
from fairsilo.core.output import Output
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.core.silo import Batch, Silo
from fairsilo.fields import around, between, setting
from fairsilo.methods.epoch_loss import begin_loss, record_loss, recorded_loss
from fairsilo.methods.loss_weights import group_weights, influence, quantised
from fairsilo.methods.parts.clustering import CLUSTERS
from fairsilo.methods.received_loss import RECEIVED_LOSS, measure_received, received_losses, report_received

EPOCH = "group-weights.epoch"
_WORDS = "a loss on its training data: the received model's, or that of its last epoch"


@dataclass(frozen=True)
class GroupWeights(Part):
    """weight_k ~ p_k (L_k^(1-beta) Lbar_t(k)^beta)^(q+1), Lbar the mean loss of the cluster; they sum to 1."""

    name = "group-weights"
    about = About(
        paper="Cheng et al., FedGCR: Federated Learning with Distinct Client Types, AAAI 2024",
        formula="a_k ~ p_k (L_k^(1-beta) Lbar_t(k)^beta)^(q+1);  beta = delta (1 - gamma^(r-1));  sum_k a_k = 1",
        sends=(
            replace(RECEIVED_LOSS, words=_WORDS),
            Sends(EPOCH, _WORDS, optional="a local loop of another part passes no batch through the terms"),
            EACH_UPDATE,
        ),
    )
    needs = frozenset({"part:clustering"})
    does = frozenset({"decides-weights"})

    q: float = setting(1.0, "the larger, the more a high loss counts; -1: not at all", low=-1, search=around(10))
    delta: float = setting(0.5, "the cluster's influence in the end", low=0, high=1, search=between(0, 1))
    gamma: float = setting(0.5, "how slowly it gets there (variant released: 0.9)", low=0, high=1)
    loss_source: str = setting(
        "received",
        "L: of the received model; of the last epoch, with all terms; or as released (1 in round 1, then rounded)",
        choices=("received", "epoch", "released"),
    )
    variant: str = setting(
        "paper",
        "released: beta = delta (1 - 0.9^r), clusters' losses weighted by data (see loss_source too)",
        choices=("paper", "released"),
    )

    @property
    def sends(self) -> tuple[Sends, ...]:
        received, epoch, update = self.about.sends
        return (epoch if self.loss_source == "epoch" else received), update

    def begin(self, silo: Silo) -> None:
        if self.loss_source == "epoch":
            begin_loss(silo, EPOCH)
        else:
            measure_received(silo)

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        """Adds nothing; as the last part it sees the loss with all terms."""
        if self.loss_source == "epoch" and batch.last:
            record_loss(silo, EPOCH, loss, batch)
        return loss

    def finish(self, silo: Silo, update: Message) -> None:
        if self.loss_source != "epoch":
            report_received(silo, update)
        elif (found := recorded_loss(silo, EPOCH)) is not None:
            update.numbers[EPOCH] = found

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        released = self.variant == "released"
        clusters = torch.tensor([server.facts[CLUSTERS][name] for name in updates.silos])
        beta = influence(server.round, self.delta, 0.9 if released else self.gamma, released)
        return group_weights(weights, self._losses(server, updates), clusters, beta, self.q, released)

    def _losses(self, server: Server, updates: Updates) -> Tensor:
        if self.loss_source == "epoch":
            # a local loop of a part's own may pass no batch through the terms: its mean loss stands in
            losses = updates.numbers(EPOCH)
            return torch.where(losses.isnan(), updates.numbers("loss"), losses)
        losses = received_losses(updates)
        if self.loss_source == "received":
            return losses
        return quantised(losses) if server.round > 1 else torch.ones_like(losses)
