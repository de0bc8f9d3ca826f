"""Of a comparison, which may not have come to its end: its runs, and which of them count, those that are finished and
whole. Of the others, why not and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import PLAN, RunFolder
from fairsilo.runs.inventory import DAMAGED, FINISHED, RUNNING, kept_or_damaged

Cell = Mapping[str, Any]  # of a comparison, as `comparison.json` has it
AGAIN = "give the command that made the comparison again"
RESULTS = "comparison.json"  # written when all runs are finished
NEEDED = ("methods", "held_out", "seeds", "cells")


def is_comparison(folder: Path) -> bool:
    """Whether there is something to read; a plan of earlier versions is too little."""
    return (folder / RESULTS).exists() or bool(_plan(folder))


def read_comparison(folder: Path) -> dict[str, Any]:
    """What a comparison's folder holds, with the runs that count as `cells` and the others as `left_out`."""
    content = last_asked_for(folder)
    missing = [key for key in NEEDED if not content.get(key)]
    if missing:
        raise FairsiloError(f"{folder / RESULTS} is damaged: it has no {missing[0]}")
    for cell in content["cells"]:  # it may come from somebody else
        if not (folder / cell.get("folder", ".")).resolve().is_relative_to(folder.resolve()):
            raise FairsiloError(f"{folder / RESULTS} is damaged: a run of it lies outside of its folder")
    cells, content["left_out"] = that_count(folder, content["cells"])
    if not cells:
        first = content["left_out"][0]
        raise FairsiloError(f"{folder} has no run that counts: {first['why']}; {first['cure']}")
    content["cells"] = [cell if "summary" in cell else {**cell, "summary": _summary(folder, cell)} for cell in cells]
    return content


def last_asked_for(folder: Path) -> dict[str, Any]:
    """The results, or the plan where these are of other runs or not there: the last command was cut off."""
    plan = _plan(folder)
    if not (folder / RESULTS).exists():
        return plan or RunFolder(folder).read_json(RESULTS)
    results = RunFolder(folder).read_json(RESULTS)
    return plan if plan and results.get("cells") and _places(plan) != _places(results) else results


def _plan(folder: Path) -> dict[str, Any]:
    """Nothing where there is none that names methods, domains and seeds too."""
    found = RunFolder(folder).read_json(PLAN) if (folder / PLAN).exists() else {}
    return found if all(found.get(key) for key in NEEDED) else {}


def _places(content: Mapping[str, Any]) -> set[str]:
    return {str(cell.get("folder")) for cell in content.get("cells") or ()}


def _summary(folder: Path, cell: Cell) -> Any:
    return RunFolder(folder / cell["folder"]).read_json("summary.json")


def that_count(folder: Path, cells: Sequence[Cell]) -> tuple[list[Cell], list[dict[str, Any]]]:
    """The runs that count, and those that are left out: method, held_out, seed, why, and a cure.

    A comparison without a single folder of its runs was sent by itself, with all results in it: all of them count.
    """
    places = [folder / cell["folder"] if "folder" in cell else None for cell in cells]  # none in earlier versions
    alone = all("summary" in cell for cell in cells) and not any(place.is_dir() for place in places if place)
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
        return f"{run} is not there", AGAIN
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
