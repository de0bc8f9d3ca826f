"""What a user may choose about a task's loss, checked against what the task has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairsilo.errors import FairsiloError, nearest


@dataclass(frozen=True)
class Options:
    """How a task's loss is computed.

    Attributes:
        loss: Its name; empty for the task's own choice.
        weights: Of the classes, in their order; empty: all count alike.
        gamma: Of the focal loss.
        smoothing: Of labels: the share of the target that is spread over all classes.
        offset: Of numbers to predict: networks see (y - offset) / scale.
        scale: See `offset`.
    """

    loss: str = ""
    weights: tuple[float, ...] = ()
    gamma: float = 2.0
    smoothing: float = 0.0
    offset: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))

    def chosen(self, task: str, losses: Sequence[str], **uses: tuple[str, ...]) -> str:
        """The name of the loss, the first of the task's unless one is chosen.

        Args:
            task: The task's name, for sentences.
            losses: Those that it has.
            **uses: Setting -> the losses that it has an effect on.

        Raises:
            FairsiloError: The task has no such loss, or a setting is given that has no effect on it.
        """
        found = self.loss or losses[0]
        if found not in losses:
            raise FairsiloError(
                f"task.loss is {found!r}, which the task {task!r} does not have{nearest(found, losses)}"
            )
        usual = Options()
        for name, value in self.changed().items():
            if name != "loss" and value != getattr(usual, name) and found not in uses.get(name, ()):
                setting = "class_weights" if name == "weights" else name
                raise FairsiloError(
                    f"task.{setting} has no effect on the loss {found!r} of the task {task!r}; leave it out"
                )
        return found

    def changed(self) -> dict[str, Any]:
        """What differs from the defaults: enough to make the same options again."""
        usual = Options.__dataclass_fields__
        return {name: getattr(self, name) for name in usual if getattr(self, name) != usual[name].default}
