"""First-order meta-learning: Per-FedAvg (Fallah et al., NeurIPS 2020), the ML half of BGP (FFT-GP) and GRACE's client.
Differs from FedAvg by two steps: a virtual one on some samples, and the real one by the gradient found there on others.

Terms that other parts add (alignment) belong to the second. With `prime` (FFT-GP's Algorithm 2 as printed) the second
step starts where the first one ended; without terms that is two plain steps of SGD.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairsilo.config import setting
from fairsilo.core.local import gradient
from fairsilo.core.optimizers import kept_optimizer
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo


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

    def train(self, silo: Silo) -> Tensor:
        silo.model.train()
        total = torch.zeros((), dtype=torch.float64, device=silo.device)
        with kept_optimizer(silo) as optimizer:
            for first, second in self._pairs(silo):
                total += self._gradient(silo, first, second)
                optimizer.step()
                silo.steps += 1
        return total / max(silo.steps, 1)

    def _gradient(self, silo: Silo, first: Batch, second: Batch) -> Tensor:
        """Leave the meta gradient; the model back at its start unless the second step goes on from the first."""
        start = silo.parameters.detach().clone()
        loss = gradient(silo, first, terms=False, corrections=False)
        with torch.no_grad():
            silo.parameters.sub_(silo.model.gradients, alpha=silo.training.lr)
        gradient(silo, second)
        if self.meta_base == "start":
            with torch.no_grad():
                silo.parameters.copy_(start)
        return loss

    def _pairs(self, silo: Silo) -> Iterator[tuple[Batch, Batch]]:
        source = silo.batches()
        if self.batches == "two":
            yield from zip(source, source, strict=False)
            return
        for batch in source:
            half = len(batch.targets) // 2
            if half:  # a batch of one has no halves
                yield _part(batch, slice(0, half)), _part(batch, slice(half, None))


def _part(batch: Batch, some: slice) -> Batch:
    return replace(batch, inputs=batch.inputs[some], targets=batch.targets[some], indices=batch.indices[some])
