"""Folders in which a command tries things out by runs: pilots of `fairsilo advise`, trials of `fairsilo tune`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import RunFolder, status_of
from fairsilo.runs.inventory import INTERRUPTED, RUNNING, STOPPED, Kept, above
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

    def under_way(self, runs: Sequence[Kept]) -> bool:
        """Whether the command is at work, as far as its folder and its runs tell."""
        return in_use(self.folder) or any(one.state == RUNNING for one in runs)

    def cut_off(self, runs: Sequence[Kept]) -> bool:
        """Whether the command ended before its work did, and goes on where it is given again."""
        return not self.under_way(runs) and (not self.has_page or any(one.state == INTERRUPTED for one in runs))


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


def tryouts_above(folders: Iterable[Path]) -> dict[Path, Tryouts]:
    """Of runs that a command tries something out with: whose they are, by the innermost folder of several."""
    known: dict[Path, Tryouts | None] = {}
    found = {}
    for folder in folders:
        for place in above(folder):
            if place not in known:
                known[place] = tryouts_in(place)
            if (made := known[place]) is not None:
                found[folder] = made
                break
    return found
