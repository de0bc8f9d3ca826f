"""Local optimisers over a silo's flat parameter vector, or over some of its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.silo import Silo


def make_optimizer(silo: Silo, tensors: Sequence[Tensor] | None = None) -> torch.optim.Optimizer:
    """A new local optimiser over the flat parameter vector, or over some tensors."""
    return _OPTIMIZERS[silo.training.optimizer]([silo.parameters] if tensors is None else tensors, silo.training)


@contextmanager
def kept_optimizer(silo: Silo) -> Iterator[torch.optim.Optimizer]:
    """The silo's own local optimiser; its momenta survive from round to round where the settings ask for it."""
    optimizer = make_optimizer(silo)
    kept = silo.memory.get("silo", {}).get("optimizer")
    if silo.training.keep_optimizer_state and kept:
        optimizer.state[silo.parameters] = {key: value.clone() for key, value in kept.items()}
    yield optimizer
    if silo.training.keep_optimizer_state:
        state = {k: v.clone() for k, v in optimizer.state[silo.parameters].items() if isinstance(v, Tensor)}
        silo.memory.setdefault("silo", {})["optimizer"] = state


@torch.no_grad()
def virtual_step(optimizer: torch.optim.Optimizer, lr: float | None = None) -> None:
    """The step an optimiser would take, at another learning rate where one is given; its state stays as it was."""
    state = {
        tensor: {key: value.clone() if isinstance(value, Tensor) else value for key, value in kept.items()}
        for tensor, kept in optimizer.state.items()
    }
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = _rate(group, lr)
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    optimizer.state.clear()
    optimizer.state.update(state)


@torch.no_grad()
def plain_step(optimizer: torch.optim.Optimizer, lr: float | None = None) -> None:
    """A step of SGD without momentum or decay over an optimiser's tensors, at its learning rate or another."""
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            tensor.sub_(tensor.grad, alpha=_rate(group, lr))


def _rate(group: dict[str, Any], lr: float | None) -> float:
    return float(group["lr"] if lr is None else lr)


def _sgd(tensors: Sequence[Tensor], training: TrainSettings) -> torch.optim.Optimizer:
    momentum, decay = training.momentum, training.weight_decay
    return torch.optim.SGD(tensors, lr=training.lr, momentum=momentum, weight_decay=decay, fused=True)


def _adam(tensors: Sequence[Tensor], training: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.Adam(tensors, **_moments(training), fused=True)


def _adamw(tensors: Sequence[Tensor], training: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(tensors, **_moments(training), fused=True)


def _moments(training: TrainSettings) -> dict[str, Any]:
    betas = (0.9, training.adam_beta2)
    return {"lr": training.lr, "betas": betas, "eps": training.adam_eps, "weight_decay": training.weight_decay}


_OPTIMIZERS = {"sgd": _sgd, "adam": _adam, "adamw": _adamw}
