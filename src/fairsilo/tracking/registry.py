"""Trackers by the texts of `--track`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from fairsilo.errors import FairsiloError, nearest
from fairsilo.tracking.mlflow import MLflow
from fairsilo.tracking.tensorboard import TensorBoard
from fairsilo.tracking.tracker import Tracker
from fairsilo.tracking.wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {one.name: one for one in (TensorBoard, MLflow, WandB)}
# A variable of the environment, for processes that another program starts in between: unlike a file or a command line,
# others on the machine do not see it, and a destination may have a password.
HANDED_ON = "FAIRSILO_TRACK"


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


def handed_on(texts: Sequence[str], anonymous: bool) -> dict[str, str]:
    """What makes `handed_over` of a process that is started with this environment the trackers of these texts.

    Raises:
        FairsiloError: As `trackers`.
    """
    there = [_anywhere(text) for text in texts]
    trackers(there, anonymous)
    return {HANDED_ON: json.dumps({"texts": there, "anonymous": anonymous})}


def _anywhere(text: str) -> str:
    """As it is meant here, for a process that works in another folder."""
    name, _, destination = text.partition(":")
    return f"{name}:{Path(destination).resolve()}" if name == TensorBoard.name and destination else text


def handed_over() -> list[Tracker]:
    """The trackers that whoever started this process asked for.

    Raises:
        FairsiloError: As `trackers`.
    """
    asked = json.loads(os.environ.get(HANDED_ON) or "{}")
    return trackers(asked.get("texts", ()), bool(asked.get("anonymous")))
