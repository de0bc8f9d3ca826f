"""Tent (Wang et al., ICLR 2021): at the unseen silo, scale and shift of BatchNorm follow the entropy of the predictions
down, one step a batch of test images; predictions are those before the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.optimizers import Adam
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batches, Silo
from fairsilo.core.vectors import Layout
from fairsilo.fields import setting
from fairsilo.methods.batch_norms import is_batch_norm, mean_entropy, require_batch_norms, use_batch_statistics


@dataclass(frozen=True)
class EntropySteps(Part):
    """gamma, beta <- Adam step on the mean entropy, with the batch's own statistics; carried from batch to batch."""

    name = "entropy-steps"
    about = About(
        paper="Wang et al., Tent: Fully Test-Time Adaptation by Entropy Minimization, ICLR 2021",
        formula="gamma, beta <- Adam on mean_x H(softmax f(x)), batch by batch",
    )

    needs = frozenset({"class-predictions"})

    adapt_lr: float = setting(1e-3, "of Adam, at test time", low=0, open_low=True)
    adapt_batch: int = setting(64, "images a step when adapting", low=2)

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_batch_norms(self.name, layout)
        require_batch_norms(self.name, layout, affine=True)

    def adapt(self, silo: Silo, batches: Batches) -> Iterator[Tensor]:
        with silo.model.training_only(is_batch_norm) as leaves:
            use_batch_statistics(silo.model.module)
            optimizer = Adam(leaves, lr=self.adapt_lr, fused=True)
            for inputs in batches(self.adapt_batch):
                prediction = silo.forward(inputs).prediction
                silo.model.backward(mean_entropy(prediction))
                optimizer.step()
                yield prediction.detach()
