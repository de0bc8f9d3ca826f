"""Weights & Biases: its cloud, or a server of one's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fairsilo.tracking.content import Facts
from fairsilo.tracking.tracker import PATIENCE, Tracker

PROJECT = "fairsilo"
EXIT = {"finished": 0, "interrupted": 130, "stopped": 1}
# By itself W&B would also send the machine's name and load, the terminal's output, the program, the state of its git
# repository and the list of installed packages.
ONLY_NUMBERS = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "host": "",
    "save_code": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


class WandB(Tracker):
    """Tells Weights & Biases; it needs `wandb login`, or `WANDB_MODE=offline`, which writes files only.

    Args:
        destination: The project, or `entity/project`; by default `fairsilo`.
        anonymous: Call silos and domains by numbers.
    """

    name = "wandb"
    module = "wandb"

    def open(self, facts: Facts, run: str, told: int) -> str:
        # the terminal belongs to the run: without this, W&B would ask for a key there, and wait for an answer
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        entity, _, project = self.destination.rpartition("/")
        self._run: Any = wandb.init(
            entity=entity or None,
            project=project or PROJECT,
            group=facts.group,
            name=facts.name,
            id=run or facts.id,
            resume="allow",
            config={**facts.settings, **facts.about},
            dir=str(facts.folder),
            reinit="create_new",
            settings=wandb.Settings(
                **ONLY_NUMBERS, init_timeout=PATIENCE["finished"] / 2, finish_timeout=PATIENCE["finished"] / 2
            ),
        )
        return run or facts.id

    def log(self, number: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=number)

    def answer(self, values: Mapping[str, float]) -> None:
        self._run.summary.update(dict(values))

    def close(self, ended: str) -> None:
        self._run.summary["ended"] = ended
        self._run.finish(exit_code=EXIT[ended])
