"""The page of a comparison as it fills: a grid of methods by held-out domains and seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairsilo.analysis.chance import GUESSED
from fairsilo.analysis.metrics import AT_HOME, HEADLINES, mean
from fairsilo.report.blocks import cells, heads, paragraph, section, table
from fairsilo.report.tables import in_runs
from fairsilo.report.texts import text, usable
from fairsilo.report.units import shown_in
from fairsilo.runs.folder import PLAN, RESULTS
from fairsilo.runs.inventory import DAMAGED, FINISHED, Kept
from fairsilo.watch.pieces import Folders, address, answers, broken, guessing, tag, top, whole, written
from fairsilo.watch.places import Places

MEANINGS = {
    "generalisation": "the global model on the held-out domain",
    "personalisation": "silos' own models at home",
    "fairness": "the spread over silos, in brackets the mean that it is around",
}


def plan_of(folder: Path) -> list[dict[str, Any]]:
    """The runs of a comparison, begun or not: method, held_out, seed, folder, and how many rounds."""
    for name in (PLAN, RESULTS):
        try:
            content = json.loads((folder / name).read_text(encoding="utf-8"))
            return [one for one in content["cells"] if isinstance(one.get("folder"), str)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return []


def _run_of(places: Places, runs: Folders, comparison: str, cell: Mapping[str, Any]) -> tuple[str, Kept | None]:
    """The name of a cell's run, and how far it is; None: it has not begun."""
    name = cell["folder"] if comparison == "." else f"{comparison}/{cell['folder']}"
    return name, places.kept(runs[name]) if name in runs else None


def comparison_row(places: Places, name: str, folder: Path, runs: Folders) -> str:
    """A comparison in the list of all: how many of its runs are finished."""
    plan = plan_of(folder)
    done = sum(1 for cell in plan if (one := _run_of(places, runs, name, cell)[1]) and one.state == FINISHED)
    link = f'<a href="{text(address("comparison", name))}">{broken(places.title(name))}</a>'
    return f'<tr><th scope="row">{link}</th>{cells([str(done), str(len(plan))])}</tr>\n'


def comparison_page(places: Places, name: str, folder: Path, runs: Folders) -> str:
    """Rows are methods, columns held-out domains and seeds: the results of each run, or how far it is."""
    plan = [(cell, *_run_of(places, runs, name, cell)) for cell in plan_of(folder)]
    columns = list(dict.fromkeys((str(cell.get("held_out")), cell.get("seed")) for cell, _, _ in plan))
    finished = [one for _, _, one in plan if one and one.state == FINISHED]
    keys = [key for key in HEADLINES if any(usable(one.numbers.get(key)) for one in finished)]
    by_row: dict[str, dict[tuple[str, Any], tuple[str, Kept | None]]] = {}
    for cell, run, one in plan:
        column = str(cell.get("held_out")), cell.get("seed")
        drawn = _cell(cell, run, one, keys)
        by_row.setdefault(str(cell.get("method")), {})[column] = drawn, one
    rows = []
    for row, own in by_row.items():
        found = _mean_cell([(domain, one) for (domain, _), (_, one) in own.items()], keys) if len(columns) > 1 else ""
        found += "".join(own[column][0] if column in own else "<td></td>" for column in columns)
        rows.append(f'<tr><th scope="row">{text(row)}</th>{found}</tr>\n')
    names = [f"{'no domain' if domain == '-' else domain} held out, seed {seed}" for domain, seed in columns]
    head = heads([*(["mean"] if len(columns) > 1 else []), *names])
    called = places.title(name)
    words = f"{len(finished)} of {len(plan)} runs are finished"
    bar = f'<progress max="{len(plan) or 1}" value="{len(finished)}" aria-label="runs that are finished"></progress>'
    progress = f'<p id="progress">{bar} <span role="status">{text(words)}</span></p>'
    about = f"Of a finished run, from top to bottom: {'; '.join(MEANINGS[key] for key in keys)}. " if keys else ""
    about += "Of others: rounds that are complete."
    if keys and len(columns) > 1:
        about += " The mean is of the runs that are finished; each held-out domain counts once."
    grid = section(
        "grid", "Runs", paragraph(about), guessing(finished), table(f'<tr><th scope="col">method</th>{head}</tr>', rows)
    )
    trail = [("All runs", "/")]
    page = (folder / "comparison.html").exists()
    trail += [("Page of the comparison", address("files", f"{name}/comparison.html"))] if page else []
    return whole(called, top(broken(called), progress) + grid, trail)


def _cell(cell: Mapping[str, Any], name: str, one: Kept | None, keys: Sequence[str]) -> str:
    if one is None:
        return '<td class="number quiet">not begun</td>'
    done, planned = one.rounds
    if one.state == FINISHED:
        found = dict(zip(HEADLINES, answers(one), strict=True))
        lines = [(found[key][0], GUESSED if found[key][1] else "") for key in keys]
        return _stacked(lines or [("–", "")], address("run", name))
    words = "–" if one.state == DAMAGED else f"{done} of {planned or cell.get('rounds', '?')}"
    return _stacked([(words, "")], address("run", name), f"<small>{tag(one.state)}</small>")


def _mean_cell(runs: Sequence[tuple[str, Kept | None]], keys: Sequence[str]) -> str:
    """Of a method's runs that are finished, with their held-out domains."""
    finished = [(domain, one) for domain, one in runs if one and one.state == FINISHED]
    if not finished or not keys:
        return "<td></td>"
    means = {key: _mean([(domain, one.numbers.get(key)) for domain, one in finished]) for key in (*HEADLINES, AT_HOME)}
    with shown_in(finished[0][1].metric, finished[0][1].share, finished[0][1].higher):
        counts = {key: {"at_chance": sum(bool(one.at_chance.get(key)) for _, one in finished)} for key in keys}
        lines = [(written(means, key), in_runs(counts[key], len(finished)).strip()) for key in keys]
    few = f"<small>{len(finished)} of {len(runs)} runs</small>" if len(finished) < len(runs) else ""
    return _stacked(lines, more=few)


def _mean(values: Sequence[tuple[str, float | None]]) -> float | None:
    """Over held-out domains, each of which counts once, as in the tables of `compare`."""
    found: dict[str, list[float]] = {}
    for domain, value in values:
        if value is not None and usable(value):
            found.setdefault(domain, []).append(value)
    return mean(map(mean, found.values())) if found else None


def _stacked(lines: Sequence[tuple[str, str]], where: str = "", more: str = "") -> str:
    """Results beneath each other, with the mark of chance or none; the first that there is leads to the run."""
    drawn = [text(f"{words} {mark}".strip()) for words, mark in lines]
    if where:
        place = next((place for place, (words, _) in enumerate(lines) if words != "–"), 0)
        drawn[place] = f'<a href="{text(where)}">{drawn[place]}</a>'
    first, *rest = drawn
    return f'<td class="number">{first}{"".join(f"<small>{one}</small>" for one in rest)}{more}</td>'
