"""TensorBoard: event files on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairsilo.tracking.content import Facts
from fairsilo.tracking.tracker import Tracker


class TensorBoard(Tracker):
    """Writes event files for `tensorboard --logdir`.

    Args:
        destination: A folder, in which each run gets one of its own; by default `tensorboard/` in the run folder.
        anonymous: Call silos and domains by numbers.
    """

    name = "tensorboard"
    module = "tensorboard"

    def open(self, facts: Facts, run: str, told: int) -> str:
        from torch.utils.tensorboard import SummaryWriter

        place = self._place(facts, run)
        wait_for_the_next_second(place)
        # what a kill left there of rounds that are told again is not shown
        self._writer: Any = SummaryWriter(str(place), purge_step=told + 1 if run else None)
        self._rounds_of_run = facts.rounds
        if not run:
            known = {**facts.settings, **facts.about}
            rows = (f"| {key} | {str(value).replace('|', '&#124;')} |" for key, value in known.items())
            self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *rows]), 0)
        return str(place)

    def log(self, number: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, number)
        self._writer.flush()

    def answer(self, values: Mapping[str, float]) -> None:
        self.log(self._rounds_of_run, values)

    def close(self, ended: str) -> None:
        self._writer.add_text("ended", ended, self._rounds_of_run)
        self._writer.close()

    def _place(self, facts: Facts, run: str) -> Path:
        if not self.destination:
            return facts.folder / "tensorboard"  # also where the run folder was moved since
        if run:
            return Path(run)
        place = Path(self.destination).resolve().joinpath(*facts.place)
        return place.with_name(f"{place.name}-{facts.id}") if place.exists() else place


def wait_for_the_next_second(place: Path) -> None:
    """Event files are read in the order of their names, which begin with the second they were made in: what goes on at
    once must not come before what it goes on from."""
    while any(place.glob(f"events.out.tfevents.{int(time.time())}.*")):
        time.sleep(0.02)
