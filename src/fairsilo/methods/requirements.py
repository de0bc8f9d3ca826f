"""What several parts ask of the training settings; where it does not hold, they refuse with one sentence."""

from __future__ import annotations

from fairsilo.config import TrainSettings
from fairsilo.errors import FairsiloError


def require_new_optimizer(part: str, training: TrainSettings) -> None:
    if training.keep_optimizer_state:
        raise FairsiloError(f"{part} starts its optimisers anew each round; set train.keep_optimizer_state=false")


def require_two_a_batch(part: str, training: TrainSettings, why: str, instead: str = "") -> None:
    """Refuse batches of one sample for a part that would do nothing with them."""
    if training.batch_size < 2:
        otherwise = f", or {instead}" if instead else ""
        raise FairsiloError(f"{part} {why}, and train.batch_size is 1; give 2 at least{otherwise}")
