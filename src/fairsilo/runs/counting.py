"""Of a comparison, which may not have come to its end: its runs, and which of them count, those that are finished and
whole. Of the others, why not and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairsilo.analysis.metrics import at_chance, headline
from fairsilo.errors import FairsiloError
from fairsilo.runs.folder import PLAN, RESULTS, RunFolder
from fairsilo.runs.inventory import DAMAGED, FINISHED, RUNNING, kept_or_damaged, why_damaged

Cell = Mapping[str, Any]  # of a comparison, as `comparison.json` has it
AGAIN = "give the command that made the comparison again"
NEEDED = {"methods": str, "held_out": str, "seeds": int, "cells": object}  # lists, and what is in them
NEEDED_OF_A_RUN = {"method": str, "held_out": str, "seed": int}


def is_comparison(folder: Path) -> bool:
    """Whether there is something to read; a plan of earlier versions is too little."""
    return (folder / RESULTS).exists() or bool(_plan(folder))


def read_comparison(folder: Path) -> dict[str, Any]:
    """What a comparison's folder holds, with the runs that count as `cells` and the others as `left_out`.

    Its `seeds` and `held_out` are those of runs that count; what was asked for is under `asked`.
    """
    content = last_asked_for(folder)
    for cell in content["cells"]:  # it may come from somebody else
        if not (folder / cell.get("folder", ".")).resolve().is_relative_to(folder.resolve()):
            raise FairsiloError(f"{folder / RESULTS} is damaged: a run of it lies outside of its folder")
    cells, content["left_out"] = that_count(folder, content["cells"])
    if not cells:
        first = content["left_out"][0]
        raise FairsiloError(f"{folder} has no run that counts: {first['why']}; {first['cure']}")
    content["cells"] = [cell if "summary" in cell else {**cell, "summary": _summary(folder, cell)} for cell in cells]
    content["asked"] = {key: content[key] for key in ("held_out", "seeds")}
    for key, of_a_run in (("held_out", "held_out"), ("seeds", "seed")):
        count = {cell[of_a_run] for cell in cells}
        content[key] = [one for one in content[key] if one in count]
    return content


def last_asked_for(folder: Path) -> dict[str, Any]:
    """The results, or the plan where these are of other runs or not there: the last command was cut off."""
    if not (folder / RESULTS).exists():
        return _plan(folder) or RunFolder(folder).read_json(RESULTS)
    results, plan = RunFolder(folder).read_json(RESULTS), {}
    _check(folder / RESULTS, results)
    with suppress(FairsiloError):  # what the results need not be read with
        plan = _plan(folder)
    return plan if plan and _places(plan) != _places(results) else results


def _plan(folder: Path) -> dict[str, Any]:
    """Nothing where there is none that names methods, domains and seeds too."""
    found = RunFolder(folder).read_json(PLAN) if (folder / PLAN).exists() else {}
    if not all(found.get(key) for key in NEEDED):
        return {}
    _check(folder / PLAN, found)
    return found


def _check(path: Path, content: Mapping[str, Any]) -> None:
    """Raises FairsiloError where results or a plan are not what `compare` writes."""
    for key, kind in NEEDED.items():
        listed = content.get(key)
        if not (listed and isinstance(listed, list) and all(isinstance(one, kind) for one in listed)):
            raise FairsiloError(f"{path} is damaged: it has no {key}")
    for number, cell in enumerate(content["cells"], 1):
        lacking = next(_lacking(cell), None)
        if lacking:
            raise FairsiloError(f"{path} is damaged: its run {number} has no {lacking}")


def _lacking(cell: object) -> Iterator[str]:
    """What keeps a run of a comparison from being read; earlier versions name no folder."""
    known = cell if isinstance(cell, dict) else {}
    yield from (key for key, kind in NEEDED_OF_A_RUN.items() if not isinstance(known.get(key), kind))
    if not isinstance(known.get("folder", "" if "summary" in known else None), str):
        yield "folder"
    if "summary" in known and not _are_results(known["summary"]):
        yield "summary"


def _are_results(summary: Any) -> bool:
    """Whether it is a run's summary, which tables and pages are made of."""
    try:
        at_chance(summary)
        numbers = headline(summary).values()
        kinds = {"selection": str, "rounds": list, "ddof": int}
        told = all(isinstance(summary[key], kind) for key, kind in kinds.items())
    except (AttributeError, KeyError, TypeError):
        return False
    return told and all(one is None or isinstance(one, int | float) for one in numbers)


def _places(content: Mapping[str, Any]) -> set[str]:
    return {str(cell.get("folder")) for cell in content["cells"]}


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
        why, cure = ("", "") if place is None or alone else wanting(place, results="summary" not in cell)
        if why:
            out.append({key: cell[key] for key in ("method", "held_out", "seed")} | {"why": why, "cure": cure})
        else:
            count.append(cell)
    return count, out


def wanting(run: Path, *, results: bool = True) -> tuple[str, str]:
    """Why a run does not count, and what helps; two empty texts where it does.

    Args:
        run: Its folder.
        results: Whether its results are needed from there, and not known from elsewhere.
    """
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
        check_finished(run, results=results)
    except Exception as problem:  # noqa: BLE001 - files of anybody's, with anything in them
        return why_damaged(run, problem), anew
    return "", ""


def check_finished(run: Path, *, results: bool = True) -> None:
    """Raises FairsiloError where a finished run has no results, or has lost rows that these were read from: its page is
    made of both.

    Args:
        run: Its folder.
        results: Whether there must be results; those that are there must be whole in any case.
    """
    path, found = run / "metrics.jsonl", {}
    if results or (run / "summary.json").exists():
        found = RunFolder(run).read_json("summary.json")
        if not _are_results(found):
            raise FairsiloError(f"{run / 'summary.json'} is damaged: it holds no results of a run")
    rows = RunFolder(run).rows("metrics")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if len(rows) < len(lines):
        raise FairsiloError(f"{path} is damaged: its line {len(rows) + 1} is no row")
    lost = sorted(set(found.get("rounds", ())) - {row.get("round") for row in rows})
    if lost:
        raise FairsiloError(f"{path} is damaged: it has no row of round {lost[0]}, which results were read from")
