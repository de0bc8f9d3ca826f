"""Training steps that are recorded once and then replayed: for other batches, other silos, later rounds.

A step is a function of tensors. Recorded, it reads and writes them at the addresses that it had then: so a batch is
copied into buffers of the recording, and what else a step reads stays at one address (`FlatModel.hold`). What Python
does in a step is done once, when it is recorded: a part whose step looks at the value of a tensor, counts, or reads
data of its own cannot be recorded. The law of recordings knows which do; no engine records yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from fairsilo.core.silo import Batch

Batches = Batch | tuple[Batch, ...]  # what one step takes


class Recorded(NamedTuple):
    """A step that was made once: its loss, and what makes it again."""

    loss: Tensor
    again: Callable[[], object]


class Recordings:
    """Makes steps, from the second of a kind on by replaying the first; `record` is a device's own way."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[Batches, Recorded]] = {}

    def record(self, step: Callable[[], Tensor]) -> Recorded:
        """Make a step, and keep how."""
        raise NotImplementedError

    def taken(self, kind: tuple[object, ...], batches: Batches, step: Callable[[Batches], Tensor]) -> Tensor:
        """A step on batches; returns its loss, which the next step of the kind overwrites.

        Args:
            kind: Steps of one kind do the same with batches of the same shapes.
            batches: What it is made on.
            step: Makes it; called for the first of a kind only.
        """
        key = (*kind, *_shapes(batches))
        if key not in self._known:
            own = _copied(batches)
            self._known[key] = own, self.record(lambda: step(own))
            return self._known[key][1].loss
        own, recorded = self._known[key]
        for mine, given in zip(_tensors(own), _tensors(batches), strict=True):
            mine.copy_(given)
        recorded.again()
        return recorded.loss


def _each(batches: Batches) -> tuple[Batch, ...]:
    return batches if isinstance(batches, tuple) else (batches,)


def _tensors(batches: Batches) -> list[Tensor]:
    return [
        tensor
        for one in _each(batches)
        for tensor in (one.inputs, one.targets, one.indices, *(one.extra[key] for key in sorted(one.extra)))
    ]


def _shapes(batches: Batches) -> list[Any]:
    last = [one.last for one in _each(batches)]
    return [*last, *((tuple(tensor.shape), tensor.dtype) for tensor in _tensors(batches))]


def _copied(batches: Batches) -> Batches:
    found = tuple(
        replace(
            one,
            inputs=one.inputs.clone(),
            targets=one.targets.clone(),
            indices=one.indices.clone(),
            extra={key: tensor.clone() for key, tensor in one.extra.items()},
        )
        for one in _each(batches)
    )
    return found if isinstance(batches, tuple) else found[0]
