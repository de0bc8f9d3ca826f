"""Local optimisers over a silo's flat parameter vector, or over some of its tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
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


class _Plain(torch.optim.Optimizer):
    """The methods of an optimiser as torch wrote them, without what it wraps around them for `torch.compile`: the first
    call of a wrapped one imports the compiler, two to three seconds in every process that trains. Comes before torch's
    optimiser among the bases."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class SGD(_Plain, torch.optim.SGD):
    """torch's; a step keeps no gradients, which the wrapper saw to."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))


class Adam(_Plain, torch.optim.Adam):
    """torch's, in the same way."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class AdamW(_Plain, torch.optim.AdamW):
    """torch's, in the same way."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def make_optimizer(
    silo: Silo,
    chosen: Callable[[Slot], bool] | None = None,
    name: str = "optimizer",
    kept: Mapping[str, Tensor] | None = None,
) -> torch.optim.Optimizer:
    """A new local optimiser over the flat parameter vector, or over some tensors; with a rate for each group of tensors
    where `train.lr_groups` gives one.

    Its learning rates and its state, which begins with zeros or with what was kept, are tensors that the model holds
    under `name`: two optimisers that live at the same time have names of their own.
    """
    training, factors = silo.training, silo.training.lr_factors
    groups: Groups = []
    if factors:
        every = {factor_of(slot, factors) for slot in silo.model.layout.slots if slot.role == PARAMETER}
        for factor in sorted(every):
            leaves = silo.model.leaves(partial(_has, factor, factors, chosen))
            if leaves:
                groups.append({"params": leaves, FACTOR: factor})
    else:
        groups.append({"params": [silo.parameters] if chosen is None else silo.model.leaves(chosen), FACTOR: 1.0})
    # on a CPU a rate in float64 gives every bit that a number gives; a GPU's fused kernels read float32
    precision = torch.float64 if silo.device.type == "cpu" else torch.float32
    for number, group in enumerate(groups):
        group["lr"] = silo.model.hold(f"{name}.lr.{number}", torch.tensor(group[FACTOR] * training.lr, dtype=precision))
    optimizer = _OPTIMIZERS[training.optimizer](groups, training)
    for index, tensor in enumerate(tensors_of(optimizer)):
        for key, zeros in _empty_state(training, tensor).items():
            before = (kept or {}).get(_prefix(index) + key)  # stays as it was: the steps change the state in place
            value = zeros if before is None else before.clone()
            optimizer.state[tensor][key] = silo.model.hold(f"{name}.{index}.{key}", value)
    return optimizer


def tensors_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """What an optimiser changes, in order."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def _empty_state(training: TrainSettings, tensor: Tensor) -> dict[str, Tensor]:
    """The state of an optimiser before its first step; from zeros on, the first step is like any other."""
    if training.optimizer == "sgd":
        return {"momentum_buffer": torch.zeros_like(tensor)} if training.momentum else {}
    counted = torch.zeros((), dtype=torch.float32, device=tensor.device)
    return {"step": counted, "exp_avg": torch.zeros_like(tensor), "exp_avg_sq": torch.zeros_like(tensor)}


def _has(factor: float, factors: dict[str, float], chosen: Callable[[Slot], bool] | None, slot: Slot) -> bool:
    return factor_of(slot, factors) == factor and (chosen is None or chosen(slot))


@contextmanager
def kept_optimizer(silo: Silo) -> Iterator[torch.optim.Optimizer]:
    """The silo's own local optimiser; its momenta survive from round to round where the settings ask for it."""
    kept = silo.memory.get("silo", {}).get("optimizer") if silo.training.keep_optimizer_state else None
    optimizer = make_optimizer(silo, kept=kept)
    yield optimizer
    if silo.training.keep_optimizer_state:
        silo.memory.setdefault("silo", {})["optimizer"] = {
            _prefix(index) + key: value.clone()
            for index, tensor in enumerate(tensors_of(optimizer))
            for key, value in optimizer.state[tensor].items()
        }


def _prefix(index: int) -> str:
    """Of the names under which the state of an optimiser's tensors is kept; the first, often the only one, has none."""
    return f"{index}:" if index else ""


@torch.no_grad()
def virtual_step(optimizer: torch.optim.Optimizer, lr: float | None = None) -> None:
    """The step an optimiser would take, at another learning rate where one is given; its state stays as it was."""
    state = [(value, value.clone()) for kept in optimizer.state.values() for value in kept.values()]
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = _rate(group, lr)
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for value, before in state:
        value.copy_(before)


@torch.no_grad()
def plain_step(optimizer: torch.optim.Optimizer, lr: float | None = None) -> None:
    """A step of SGD without momentum or decay over an optimiser's tensors, at its learning rate or another."""
    for group in optimizer.param_groups:
        for tensor in group["params"]:
            tensor.sub_(tensor.grad * _rate(group, lr))


def _rate(group: dict[str, Any], lr: float | None) -> Tensor:
    rate: Tensor = group["lr"]
    return rate if lr is None else rate.new_full((), lr * group[FACTOR])


def _sgd(groups: Groups, training: TrainSettings) -> torch.optim.Optimizer:
    return SGD(groups, momentum=training.momentum, weight_decay=training.weight_decay, fused=True)


def _adam(groups: Groups, training: TrainSettings) -> torch.optim.Optimizer:
    return Adam(groups, **_moments(groups, training))


def _adamw(groups: Groups, training: TrainSettings) -> torch.optim.Optimizer:
    return AdamW(groups, **_moments(groups, training))


def _moments(groups: Groups, training: TrainSettings) -> dict[str, Any]:
    on_gpu = groups[0]["params"][0].device.type != "cpu"
    betas = (0.9, training.adam_beta2)
    common = {"betas": betas, "eps": training.adam_eps, "weight_decay": training.weight_decay}
    return {**common, "fused": True, "capturable": on_gpu}


_OPTIMIZERS = {"sgd": _sgd, "adam": _adam, "adamw": _adamw}
