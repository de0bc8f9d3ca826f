"""DSBN as the papers use it (Chang et al., CVPR 2019): the unseen domain gets BatchNorm statistics of its own, from its
test images; nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batches, Silo
from fairsilo.core.vectors import Layout
from fairsilo.fields import setting
from fairsilo.methods.batch_norms import estimate_statistics, require_batch_norms, use_batch_statistics


@dataclass(frozen=True)
class OwnStatistics(Part):
    """Mean and variance of every BatchNorm from the unseen silo's unlabelled images; scale and shift stay."""

    name = "own-statistics"
    about = About(
        paper="Chang et al., Domain-Specific Batch Normalization for Unsupervised Domain Adaptation, CVPR 2019",
        formula="mu, sigma^2 <- those of the unseen silo's images; gamma, beta, w as they are",
    )

    statistics: str = setting("pass", "from one pass over all images, or batch by batch", choices=("pass", "batch"))
    adapt_batch: int = setting(64, "images a step when adapting", low=2)

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_batch_norms(self.name, layout)

    @torch.no_grad()
    def adapt(self, silo: Silo, batches: Batches) -> Iterator[Tensor]:
        if self.statistics == "pass":
            estimate_statistics(silo, batches(self.adapt_batch))
        else:
            use_batch_statistics(silo.model.module)
        return iter([silo.forward(batch).prediction for batch in batches(self.adapt_batch)])
