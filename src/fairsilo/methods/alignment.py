"""How far apart two sets of features are: the losses that BGP and GRACE align local with global features by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core.messages import SHOWN, Message
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import AUXILIARY
from fairsilo.methods.steps import plain_steps

GAMMAS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def coral(one: Tensor, other: Tensor) -> Tensor:
    """DomainBed's form: mean squared difference of the means plus that of the (unbiased) covariances."""
    means = (one.mean(0) - other.mean(0)).square().mean()
    return means + (_covariance(one) - _covariance(other)).square().mean()


def deep_coral(one: Tensor, other: Tensor) -> Tensor:
    """Sun and Saenko's form: ||C_1 - C_2||_F^2 / (4 d^2), without the means."""
    return (_covariance(one) - _covariance(other)).square().mean() / 4


def mmd(one: Tensor, other: Tensor, gammas: tuple[float, ...] = GAMMAS) -> Tensor:
    """Maximum mean discrepancy with a sum of Gaussian kernels."""
    return _kernel(one, one, gammas) + _kernel(other, other, gammas) - 2 * _kernel(one, other, gammas)


def reversed_gradient(features: Tensor) -> Tensor:
    """Gradient reversal: the features unchanged, and the gradient that flows back changes sign."""
    return 2 * features.detach() - features


def adversarial(one: Tensor, other: Tensor, adversary: Callable[[Tensor], Tensor]) -> Tensor:
    """The cross-entropy of an adversary that tells the two sets apart; the features are trained against it."""
    logits = torch.cat([adversary(reversed_gradient(one)), adversary(other.detach())]).flatten()
    truth = torch.cat([logits.new_ones(len(one)), logits.new_zeros(len(other))])
    return F.binary_cross_entropy_with_logits(logits, truth)


ALIGNMENTS = {"coral": coral, "deep-coral": deep_coral, "mmd": mmd}


def _covariance(features: Tensor) -> Tensor:
    centred = features - features.mean(0, keepdim=True)
    return centred.T @ centred / (len(features) - 1)


def _kernel(one: Tensor, other: Tensor, gammas: tuple[float, ...]) -> Tensor:
    squares = one.square().sum(1)[:, None] + other.square().sum(1)[None] - 2 * one @ other.T
    distances = squares.clamp(min=1e-30)
    return torch.stack([(-gamma * distances).exp() for gamma in gammas]).sum(0).mean()


# How strong the term is depends on the network: each round's record shows the length of its gradient as a share of the
# task's, found once, half-way through local training. No other number depends on it.
RATIO = f"feature-alignment{SHOWN}ratio"
_DUE = "feature-alignment.due"  # whether this step finds it


def begin_ratio(silo: Silo) -> None:
    silo.hold(RATIO, torch.tensor(float("nan"), dtype=torch.float64))


def ratio_is_due(silo: Silo, step: int) -> bool:
    """Whether the step to come is the one half-way, which finds the ratio."""
    silo.scratch[_DUE] = step == plain_steps(silo) // 2
    return bool(silo.scratch[_DUE])


def find_ratio(silo: Silo, term: Tensor, loss: Tensor) -> None:
    """In a step: find the ratio if it is due, in the first pass of a step that has several."""
    if silo.scratch.get(_DUE) and RATIO in silo.scratch:
        silo.scratch[_DUE] = False
        silo.scratch[RATIO].copy_(gradient_ratio(silo, term, loss))


def report_ratio(silo: Silo, update: Message) -> None:
    found = float(silo.scratch.get(RATIO, math.nan))
    if math.isfinite(found):
        update.numbers[RATIO] = found


def gradient_ratio(silo: Silo, term: Tensor, loss: Tensor) -> Tensor:
    """||grad term|| / ||grad loss|| over the network that is trained (an adversary beside it left out), in float64; not
    finite where the loss has no gradient. Gradients that were accumulated stay as they are."""
    named = silo.model.module.named_parameters()
    tensors = [tensor for name, tensor in named if tensor.requires_grad and not name.startswith(f"{AUXILIARY}.")]
    lengths = []
    for one in (term, loss):
        found: Iterable[Tensor | None] = ()
        if one.requires_grad:
            found = torch.autograd.grad(one, tensors, retain_graph=True, allow_unused=True)
        square = torch.zeros((), dtype=torch.float64, device=silo.device)
        for gradient in found:
            if gradient is not None:
                square = square + gradient.double().square().sum()
        lengths.append(square.sqrt())
    return lengths[0] / lengths[1]
