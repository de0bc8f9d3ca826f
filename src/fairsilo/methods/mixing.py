"""Mixup to first order, as FedMix has it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def mixing_terms(
    loss: Tensor, prediction: Tensor, scaled: Tensor, mean_inputs: Tensor, mean_labels: Tensor, lam: float
) -> tuple[Tensor, Tensor, Tensor]:
    """FedMix's three terms from the plain loss; `scaled` is (1-lam) x, the input the prediction was made from."""
    first = (1 - lam) * loss
    (slope,) = torch.autograd.grad(first, scaled, create_graph=True)
    return first, lam * F.cross_entropy(prediction, mean_labels), lam * (slope * mean_inputs).sum()
