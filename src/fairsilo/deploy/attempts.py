"""How an attempt at a run ended, as its run folder says: what decides whether there is another one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairsilo.core.disk import replacing
from fairsilo.runs.inventory import ATTEMPT as OUTCOME
from fairsilo.runs.inventory import GIVEN_UP

FINISHED, PAUSED, FEW, FAILED = "finished", "paused", "too few sites", GIVEN_UP
WITHDRAWN = "withdrawn by the administrator"
PAUSE, PRESENT = "pause", "present.json"  # a wish that the attempt end at the next round; which sites it still has


def write_outcome(folder: Path, outcome: str, message: str = "") -> None:
    with replacing(folder / OUTCOME) as beside:
        beside.write_text(json.dumps({"outcome": outcome, "message": message}), encoding="utf-8")


def outcome_of(folder: Path) -> dict[str, Any]:
    """Outcome and message of the last attempt; empty where it was cut off, or none was made."""
    path = folder / OUTCOME
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def forget_outcome(folder: Path) -> None:
    for name in (OUTCOME, PRESENT, PAUSE):
        (folder / name).unlink(missing_ok=True)


def write_present(folder: Path, sites: Iterable[str]) -> None:
    with replacing(folder / PRESENT) as beside:
        beside.write_text(json.dumps(sorted(sites)), encoding="utf-8")


def present_in(folder: Path) -> tuple[list[str], float] | None:
    """The sites that the attempt under way still has, and since when; None where none has begun."""
    path = folder / PRESENT
    if not path.exists():
        return None
    return list(json.loads(path.read_text(encoding="utf-8"))), path.stat().st_mtime
