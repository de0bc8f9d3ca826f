"""The pages of `fairsilo watch`: all runs, one run as it goes, two runs side by side, a comparison as it fills.

They are drawn here and not in the browser, from the same sections as the report; a small script only puts a newer page
in the place of an older one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fairsilo.analysis.metrics import HEADLINES
from fairsilo.report.blocks import Run, cells, document, heads, listed, paragraph, section, share, table
from fairsilo.report.charts import duration, plain, text
from fairsilo.report.page import header, headline, silo_table
from fairsilo.report.said import failures
from fairsilo.report.sections import costs, curves, gap_section, weights
from fairsilo.report.tables import age
from fairsilo.report.units import shown_in
from fairsilo.runs.folder import PLAN
from fairsilo.runs.inventory import DAMAGED, FINISHED, INTERRUPTED, RUNNING, STOPPED, WAITING, Kept
from fairsilo.runs.running import BASELINE
from fairsilo.watch.places import Places, began
from fairsilo.watch.states import SiloState, left, read_now, silo_states

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'"
)
STATES = {FINISHED: "good", STOPPED: "bad", INTERRUPTED: "bad", RUNNING: "going", WAITING: "going", DAMAGED: "bad"}
ASIDE = ("method", "baseline", "engine.", "evaluate.examples", "evaluate.keep_local")  # may differ: how, what is kept
ANSWERS = ("generalises", "personalises", "spread")  # as HEADLINES are called where there is little room

Folders = Mapping[str, Path]  # by the names that they have here


def address(kind: str, name: str) -> str:
    return f"/{kind}/{quoted(name)}"


def quoted(name: str) -> str:
    """By its bytes: the name of a folder need not be a text."""
    return quote(os.fsencode(name))


def within(comparison: str, name: str) -> bool:
    """Whether a run is part of a comparison, by their names."""
    return comparison in (".", name) or name.startswith(f"{comparison}/")


def whole(title: str, body: str, trail: Sequence[tuple[str, str]] = ()) -> str:
    """A page around its body: the way back above, and how it is kept up to date below."""
    links = "".join(f'<a href="{text(where)}">{text(name)}</a> ' for name, where in trail)
    way = f'<nav id="way" aria-label="Where you are">{links}</nav>\n' if links else ""
    below = (
        '<footer><p><button type="button" id="pause" aria-pressed="false">Stop updating</button> '
        '<span id="connection" role="status"></span></p>\n'
        "<noscript><p>Without scripts this page does not update itself: load it again.</p></noscript></footer>\n"
    )
    head = '<script src="/watch.js" defer></script>\n'
    return document(title, way + body, below, policy=POLICY, head=head)


# ------------------------------------------------------------------------------------------------------------ all runs
def overview(places: Places, runs: Folders, comparisons: Folders) -> str:
    """Every comparison and every run below the folder, those that began last first: so rows stay where they are."""
    newest = sorted(runs.items(), key=lambda item: (-began(item[1]), item[0]))
    found = [(name, one) for name, folder in newest if (one := places.kept(folder))]
    states = [one.state for _, one in found]
    said = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states) or "no run yet"
    top = f'<header id="top"><p class="eyebrow">fairsilo watch</p>\n<h1>Runs in {text(places.root.name)}</h1>\n'
    top += f'<p id="said" role="status">{text(said)}</p></header>\n'
    body = ""
    if comparisons:
        whole_ones = [_comparison_row(places, name, folder, runs) for name, folder in comparisons.items()]
        head = f'<tr><th scope="col">comparison</th>{heads(["finished", "runs"])}</tr>'
        body += section("comparisons", "Comparisons", table(head, whole_ones))
    now = time.time()
    if found:
        names = ("rounds", *ANSWERS, "changed")
        head = f'<tr><th scope="col">run</th><th scope="col">state</th><th scope="col">method</th>{heads(names)}</tr>'
        rows = [_run_row(name, one, now) for name, one in found]
        choose = '<p><button type="submit">Compare the two that are ticked</button></p>\n'
        body += section("runs", "Runs", f'<form action="/pair" method="get">\n{table(head, rows)}{choose}</form>\n')
    else:
        body += section(
            "runs", "Runs", paragraph("There is no run in this folder yet; this page shows it when it begins.")
        )
    return whole(f"Runs in {places.root.name}", top + body)


def _run_row(name: str, one: Kept, now: float) -> str:
    done, planned = one.rounds
    with shown_in(one.metric, one.share):
        numbers = [share(one.numbers.get(key)) for key in HEADLINES]
    rounds = f"{done} of {planned}" if planned else str(done)
    label = text(f"compare {name}")
    tick = f'<input type="checkbox" name="run" value="{quoted(name)}" aria-label="{label}"> '
    link = f'<a href="{text(address("run", name))}">{text(name)}</a>'
    place = f"{one.method}, {one.held_out} held out" if one.held_out != "-" else one.method
    values = cells([rounds, *numbers, age(now - one.changed)])
    why = f" <small>{text(one.why)}</small>" if one.why else ""
    return f'<tr><th scope="row">{tick}{link}</th><td>{tag(one.state)}{why}</td><td>{text(place)}</td>{values}</tr>\n'


def tag(state: str) -> str:
    return f'<span class="tag {STATES.get(state, "")}">{text(state)}</span>'


# ------------------------------------------------------------------------------------------------------------- one run
def run_page(places: Places, name: str, folder: Path) -> str:
    """A run as far as it is: who does what, then the report's sections."""
    one, (run, baseline) = places.kept(folder), _both(places, folder)
    state = one.state if one else INTERRUPTED
    statuses = [place.info.get("status") == FINISHED if place else None for place in (run, baseline)]
    beside = state != FINISHED and statuses == [True, False]  # the method is at its end, and its baseline is not
    under_way = baseline if baseline and beside else run
    now = read_now(folder / BASELINE if beside else folder) if state != FINISHED else {}

    def draw() -> tuple[str, str]:
        run, baseline = _both(places, folder)
        with shown_in(str(run.summary["metric"]), run.summary.get("share")):
            sections = curves(run, baseline) + weights(run) + gap_section(run, baseline) + costs(run, baseline)
            answers = f'<div id="answers">{headline(run, baseline)}</div>\n'
            return f'<div id="head">{header(run, baseline)}</div>\n', answers + sections + failures(run, baseline)

    head, rest = places.drawn([folder, folder / BASELINE], draw)
    with shown_in(str(run.summary["metric"]), run.summary.get("share")):
        doing = _progress(under_way, now, state, "baseline, " if beside else "")
        body = head + doing + _silos(silo_states(under_way, now, state == RUNNING, state == WAITING)) + rest
    trail = [("All runs", "/")]
    trail += [("Comparison", address("comparison", one)) for one in places.comparisons if within(one, name)][-1:]
    trail += [("Report", address("files", f"{name}/report.html"))] if (folder / "report.html").exists() else []
    return whole(f"{name}: {run.method}", body, trail)


def _both(places: Places, folder: Path) -> tuple[Run, Run | None]:
    inside = folder / BASELINE
    return places.read(folder), places.read(inside, like=folder) if (inside / "run.json").exists() else None


def _progress(run: Run, now: Mapping[str, Any], state: str, what: str) -> str:
    planned = int(run.setting("train", "rounds", run.done) or 0)
    words = f"{what}{run.done} of {planned} rounds"
    if state == RUNNING:
        rest, follows = left(run, now), run.config.get("baseline")
        if rest is not None and run.done < planned:
            words += f", about {duration(rest)} left" + (f" for this method; {follows} follows" if follows else "")
        words += f"; round {now['round']}: {now['exchange']}" if now.get("exchange") else ""
    elif state == WAITING:
        words += "; the federation's server waits for sites, or finishes other runs first"
    bar = f'<progress max="{planned or 1}" value="{run.done}" aria-label="rounds that are complete"></progress>'
    # the words are said aloud when they change: the time left would be said with every look
    return f'<p id="progress">{tag(state)} {bar} <span>{text(words)}</span></p>\n'


def _silos(states: Sequence[SiloState]) -> str:
    if not states:
        return section("now", "The silos now", paragraph("The run has not said yet who takes part."))
    rows = []
    for one in states:
        kind = "bad" if one.bad else "going" if one.state.endswith("ing") and one.state != "waiting" else ""
        why = f" <small>{text(one.why)}</small>" if one.why else ""
        unseen = ' <span class="tag">unseen</span>' if one.unseen else ""
        numbers = cells([plain(one.loss), plain(one.weight), plain(one.gap), str(one.failed)])
        rows.append(
            f'<tr><th scope="row">{text(one.silo)}{unseen}</th><td>{text(one.domain)}</td>'
            f'<td class="long"><span class="tag {kind}">{text(one.state)}</span>{why}</td>{numbers}</tr>\n'
        )
    columns = heads(["training loss", "weight", "gap", "rounds failed in"])
    head = f'<tr><th scope="col">silo</th><th scope="col">domain</th><th scope="col">state</th>{columns}</tr>'
    bad = [one.silo for one in states if one.bad]
    said = f"Look at: {listed(bad)}." if bad else "No silo needs a look."
    return section("now", "The silos now", f'<p role="status">{text(said)}</p>\n', table(head, rows))


# ------------------------------------------------------------------------------------------------------------ two runs
def pair_page(places: Places, chosen: Folders) -> str:
    """Two runs, the second in the place that a baseline has in a report."""
    back = ("All runs", "/")
    if len(chosen) != 2:
        words = f"tick two runs to compare them; {len(chosen) or 'none'} ticked"
        top = '<header id="top"><p class="eyebrow">fairsilo watch</p>\n<h1>Two runs side by side</h1>\n'
        return whole("Two runs side by side", f"{top}{paragraph(words)}</header>\n", [back])

    def draw() -> tuple[str]:
        one, other = chosen.values()
        first, second = places.read(one), places.read(other, like=one)
        differ = differences(first, second)
        if first.method == second.method:
            first, second = (
                dataclasses.replace(run, method=f"{run.method} ({name})")
                for run, name in zip((first, second), chosen, strict=True)
            )
        caution = f"These runs differ in more than the method: {listed(differ, len(differ))}." if differ else ""
        with shown_in(str(first.summary["metric"]), first.summary.get("share")):
            return (
                f'<div id="head">{header(first, second)}{paragraph(caution, "banner") if caution else ""}</div>\n'
                f'<div id="answers">{headline(first, second)}</div>\n'
                + silo_table(first, second)
                + curves(first, second)
                + gap_section(first, second)
                + costs(first, second),
            )

    (body,) = places.drawn(list(chosen.values()), draw)
    return whole(" and ".join(chosen), body, [back, *((name, address("run", name)) for name in chosen)])


def differences(first: Run, second: Run) -> list[str]:
    """The settings that two runs do not share, but for what a method is compared by and where it runs."""
    one, other = (_settings(run) for run in (first, second))
    found = [key for key in {**one, **other} if not key.startswith(ASIDE) and one.get(key) != other.get(key)]
    given = first.info.get("data") != second.info.get("data")  # as Python objects, which settings say nothing of
    return [*(["data"] if given and not any(key.startswith("data.") for key in found) else []), *found]


def _settings(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in run.config.items():
        found |= {f"{key}.{leaf}": inner for leaf, inner in value.items()} if isinstance(value, dict) else {key: value}
    return found


# -------------------------------------------------------------------------------------------------------- a comparison
def plan_of(folder: Path) -> list[dict[str, Any]]:
    """The runs of a comparison, begun or not: method, held_out, seed, folder, and how many rounds."""
    for name in (PLAN, "comparison.json"):
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


def _comparison_row(places: Places, name: str, folder: Path, runs: Folders) -> str:
    plan = plan_of(folder)
    done = sum(1 for cell in plan if (one := _run_of(places, runs, name, cell)[1]) and one.state == FINISHED)
    link = f'<a href="{text(address("comparison", name))}">{text(places.root.name if name == "." else name)}</a>'
    return f'<tr><th scope="row">{link}</th>{cells([str(done), str(len(plan))])}</tr>\n'


def comparison_page(places: Places, name: str, folder: Path, runs: Folders) -> str:
    """Rows are methods, columns held-out domains and seeds: the result of each run, or how far it is."""
    plan = [(cell, *_run_of(places, runs, name, cell)) for cell in plan_of(folder)]
    columns = list(dict.fromkeys((str(cell.get("held_out")), cell.get("seed")) for cell, _, _ in plan))
    by_row: dict[str, dict[tuple[str, Any], str]] = {}
    for cell, run, one in plan:
        column = str(cell.get("held_out")), cell.get("seed")
        by_row.setdefault(str(cell.get("method")), {})[column] = _cell(cell, run, one)
    rows = [
        f'<tr><th scope="row">{text(row)}</th>{"".join(own.get(one, "<td></td>") for one in columns)}</tr>\n'
        for row, own in by_row.items()
    ]
    head = heads([f"{'no domain' if domain == '-' else domain} held out, seed {seed}" for domain, seed in columns])
    done = sum(1 for _, _, one in plan if one and one.state == FINISHED)
    called = places.root.name if name == "." else name
    words = f"{done} of {len(plan)} runs are finished"
    top = f'<header id="top"><p class="eyebrow">fairsilo watch</p>\n<h1>{text(called)}</h1>\n'
    bar = f'<progress max="{len(plan) or 1}" value="{done}" aria-label="runs that are finished"></progress>'
    top += f'<p id="progress">{bar} <span role="status">{text(words)}</span></p></header>\n'
    about = "Of a finished run: the global model on the held-out domain. "
    if any(one and one.state == FINISHED and one.numbers.get(HEADLINES[0]) is None for _, _, one in plan):
        about += "Where nothing was held out: the silos' own models at home. "
    about += "Of others: rounds that are complete."
    grid = section("grid", "Runs", paragraph(about), table(f'<tr><th scope="col">method</th>{head}</tr>', rows))
    trail = [("All runs", "/")]
    page = (folder / "comparison.html").exists()
    trail += [("Page of the comparison", address("files", f"{name}/comparison.html"))] if page else []
    return whole(called, top + grid, trail)


def _cell(cell: Mapping[str, Any], name: str, one: Kept | None) -> str:
    if one is None:
        return '<td class="number quiet">not begun</td>'
    done, planned = one.rounds
    if one.state == FINISHED:
        with shown_in(one.metric, one.share):
            best = next((one.numbers.get(key) for key in HEADLINES[:2] if one.numbers.get(key) is not None), None)
            words, small = share(best), ""
    elif one.state == DAMAGED:
        words, small = "–", f"<small>{tag(one.state)}</small>"
    else:
        words, small = f"{done} of {planned or cell.get('rounds', '?')}", f"<small>{tag(one.state)}</small>"
    return f'<td class="number"><a href="{text(address("run", name))}">{text(words)}</a>{small}</td>'
