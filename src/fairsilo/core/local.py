"""Local training: the objective of a batch, its gradient, and the loops that follow it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from fairsilo.core.measuring import seen
from fairsilo.core.optimizers import kept_optimizer, make_optimizer
from fairsilo.core.output import Output
from fairsilo.core.samples import Pooled
from fairsilo.core.silo import Batch, Planned, Silo
from fairsilo.core.vectors import Slot


def objective(silo: Silo, batch: Batch, terms: bool = True) -> Tensor:
    """The task's loss on a batch, with the terms that parts add (unless `terms` is off)."""
    inputs = seen(silo, batch, terms)
    output = silo.forward(inputs)
    loss = task_loss(silo, output, batch)
    if terms:
        batch = dataclasses.replace(batch, inputs=inputs)  # a term sees what the network saw
        for term in silo.method.hooks("loss"):
            loss = term(silo, loss, output, batch)
    return loss


def task_loss(silo: Silo, output: Output, batch: Batch) -> Tensor:
    """What is trained before any part adds a term: the task's loss, or the criterion in its place."""
    criterion = silo.method.hooks("criterion")
    found: Tensor = criterion[0](silo, output, batch) if criterion else silo.task.loss(output.prediction, batch.targets)
    return found


def gradient(silo: Silo, batch: Batch, terms: bool = True, corrections: bool = True) -> Tensor:
    """Leave the gradient of the objective in silo.model.gradients; returns the detached loss.

    Without `terms` it is the bare task's loss; without `corrections` the gradient stays as the loss gives it.
    """
    loss = objective(silo, batch, terms)
    silo.model.backward(loss)
    if corrections:
        correct(silo)
    return loss.detach()


def correct(silo: Silo) -> None:
    """What parts change in the gradient of a step, then the bound of its norm."""
    for change in silo.method.hooks("gradients"):
        change(silo)
    clip(silo)


def clip(silo: Silo) -> None:
    """Bound the norm of the gradient, where the settings ask for it."""
    if silo.training.clip is not None:
        torch.nn.utils.clip_grad_norm_([silo.parameters], silo.training.clip)


def descend(silo: Silo, step: Callable[[Silo, Batch], Tensor] = gradient) -> Tensor:
    """The local loop: per batch a gradient (of the objective, or as `step` computes it) and an optimiser step.

    Returns the mean loss over the steps.
    """
    with kept_optimizer(silo) as optimizer:
        return follow(silo, optimizer, silo.drawn(), step)


Some = TypeVar("Some", Batch, tuple[Batch, Batch])
Unmade = Planned | tuple[Planned, Planned]


class Steps(Protocol):
    """What takes a step along the gradient: an optimiser, or several in turn."""

    def step(self) -> Any: ...


def follow(
    silo: Silo,
    optimizer: Steps,
    batches: Iterable[Some | Unmade],
    step: Callable[[Silo, Some], Tensor] = gradient,  # type: ignore[assignment]
) -> Tensor:
    """Steps of an optimiser over batches, over pairs of them, or over batches that are made in the step; returns the
    mean loss."""
    silo.model.train()
    total = silo.model.hold("total loss", torch.zeros((), dtype=torch.float64))
    before = silo.steps

    begun: dict[str, object] = {}  # what parts noted before the step that is being made

    def whole(given: Some | Unmade) -> Tensor:
        if begun.get("step") == silo.steps:  # it could not be recorded, and Python's part of it is done already
            silo.scratch = dict(begun["scratch"])  # type: ignore[call-overload]
            silo.model.train()
        begun.update(step=silo.steps, scratch=dict(silo.scratch))
        loss = step(silo, _made(silo, given))
        optimizer.step()
        total.add_(loss)
        return loss

    phases, pooled = silo.method.hooks("phase"), isinstance(silo.data.train.storage, Pooled)
    kind: tuple[object, ...] = (getattr(step, "__qualname__", step), *_addresses(optimizer), *_held(silo))
    for number, given in enumerate(batches):
        now: list[object] = [phase(silo, number) for phase in phases]
        if silo.recorder is None:
            whole(given)
        else:
            # samples at an address of this silo's own are read before the step
            ready = given if pooled else _made(silo, given)
            silo.recorder.taken((kind, *now), ready, whole)
        silo.steps += 1
    return total / max(silo.steps - before, 1)


def _made(silo: Silo, given: Any) -> Any:
    """A batch, or a pair of them, from what is planned; made ones as they are."""
    if isinstance(given, tuple):
        return tuple(_made(silo, one) for one in given)
    return silo.made(given) if isinstance(given, Planned) else given


def _held(silo: Silo) -> list[object]:
    """What parts hold for the steps, as names and shapes: some of it begins in the second round, or grows, and steps
    with it are of another kind."""
    return [(key, _shape(value)) for key, value in silo.scratch.items() if value is not None]


def _shape(value: object) -> object:
    if isinstance(value, Tensor):
        return value.shape
    return tuple(map(_shape, value)) if isinstance(value, tuple | list) else type(value)


def _addresses(optimizer: Steps) -> list[int]:
    """Of what an optimiser changes: steps that change something else are of another kind."""
    groups: list[dict[str, Any]] = getattr(optimizer, "param_groups", [])
    return [tensor.data_ptr() for group in groups for tensor in group["params"]]


def bare(silo: Silo, batch: Batch) -> Tensor:
    """A gradient of the task's loss alone: what other parts add concerns the shared model."""
    loss = gradient(silo, batch, terms=False, corrections=False)
    clip(silo)
    return loss


def pulled(silo: Silo, vector: Tensor, strength: float, towards: Tensor) -> tuple[Tensor, Tensor]:
    """Train another model on the same batches, each gradient with a pull towards fixed parameters.

    Returns the trained vector and its mean loss; the model that the silo held is held again afterwards.
    """

    def step(silo: Silo, batch: Batch) -> Tensor:
        loss = gradient(silo, batch, terms=False, corrections=False)
        silo.model.gradients.add_(silo.parameters.detach() - towards, alpha=strength)
        clip(silo)
        return loss

    held = silo.model.read()
    silo.model.load(vector)
    loss = follow(silo, make_optimizer(silo, name="pulled"), silo.drawn(), step)
    trained = silo.model.read()
    silo.model.load(held)
    return trained, loss


def training_only(
    silo: Silo,
    chosen: Callable[[Slot], bool],
    batches: Iterable[Batch | Planned],
    step: Callable[[Silo, Batch], Tensor] = gradient,
) -> Tensor:
    """Train some tensors, with a new optimiser; the others stay as they are (but for BatchNorm's statistics)."""
    with silo.model.training_only(chosen):
        return follow(silo, make_optimizer(silo, chosen, "some"), batches, step)


def fine_tune(silo: Silo, chosen: Callable[[Slot], bool], epochs: int, steps: int = 0) -> None:
    """Train some tensors of the model held on the task alone; at most so many steps, if any are given."""
    batches = silo.drawn("fine-tune", epochs)
    training_only(silo, chosen, batches[:steps] if steps else batches, bare)
