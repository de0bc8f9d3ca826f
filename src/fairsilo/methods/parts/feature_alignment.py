"""Feature alignment, the DA half of BGP (FFT-GP) and GRACE's client. Differs from FedAvg by a term that keeps the local
features distributed as the received model's, on the same batch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import Sends
from fairsilo.core.messages import Message
from fairsilo.core.output import Output, aligned
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vectors import AUXILIARY, Layout
from fairsilo.errors import FairsiloError
from fairsilo.fields import around, setting
from fairsilo.methods import alignment
from fairsilo.methods.heads import features_width
from fairsilo.methods.requirements import require_two_a_batch
from fairsilo.models.networks import binary_classifier

NONE = "in rounds without alignment, and where the task's gradient is zero"
SHARE = "the length of the alignment's gradient as a share of the task's (one number)"


@dataclass(frozen=True)
class FeatureAlignment(Part):
    """CE + align_weight Align(h(x; received), h(x; w)); the received model is fixed, in evaluation mode."""

    name = "feature-alignment"
    about = About(
        paper="Zhang et al., Fairness-guided federated training for generalization and personalization, FITEE 2024",
        formula="L(w; x) + lambda Align(h(x; phi_received), h(x; phi))",
        sends=(Sends(alignment.RATIO, SHARE, optional=NONE),),
    )
    needs = frozenset({"features", "trained-alignment"})

    align: str = setting("coral", "how features are compared", choices=(*alignment.ALIGNMENTS, "adversarial"))
    align_weight: float = setting(1.0, "weight of the term (lambda)", low=0, search=around(10))
    align_warmup: int = setting(0, "rounds before the term counts", low=0)
    adversary_width: int = setting(64, "hidden units of the adversary (align=adversarial); 0: it is linear", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.align != "adversarial":
            self.refuse_idle(f"align={self.align}", "adversary_width")

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        require_two_a_batch(self.name, training, "compares the features of a batch")
        if self.align_warmup >= training.rounds:
            raise FairsiloError(
                f"{self.name} waits for {self.align_warmup} rounds, and train.rounds is {training.rounds}: it would do "
                "nothing"
            )

    def modules(self, network: nn.Module) -> dict[str, nn.Module]:
        """The adversary is a small classifier of global against local features, private to its silo."""
        if self.align != "adversarial":
            return {}
        return {"adversary": binary_classifier(features_width(self.name, network), self.adversary_width)}

    def begin(self, silo: Silo) -> None:
        alignment.begin_ratio(silo)

    def phase(self, silo: Silo, step: int) -> Hashable:
        return alignment.ratio_is_due(silo, step), silo.round <= self.align_warmup

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        local = aligned(output)
        # a covariance needs two samples
        if len(local) < 2 or not self.align_weight or silo.round <= self.align_warmup:
            return loss
        fixed = aligned(silo.reference(batch.inputs, silo.start))
        if self.align == "adversarial":
            adversary = silo.model.module.get_submodule(f"{AUXILIARY}.{self.name}.adversary")
            term = self.align_weight * alignment.adversarial(local, fixed, adversary)
        else:
            term = self.align_weight * alignment.ALIGNMENTS[self.align](local, fixed)
        alignment.find_ratio(silo, term, loss)
        return loss + term

    def finish(self, silo: Silo, update: Message) -> None:
        alignment.report_ratio(silo, update)
