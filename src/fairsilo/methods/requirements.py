"""What several parts ask of training settings and model; where it does not hold, they refuse with one sentence."""

from __future__ import annotations

from fairsilo.config import TrainSettings
from fairsilo.core.vectors import Layout
from fairsilo.errors import FairsiloError


def require_new_optimizer(part: str, training: TrainSettings) -> None:
    if training.keep_optimizer_state:
        raise FairsiloError(f"{part} starts its optimisers anew each round; set train.keep_optimizer_state=false")


def require_two_a_batch(part: str, training: TrainSettings, why: str, instead: str = "") -> None:
    """Refuse batches of one sample for a part that would do nothing with them."""
    if training.batch_size < 2:
        otherwise = f", or {instead}" if instead else ""
        raise FairsiloError(f"{part} {why}, and train.batch_size is 1; give 2 at least{otherwise}")


def require_all_sent(part: str, layout: Layout, why: str) -> None:
    """Refuse a model of which silos keep tensors to themselves, for a part that trains all of it elsewhere."""
    if layout.wire is not layout:
        raise FairsiloError(f"{part} {why}, and some tensors never leave their silo")


def require_plain_draws(part: str, training: TrainSettings) -> None:
    if training.balance:
        raise FairsiloError(f"{part} draws every sample with the same probability; set train.balance=false")
