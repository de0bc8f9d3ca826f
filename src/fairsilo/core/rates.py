"""Learning rates per group of tensors (`train.lr_groups`): which factor of the local rate each tensor has."""

from __future__ import annotations

from fairsilo.config import TrainSettings
from fairsilo.core.vectors import PARAMETER, Layout, Slot
from fairsilo.errors import FairsiloError


def factor_of(slot: Slot, factors: dict[str, float]) -> float:
    """The factor of a tensor: of the longest key that is part of its name, else of its group, else 1."""
    named = [name for name in factors if name in slot.name]
    return factors[max(named, key=len)] if named else factors.get(slot.group, 1.0)


def check_rates(layout: Layout, training: TrainSettings) -> None:
    """Refuse names that no trained tensor has."""
    trained = [slot for slot in layout.slots if slot.role == PARAMETER]
    for name in training.lr_factors:
        if not any(name in slot.name or name == slot.group for slot in trained):
            listed = ", ".join(slot.name for slot in trained[:40]) + (", ..." if len(trained) > 40 else "")
            groups = ", ".join(sorted({slot.group for slot in trained}))
            raise FairsiloError(
                f"train.lr_groups names {name!r}, which is neither a group nor a piece of a trained tensor's name; "
                f"groups: {groups}; tensors: {listed}"
            )


def require_one_rate(part: str, training: TrainSettings, why: str) -> None:
    """Refuse `train.lr_groups` for a part that assumes one learning rate for all tensors."""
    if training.lr_factors:
        raise FairsiloError(f"{part} {why}, and train.lr_groups gives tensors rates of their own; leave it out")
