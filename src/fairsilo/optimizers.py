"""Local optimisers over a silo's flat parameter vector."""

from __future__ import annotations

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.silo import Silo


def make_optimizer(silo: Silo) -> torch.optim.Optimizer:
    """A new local optimiser over the flat parameter vector."""
    return _OPTIMIZERS[silo.training.optimizer](silo.parameters, silo.training)


def restore_optimizer(silo: Silo, optimizer: torch.optim.Optimizer) -> None:
    kept = silo.memory.get("silo", {}).get("optimizer")
    if kept:
        optimizer.state[silo.parameters] = {key: value.clone() for key, value in kept.items()}


def keep_optimizer(silo: Silo, optimizer: torch.optim.Optimizer) -> None:
    state = {k: v.clone() for k, v in optimizer.state[silo.parameters].items() if isinstance(v, Tensor)}
    silo.memory.setdefault("silo", {})["optimizer"] = state


def _sgd(parameters: Tensor, training: TrainSettings) -> torch.optim.Optimizer:
    momentum, decay = training.momentum, training.weight_decay
    return torch.optim.SGD([parameters], lr=training.lr, momentum=momentum, weight_decay=decay, fused=True)


def _adam(parameters: Tensor, training: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.Adam([parameters], lr=training.lr, weight_decay=training.weight_decay, fused=True)


def _adamw(parameters: Tensor, training: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW([parameters], lr=training.lr, weight_decay=training.weight_decay, fused=True)


_OPTIMIZERS = {"sgd": _sgd, "adam": _adam, "adamw": _adamw}
