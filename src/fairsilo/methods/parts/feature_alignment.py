"""Feature alignment, the DA half of BGP (FFT-GP) and GRACE's client. Differs from FedAvg by a term that keeps the local
features distributed as the received model's, on the same batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from fairsilo.config import setting
from fairsilo.core.output import Output, aligned
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.core.vectors import AUXILIARY
from fairsilo.methods.alignment import ALIGNMENTS, adversarial
from fairsilo.methods.heads import linear_head


@dataclass(frozen=True)
class FeatureAlignment(Part):
    """CE + align_weight Align(h(x; received), h(x; w)); the received model is fixed, in evaluation mode."""

    name = "feature-alignment"
    about = About(
        paper="Zhang et al., Fairness-guided federated training for generalization and personalization, FITEE 2024",
        formula="L(w; x) + lambda Align(h(x; phi_received), h(x; phi))",
    )
    needs = frozenset({"features", "trained-alignment"})

    align: str = setting("coral", "how features are compared", choices=(*ALIGNMENTS, "adversarial"))
    align_weight: float = setting(1.0, "weight of the term (lambda)", low=0)

    def modules(self, network: nn.Module) -> dict[str, nn.Module]:
        """An adversary's is a small classifier of global against local features, private to its silo."""
        if self.align != "adversarial":
            return {}
        width = linear_head(self.name, network).in_features
        return {"adversary": nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))}

    def loss(self, silo: Silo, loss: Tensor, output: Output, batch: Batch) -> Tensor:
        local = aligned(output)
        if len(local) < 2 or not self.align_weight:  # a covariance needs two samples
            return loss
        fixed = aligned(silo.reference(batch.inputs, silo.start))
        if self.align == "adversarial":
            adversary = silo.model.module.get_submodule(f"{AUXILIARY}.{self.name}.adversary")
            return loss + self.align_weight * adversarial(local, fixed, adversary)
        return loss + self.align_weight * ALIGNMENTS[self.align](local, fixed)
