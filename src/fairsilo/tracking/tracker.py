"""What all trackers share: which events are told to them and when, and how a resumed run finds its place there."""

from __future__ import annotations

import importlib.util
import re
import threading
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from fairsilo.engine.events import Event, Listener
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import RunFolder
from fairsilo.tracking.content import Facts, Rounds, answers_of, facts_of
from fairsilo.tracking.worker import Worker

TRACKING = "tracking.json"  # in a run folder: by tracker, the run's id there and the last round that it was told
PATIENCE = {"finished": 30.0, "stopped": 30.0, "interrupted": 10.0}  # seconds that a run waits for a tracker at its end
_writing = threading.Lock()  # trackers of one run share its file, and each has a thread


class Tracker(Listener):
    """Base class: follows runs, one after the other, and tells a tracker of each as a run of its own.

    A round is told when the checkpoint that holds it is on the disk, so one round late, or as late as
    `engine.checkpoint_every` makes it. What a tracker raises reaches the run as an exception of this listener, which is
    then dropped.

    Args:
        destination: Where to, in the tracker's own terms; empty: its default.
        anonymous: Call silos and domains by numbers.

    Raises:
        FairsiloError: The tracker's package is not installed.
    """

    name: ClassVar[str]  # of the tracker, and of the extra that installs it
    module: ClassVar[str]  # what it needs
    travels = True

    def __init__(self, destination: str = "", *, anonymous: bool = False) -> None:
        found = importlib.util.find_spec(self.module)
        if found is None or found.origin is None:  # without an origin it is a folder of that name, such as wandb's own
            raise FairsiloError(
                f'tracking with {self.name} needs the package {self.module}: pip install "fairsilo[{self.name}]"'
            )
        self.destination, self.anonymous = destination, anonymous
        shown = re.sub(r"//.*@", "//", destination)  # without the password, which may have a / or an @ itself
        self.label = f"{self.name}:{shown}" if shown else self.name
        self._worker: Worker | None = None

    # ----------------------------------------------------------------------------------------------------- the run
    def on_method(self, event: Event) -> None:
        self._facts = facts = facts_of(event, self.anonymous)
        before = _read(facts.folder).get(self.label, {})
        self._told, run = int(before.get("round", 0)), str(before.get("run", ""))
        self._rounds = Rounds(facts)
        self._worker = Worker(f"tracking by {self.name}")
        self._worker.do(lambda: self._begin(facts, run))

    def on_start(self, event: Event) -> None:
        self._tell(event.round)  # rounds that were complete when the run was cut off, or when nobody tracked it

    def on_saved(self, event: Event) -> None:
        self._tell(event.round)

    def on_over(self, event: Event) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if event.text == "finished":
            # a search tells with the end of a trial what it judged it by
            answers = answers_of(self._facts, event.results.means if event.results else {})
            worker.do(lambda: self.answer(answers))
        worker.do(lambda: self.close(event.text))
        worker.end(PATIENCE[event.text])

    def _begin(self, facts: Facts, run: str) -> None:
        self._keep({"run": self.open(facts, run, self._told), "round": self._told})

    def _tell(self, last: int) -> None:
        if self._worker is not None:
            for number, values in self._rounds.until(last):
                if number > self._told:  # by an earlier attempt
                    self._worker.do(partial(self._send, number, values))

    def _send(self, number: int, values: Mapping[str, float]) -> None:
        self.log(number, values)
        self._keep({"round": number})

    def _keep(self, state: Mapping[str, Any]) -> None:
        with _writing:
            content = _read(self._facts.folder)
            content[self.label] = {**content.get(self.label, {}), **state}
            RunFolder(self._facts.folder).write_json(TRACKING, content)

    # ------------------------------------------------------------------------------- what each tracker does its own way
    @abstractmethod
    def open(self, facts: Facts, run: str, told: int) -> str:
        """Begin a run, or go on with the one of this id, which has been told so many rounds; returns the id."""

    @abstractmethod
    def log(self, number: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a round."""

    @abstractmethod
    def answer(self, values: Mapping[str, float]) -> None:
        """Take what the run came to."""

    @abstractmethod
    def close(self, ended: str) -> None:
        """End the run: `finished`, `interrupted` or `stopped`."""


def _read(folder: Path) -> dict[str, Any]:
    return RunFolder(folder).read_json(TRACKING) if (folder / TRACKING).exists() else {}
