"""Which runs of a comparison count: those that are finished and whole. Of the others, why not and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.inventory import DAMAGED, FINISHED, RUNNING, kept_or_damaged

Cell = Mapping[str, Any]  # of a comparison, as `comparison.json` has it
AGAIN = "give the command that made the comparison again"


def that_count(folder: Path, cells: Sequence[Cell]) -> tuple[list[Cell], list[dict[str, Any]]]:
    """The runs that count, and those that are left out: method, held_out, seed, why, and a cure.

    A comparison without a single folder of its runs was sent by itself, with all results in it: all of them count.
    """
    places = [folder / cell["folder"] if "folder" in cell else None for cell in cells]  # none in earlier versions
    alone = not any(place.is_dir() for place in places if place)
    count, out = [], []
    for cell, place in zip(cells, places, strict=True):
        why, cure = ("", "") if place is None or alone else wanting(place)
        if why:
            out.append({key: cell[key] for key in ("method", "held_out", "seed")} | {"why": why, "cure": cure})
        else:
            count.append(cell)
    return count, out


def wanting(run: Path) -> tuple[str, str]:
    """Why a run does not count, and what helps; two empty texts where it does."""
    if not run.is_dir():
        return f"{run} is gone", AGAIN
    found = kept_or_damaged(run, sized=False)
    anew = f"delete {run} and {AGAIN}, which makes that run anew"
    if found.state == DAMAGED:
        return found.why, anew
    if found.state == RUNNING:
        return f"{run} is running", "wait until it ends"
    if found.state != FINISHED:
        return f"{run} is not finished ({found.state})", f"{AGAIN}, which goes on with that run"
    try:
        check_rows(run)
    except FairsiloError as problem:
        return str(problem), anew
    return "", ""


def check_rows(run: Path) -> None:
    """Raises FairsiloError where a finished run lost rows that its results were read from: its page is made of them."""
    path = run / "metrics.jsonl"
    rows = RunFolder(run).rows("metrics")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if len(rows) < len(lines):
        raise FairsiloError(f"{path} is damaged: its line {len(rows) + 1} is no row")
    results = RunFolder(run).read_json("summary.json") if (run / "summary.json").exists() else {}
    lost = sorted(set(results.get("rounds", ())) - {row.get("round") for row in rows if isinstance(row, dict)})
    if lost:
        raise FairsiloError(f"{path} is damaged: it has no row of round {lost[0]}, which results were read from")
