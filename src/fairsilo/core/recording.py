"""Steps that are recorded once and then replayed: for other batches, other silos, later rounds.

A step is a function of tensors. Recorded, it reads and writes them at the addresses that it had then: so a batch is
copied into buffers of the recording, and what else a step reads stays at one address (`FlatModel.hold`). What Python
does in a step is done when it is recorded, and no more: a part whose step looks at the value of a tensor, or reads data
of its own, says so (`made-steps`), and its steps are simply made. The law of recordings tries all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from fairsilo.core.silo import Batch, Planned

Given = Batch | Planned  # what a step takes: one of them, or several


KINDS = 128  # that are kept


class Recorded(NamedTuple):
    """A step that can be made again."""

    result: Tensor  # overwritten each time
    again: Callable[[], object]
    keeps: object = None  # what must stay alive, since the step reads it


class _Kind:
    """Steps that do the same on batches of the same shapes."""

    def __init__(self) -> None:
        self.made = 0
        self.buffers: list[Tensor] = []
        self.recorded: Recorded | None = None


class Recordings:
    """Makes steps; the second of a kind is recorded, later ones are replayed. `record` is a device's own way."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self.captured = 0  # how many were recorded
        self.failed: Callable[[Exception], object] = str  # told of what could not be recorded

    def record(self, step: Callable[[], Tensor]) -> Recorded | None:
        """Make a step and keep how; None where that cannot be done, and then it was not made."""
        raise NotImplementedError

    def clear(self) -> None:
        self._kinds.clear()

    def forget(self) -> None:
        """Record anew what was recorded; what could not be is not tried again."""
        for known in list(self._kinds.values()):  # other threads may add to them
            if known.recorded is not None:
                known.made, known.recorded = 1, None

    def taken(self, kind: tuple[object, ...], given: Any, step: Callable[[Any], Tensor]) -> Tensor:
        """A step on a batch, or on several; returns its result, which the next step of the kind overwrites.

        Args:
            kind: Steps of one kind do the same with batches of the same shapes.
            given: What it is made on.
            step: Makes it; not called where the step is replayed.
        """
        tensors = list(_tensors(given))
        key = (*kind, *_lasts(given), *((tensor.shape, tensor.dtype) for tensor in tensors))
        if len(self._kinds) > KINDS:  # of steps whose kind changes with every round
            self.clear()
        known = self._kinds.setdefault(key, _Kind())
        known.made += 1
        if known.made == 1:  # what is set up at its first use is there when the second is recorded
            return step(given)
        if known.made == 2:
            own = _copied(given)
            known.buffers = list(_tensors(own))
            known.recorded = first = self.record(lambda: step(own))
            if first is None:
                return step(given)
            self.captured += 1
            return first.result
        recorded = known.recorded  # another thread may have it forgotten meanwhile
        if recorded is None:
            return step(given)
        for mine, theirs in zip(known.buffers, tensors, strict=True):
            mine.copy_(theirs)
        recorded.again()
        return recorded.result


def _each(given: Given | tuple[Given, ...]) -> tuple[Given, ...]:
    return given if isinstance(given, tuple) else (given,)


def _lasts(given: Given | tuple[Given, ...]) -> list[bool]:
    return [one.last for one in _each(given)]


def _tensors(given: Given | tuple[Given, ...]) -> Iterator[Tensor]:
    for one in _each(given):
        yield from one.tensors()


def _copied(given: Given | tuple[Given, ...]) -> Given | tuple[Given, ...]:
    found = tuple(one.with_tensors([tensor.clone() for tensor in one.tensors()]) for one in _each(given))
    return found if isinstance(given, tuple) else found[0]
