"""Trackers by the texts of `--track`."""

from __future__ import annotations

from collections.abc import Sequence

from fairsilo.errors import FairsiloError, nearest
from fairsilo.tracking.mlflow import MLflow
from fairsilo.tracking.tensorboard import TensorBoard
from fairsilo.tracking.tracker import Tracker
from fairsilo.tracking.wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {one.name: one for one in (TensorBoard, MLflow, WandB)}


def trackers(texts: Sequence[str], anonymous: bool = False) -> list[Tracker]:
    """One for each text `name` or `name:destination`.

    Raises:
        FairsiloError: There is no such tracker, its package is not installed, or a text is given twice.
    """
    found = []
    for text in texts:
        name, _, destination = text.partition(":")
        if name not in TRACKERS:
            raise FairsiloError(f"--track: there is no tracker {name!r}{nearest(name, TRACKERS)}")
        found.append(TRACKERS[name](destination, anonymous=anonymous))
    labels = [one.label for one in found]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise FairsiloError(f"--track {twice} is given twice")
    return found
