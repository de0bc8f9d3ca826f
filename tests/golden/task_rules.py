"""Golden cases of the tasks' losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fairsilo.tasks.classify import Classify
from fairsilo.tasks.options import Options
from fairsilo.tasks.segment import Segment


def weighted_focal(case: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    given = case["inputs"]
    logits, labels = torch.tensor(given["logits"], dtype=torch.float64), torch.tensor(given["labels"])
    options = Options(loss="focal", weights=tuple(given["alpha"]), gamma=given["gamma"])
    task = Classify(logits.shape[1], options=options)
    yield "loss", task.loss(logits, labels), case["outputs"]["loss"]
    yield "measured", task.measure(task.tally(logits, labels)).loss, case["outputs"]["loss"]


def prostate_joint(case: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    given, expected = case["inputs"], case["outputs"]
    logits = torch.tensor(given["logits"], dtype=torch.float64)
    masks = torch.tensor(given["mask"] if "mask" in given else given["masks"]).long()
    masks = masks.view(len(logits), *logits.shape[2:])
    task, dice = (Segment(logits.shape[1], options=Options(loss=loss)) for loss in ("", "dice"))
    yield "joint", task.loss(logits, masks), expected["joint"]
    yield "dice", dice.loss(logits, masks), expected["dice_loss"]
    found = task.measure(task.tally(logits, masks))
    yield "measured", found.loss, expected["joint"]
    yield "hard", found.metrics["grace-dice"], expected["hard_dice_mean_over_classes"]


RULES = {rule.__name__: rule for rule in (weighted_focal, prostate_joint)}
