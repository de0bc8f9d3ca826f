"""Who joined a run under way, and who left it: from the roster, and from who answered in which round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def attendance(roster: Mapping[str, Any], rounds: Rows, rows: Rows) -> list[str]:
    """A sentence on each silo that was not there from the first round to the last.

    Args:
        roster: As in `run.json`.
        rounds: One record per round.
        rows: The evaluation's.
    """
    came = [f"{silo} joined in round {number}." for silo, number in sorted((roster.get("joined") or {}).items())]
    gone = [
        f"{silo} gave no usable answer from round {number} on: {why}."
        for silo, (number, why) in sorted(gone_since(rounds, rows).items())
    ]
    return came + gone


def gone_since(rounds: Rows, rows: Rows) -> dict[str, tuple[int, str]]:
    """Silos that failed until the end -> the first round of that, and why they failed in it."""
    heard: dict[int, set[str]] = {}
    for row in rows:
        heard.setdefault(row.get("made", row["round"]), set()).add(row["silo"])
    found: dict[str, tuple[int, str]] = {}
    for record in rounds:
        answered = heard.get(record["round"], set()) | set(record.get("counted") or ())
        found = {silo: since for silo, since in found.items() if silo not in answered}
        for failure in record.get("failures") or ():
            if failure["silo"] not in answered:
                found.setdefault(failure["silo"], (record["round"], failure["detail"]))
    return found
