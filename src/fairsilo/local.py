"""Local loops that are more than epochs of one step; a part that needs one calls it from its `train` hook."""

from __future__ import annotations

from torch import Tensor

from fairsilo.optimizers import make_optimizer
from fairsilo.round import clip, gradient
from fairsilo.silo import Silo


def pulled(silo: Silo, vector: Tensor, strength: float, towards: Tensor) -> Tensor:
    """Train another model on the same batches, each gradient with a pull towards fixed parameters.

    Terms and corrections that other parts add concern the shared model and are left out here. Returns the trained
    vector; the model that the silo held is held again afterwards.
    """
    held = silo.model.read()
    silo.model.load(vector)
    optimizer = make_optimizer(silo)
    silo.model.train()
    for batch in silo.batches():
        gradient(silo, batch, terms=False, corrections=False)
        silo.model.gradients.add_(silo.parameters.detach() - towards, alpha=strength)
        clip(silo)
        optimizer.step()
    trained = silo.model.read()
    silo.model.load(held)
    return trained
