"""FedSAM (Qu et al., ICML 2022; Caldarola et al., ECCV 2022), also HarmoFL's weight perturbation. Differs from FedAvg
by the gradient: taken at the worst point of a small ball, applied where the model is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.core.local import descend, gradient
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Batch, Silo
from fairsilo.fields import around, setting


@dataclass(frozen=True)
class SharpnessAware(Part):
    """e = rho g/(||g|| + 1e-12); w <- w - eta grad L(w + e)."""

    name = "sharpness-aware"
    about = About(
        paper="Caldarola et al., Improving Generalization in Federated Learning by Seeking Flat Minima, ECCV 2022",
        formula="e = rho g / (||g|| + 1e-12);  w <- w - eta grad L(w + e)",
    )

    rho: float = setting(0.05, "radius of the ball", low=0, search=around(10))

    def train(self, silo: Silo) -> Tensor:
        return descend(silo, self._sharp_gradient)

    def _sharp_gradient(self, silo: Silo, batch: Batch) -> Tensor:
        """Two passes: the first finds the direction and is not corrected, the second gives the gradient."""
        loss = gradient(silo, batch, corrections=False)
        with torch.no_grad():
            slope = silo.model.gradients
            step = slope * (self.rho / (torch.linalg.vector_norm(slope) + 1e-12))
            silo.parameters.add_(step)
        with silo.model.keeping_statistics():
            gradient(silo, batch)
        with torch.no_grad():
            silo.parameters.sub_(step)
        return loss
