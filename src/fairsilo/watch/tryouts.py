"""Folders in which a command tries things out by runs: pilots of `fairsilo advise`, trials of `fairsilo tune`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairsilo.errors import FairsiloError
from fairsilo.report.blocks import listed
from fairsilo.runs.folder import RunFolder, status_of
from fairsilo.runs.inventory import FINISHED, INTERRUPTED, RUNNING, STOPPED, Kept
from fairsilo.runs.lock import in_use

ASKED = "asked.json"  # both commands write it first: what the folder is about
GIVEN_UP = "given up"  # a trial that fell behind the others or came to no end: `tune` does not go on with it


@dataclass(frozen=True)
class Tryouts:
    """One such folder.

    Attributes:
        folder: Where it is.
        command: Whose it is: `advise` or `tune`.
        called: What the command calls one of its runs.
        page: The file that says what came out.
        turn: How many pilots a turn of `advise` has; 0: there are no turns.
        planned: How many trials `tune` makes at most; 0: nobody said.
    """

    folder: Path
    command: str
    called: str
    page: str
    turn: int = 0
    planned: int = 0

    @property
    def has_page(self) -> bool:
        with suppress(OSError):
            return (self.folder / self.page).is_file()
        return False

    @property
    def found(self) -> str:
        """What a link to that page says."""
        return f"What {self.command} found"

    def state_of(self, one: Kept) -> str:
        """A trial that ended without a score has a state of its own: nothing is wrong, and nobody goes on with it."""
        if self.command != "tune" or one.state not in (STOPPED, INTERRUPTED):
            return one.state
        # with its score or its end `tune` deletes a trial's checkpoint; one that was killed has not said how it ended
        with suppress(FairsiloError, OSError):
            ended = status_of(one.folder).get("status") in (STOPPED, INTERRUPTED)
            return GIVEN_UP if ended and not (one.folder / "checkpoint").exists() else one.state
        return one.state

    def so_far(self, runs: Sequence[Kept]) -> str:
        """How many runs there are, and how far the command is."""
        over = self.has_page and not in_use(self.folder) and not any(one.state == RUNNING for one in runs)
        of = "" if over or self.planned < len(runs) else f" of {self.planned}"
        many = f"{len(runs)}{of} {self.called}{'' if len(runs) == 1 and not of else 's'} of {self.command}"
        return many if over else f"{many} so far: {self._turn(runs) if self.turn else self._ended(runs)}"

    def _turn(self, runs: Sequence[Kept]) -> str:
        """Every turn has a seed of its own, the next higher one."""
        seeds = {one.seed for one in runs if isinstance(one.seed, int)}
        last = max(seeds, default=0)
        done = sum(one.state == FINISHED for one in runs if one.seed == last)
        return f"turn {len(seeds)}, {done} of {self.turn} finished"

    def _ended(self, runs: Sequence[Kept]) -> str:
        """By the folders of the methods: what a method is called does not tell its settings."""
        ended = Counter(one.folder.parent.name for one in runs if one.state in (FINISHED, GIVEN_UP))
        return f"{listed(f'{ended[name]} of {name}' for name in sorted(ended)) or 'none'} ended"


def tryouts_in(folder: Path) -> Tryouts | None:
    """What a command tries out in a folder; None where it is none of theirs, or does not say so."""
    try:
        asked = RunFolder(folder).read_json(ASKED)
        if {"settings", "sampler"} <= set(asked):
            return Tryouts(folder, "tune", "trial", "tuning.html", planned=int(asked.get("trials", 0)))
        if {"asked", "domains"} <= set(asked):
            turn = len(asked["asked"]["methods"]) * len(asked["domains"])
            return Tryouts(folder, "advise", "pilot", "advice.html", turn)
    except Exception:  # noqa: BLE001 - a file of anybody's, with anything in it
        return None
    return None
