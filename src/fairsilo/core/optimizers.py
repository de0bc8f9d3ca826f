"""Local optimisers over a silo's flat parameter vector, or over some of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fairsilo.config import TrainSettings
from fairsilo.core.rates import factor_of
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import PARAMETER, Slot

FACTOR = "factor"  # of the local learning rate, in an optimiser's groups
Groups: TypeAlias = list[dict[str, Any]]


def make_optimizer(silo: Silo, chosen: Callable[[Slot], bool] | None = None) -> torch.optim.Optimizer:
    """A new local optimiser over the flat parameter vector, or over some tensors; with a rate for each group of tensors
    where `train.lr_groups` gives one."""
    training, factors = silo.training, silo.training.lr_factors
    groups: Groups = []
    if factors:
        every = {factor_of(slot, factors) for slot in silo.model.layout.slots if slot.role == PARAMETER}
        for factor in sorted(every):
            leaves = silo.model.leaves(partial(_has, factor, factors, chosen))
            if leaves:
                groups.append({"params": leaves, "lr": factor * training.lr, FACTOR: factor})
    else:
        groups.append({"params": [silo.parameters] if chosen is None else silo.model.leaves(chosen)})
    return _OPTIMIZERS[training.optimizer](groups, training)


def _has(factor: float, factors: dict[str, float], chosen: Callable[[Slot], bool] | None, slot: Slot) -> bool:
    return factor_of(slot, factors) == factor and (chosen is None or chosen(slot))


@contextmanager
def kept_optimizer(silo: Silo) -> Iterator[torch.optim.Optimizer]:
    """The silo's own local optimiser; its momenta survive from round to round where the settings ask for it."""
    optimizer = make_optimizer(silo)
    kept = silo.memory.get("silo", {}).get("optimizer")
    tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    if silo.training.keep_optimizer_state and kept:
        for index, tensor in enumerate(tensors):
            prefix = _prefix(index)
            optimizer.state[tensor] = {
                key.removeprefix(prefix): value.clone()
                for key, value in kept.items()
                if key.startswith(prefix) and (prefix or ":" not in key)
            }
    yield optimizer
    if silo.training.keep_optimizer_state:
        silo.memory.setdefault("silo", {})["optimizer"] = {
            _prefix(index) + key: value.clone()
            for index, tensor in enumerate(tensors)
            for key, value in optimizer.state[tensor].items()
            if isinstance(value, Tensor)
        }


def _prefix(index: int) -> str:
    """Of the names under which the state of an optimiser's tensors is kept; the first, often the only one, has none."""
    return f"{index}:" if index else ""


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
    return float(group["lr"] if lr is None else lr * group.get(FACTOR, 1.0))


def _sgd(groups: Groups, training: TrainSettings) -> torch.optim.Optimizer:
    momentum, decay = training.momentum, training.weight_decay
    return torch.optim.SGD(groups, lr=training.lr, momentum=momentum, weight_decay=decay, fused=True)


def _adam(groups: Groups, training: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, **_moments(training), fused=True)


def _adamw(groups: Groups, training: TrainSettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, **_moments(training), fused=True)


def _moments(training: TrainSettings) -> dict[str, Any]:
    betas = (0.9, training.adam_beta2)
    return {"lr": training.lr, "betas": betas, "eps": training.adam_eps, "weight_decay": training.weight_decay}


_OPTIMIZERS = {"sgd": _sgd, "adam": _adam, "adamw": _adamw}
