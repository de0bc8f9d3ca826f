"""First-order meta-learning: Per-FedAvg (Fallah et al., NeurIPS 2020), the ML half of BGP (FFT-GP) and GRACE's client.
Differs from FedAvg by two steps: a virtual one on some samples, and the real one by the gradient found there on others.

With `batches=two` the second batch comes from a shuffle of its own: a round takes as many steps as plain training,
and each costs two gradients. The virtual step is the one the local optimiser would take, on a throw-away copy of its
state: at Adam's small rates a plain step of SGD would hardly move the model. Terms that other parts add (alignment)
belong to the second step. With `prime` (FFT-GP's Algorithm 2 as printed) that step starts where the first one ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.local import bare, follow, gradient
from fairsilo.core.optimizers import kept_optimizer, plain_step, virtual_step
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Planned, Silo
from fairsilo.core.vectors import Layout
from fairsilo.fields import setting
from fairsilo.methods.requirements import require_two_a_batch
from fairsilo.methods.steps import halves


@dataclass(frozen=True)
class MetaLearning(Part):
    """w' = w - eta grad L(w; B1); w <- w - eta grad L(w'; B2)."""

    name = "meta-learning"
    about = About(
        paper="Fallah, Mokhtari and Ozdaglar, Personalized Federated Learning: A Meta-Learning Approach, NeurIPS 2020",
        formula="w' = w - eta grad L(w; B1);  w <- w - eta grad L_meta(w'; B2)",
    )

    batches: str = setting("halves", "B1 and B2: the halves of a batch, or two batches", choices=("halves", "two"))
    meta_base: str = setting("start", "where the second step is applied", choices=("start", "prime"))
    inner: str = setting(
        "base", "how the virtual step is taken: as the local optimiser would, or plainly", choices=("base", "sgd")
    )
    inner_lr: float | None = setting(
        None, "learning rate of the virtual step; by default the local one", low=0, open_low=True
    )

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        if self.batches == "halves":
            require_two_a_batch(self.name, training, "halves every batch", "batches=two")

    def train(self, silo: Silo) -> Tensor:
        with kept_optimizer(silo) as optimizer:
            return follow(silo, optimizer, self._pairs(silo), lambda one, pair: self._gradient(one, optimizer, pair))

    def _gradient(self, silo: Silo, optimizer: torch.optim.Optimizer, pair: Any) -> Tensor:
        """Leave the meta gradient; the model back at its start unless the second step goes on from the first."""
        first, second = pair  # batches, made in the step
        start = silo.parameters.detach().clone()
        loss = bare(silo, first)
        take = virtual_step if self.inner == "base" else plain_step
        take(optimizer, self.inner_lr)
        gradient(silo, second)
        if self.meta_base == "start":
            with torch.no_grad():
                silo.parameters.copy_(start)
        return loss

    def _pairs(self, silo: Silo) -> Iterator[tuple[Planned, Planned]]:
        if self.batches == "two":
            yield from zip(silo.drawn(), silo.drawn("second batch"), strict=True)
            return
        if len(silo.data.train) < 2:
            raise ValueError("one training sample has no halves, so nothing would be trained; set batches=two")
        # halves of one sample are dropped as a trailing batch of one is, unless all batches are so small
        least = min(4, silo.training.batch_size, len(silo.data.train))
        yield from (halves(batch) for batch in silo.drawn() if len(batch.indices) >= least)
