"""The pages of `fairsilo watch`: all runs, one run as it goes, two runs side by side, a comparison as it fills.

They are drawn here and not in the browser, from the same sections as the report; a small script only puts a newer page
in the place of an older one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fairsilo.analysis.metrics import AT_HOME, HEADLINES, mean
from fairsilo.report.blocks import Run, cells, document, heads, listed, paragraph, points, section, share, table
from fairsilo.report.charts import duration, plain, text, usable
from fairsilo.report.page import header, headline, silo_table
from fairsilo.report.said import failures
from fairsilo.report.sections import costs, curves, gap_section, weights
from fairsilo.report.tables import CHANCE, GUESSED, age, beside_mean, in_runs
from fairsilo.report.units import shown_in
from fairsilo.report.whole import whole_above
from fairsilo.runs.folder import BASELINE, PLAN
from fairsilo.runs.inventory import DAMAGED, FINISHED, INTERRUPTED, RUNNING, STOPPED, WAITING, Kept
from fairsilo.watch.places import Places, began
from fairsilo.watch.states import SiloState, left, read_now, silo_states

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'"
)
STATES = {FINISHED: "good", STOPPED: "bad", INTERRUPTED: "bad", RUNNING: "going", WAITING: "going", DAMAGED: "bad"}
ASIDE = ("method", "baseline", "engine.", "evaluate.examples", "evaluate.keep_local")  # may differ: how, what is kept
ANSWERS = ("generalises", "personalises", "spread")  # as HEADLINES are called where there is little room
MEANINGS = {
    "generalisation": "the global model on the held-out domain",
    "personalisation": "silos' own models at home",
    "fairness": "the spread over silos, in brackets the mean that it is around",
}
HANDFUL = 5  # runs of a comparison that are shown without being asked for
JOINT = re.compile("[/_-]")

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
    if found:
        spread = paragraph("Spread: standard deviation over silos, in brackets the mean that it is around.")
        body += section(
            "runs", "Runs", spread, guessing([one for _, one in found]), _listed(places, comparisons, dict(found))
        )
    else:
        body += section(
            "runs", "Runs", paragraph("There is no run in this folder yet; this page shows it when it begins.")
        )
    return whole(f"Runs in {places.root.name}", top + body)


def _listed(places: Places, comparisons: Folders, found: Mapping[str, Kept]) -> str:
    """The table of runs; those of a comparison are rows of their own below one that folds them."""
    now = time.time()
    inside: dict[str, list[str]] = {}
    for name in found:
        inside.setdefault(_comparison_of(comparisons, name), []).append(name)
    groups: list[tuple[float, str, str]] = []
    for name in inside.pop("", ()):
        groups.append((began(found[name].folder), name, f"<tbody>\n{_run_row(name, name, found[name], now)}</tbody>\n"))
    for comparison, names in inside.items():
        # by the first of them: its place does not change when another one begins
        first = min(began(found[name].folder) for name in names)
        groups.append((first, comparison, _folded(places, comparison, {name: found[name] for name in names}, now)))
    numbers = heads(("rounds", *ANSWERS, "changed"))
    head = f'<tr><th scope="col">run</th><th scope="col">state</th><th scope="col">method</th>{numbers}</tr>'
    rows = "".join(drawn for _, _, drawn in sorted(groups, key=lambda group: (-group[0], group[1])))
    choose = '<p><button type="submit">Compare the two that are ticked</button></p>\n'
    grouped = f'<div class="table" tabindex="0"><table>\n<thead>{head}</thead>\n{rows}</table></div>\n'
    return f'<form action="/pair" method="get">\n{grouped}{choose}</form>\n'


def _comparison_of(comparisons: Folders, name: str) -> str:
    """The comparison that a run is part of, the innermost of several; empty: of none."""
    while name := name.rpartition("/")[0]:
        if name in comparisons:
            return name
    return "." if "." in comparisons else ""


def _folded(places: Places, comparison: str, found: Mapping[str, Kept], now: float) -> str:
    """A row that says how far a comparison is, and folds the rows of its runs."""
    called = places.root.name if comparison == "." else comparison
    states = [one.state for one in found.values()]
    tags = " ".join(tag(state, f"{states.count(state)} {state}") for state in STATES if state in states)
    methods = len({one.method for one in found.values() if one.method})
    words = f"{_counted(len(found), 'run')} of {_counted(methods, 'method')}"
    trouble = any(STATES[state] == "bad" for state in states)
    unfolded = " open" if trouble or len(found) <= HANDFUL else ""
    fold = f'<details{unfolded} data-name="{text(quoted(comparison))}"><summary>{broken(called)}</summary></details>'
    last = age(now - max(one.changed for one in found.values()))
    empty = [""] * (1 + len(ANSWERS))
    top = f'<tr><th scope="rowgroup">{fold}</th><td>{tags}</td><td>{text(words)}</td>{cells([*empty, last])}</tr>\n'
    start = "" if comparison == "." else f"{comparison}/"
    rows = "".join(_run_row(name, name.removeprefix(start), one, now) for name, one in found.items())
    return f'<tbody class="folded">\n{top}{rows}</tbody>\n'


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def broken(name: str) -> str:
    """A name of a folder that a narrow screen breaks where it has a joint."""
    return JOINT.sub(r"\g<0><wbr>", text(name))


def _run_row(name: str, called: str, one: Kept, now: float) -> str:
    done, planned = one.rounds
    rounds = f"{done} of {planned}" if planned else str(done)
    label = text(f"compare {name}")
    tick = f'<input type="checkbox" name="run" value="{quoted(name)}" aria-label="{label}"> '
    link = f'<a href="{text(address("run", name))}">{broken(called)}</a>'
    held_out = "" if one.held_out == "-" else f", {one.held_out} held out"
    seed = "" if one.seed is None else f", seed\u00a0{one.seed}"
    why = f" <small>{text(one.why)}</small>" if one.why else ""
    about = f"<td>{tag(one.state)}{why}</td><td>{text(one.method + held_out + seed)}</td>"
    guess = f"<small>{GUESSED}</small>"
    numbers = "".join(f'<td class="number">{shown}{guess if guessed else ""}</td>' for shown, guessed in answers(one))
    values = f"{cells([rounds])}{numbers}{cells([age(now - one.changed)])}"
    return f'<tr><th scope="row">{tick}{link}</th>{about}{values}</tr>\n'


def answers(one: Kept) -> list[tuple[str, bool]]:
    """The three answers of a run, and which of them are at chance."""
    with shown_in(one.metric, one.share):
        return [(written(one.numbers, key), bool(one.at_chance.get(key))) for key in HEADLINES]


def written(numbers: Mapping[str, float | None], key: str) -> str:
    """One of the three answers; a spread with the mean that it is around."""
    value, centre = numbers.get(key), numbers.get(AT_HOME)
    if key != "fairness" or value is None or not usable(value):
        return share(value)
    return beside_mean(points(value), key, centre if usable(centre) else None)


def guessing(runs: Sequence[Kept]) -> str:
    """What the mark of chance means, where there is one."""
    return paragraph(f"{CHANCE}.") if any(any(one.at_chance.values()) for one in runs) else ""


def tag(state: str, words: str = "") -> str:
    return f'<span class="tag {STATES.get(state, "")}">{text(words or state)}</span>'


# ------------------------------------------------------------------------------------------------------------- one run
def run_page(places: Places, name: str, folder: Path) -> str:
    """A run as far as it is: who does what, then the report's sections."""
    one, (run, baseline) = places.kept(folder), _both(places, folder)
    state = one.state if one else INTERRUPTED
    statuses = [place.info.get("status") == FINISHED if place else None for place in (run, baseline)]
    beside = state != FINISHED and statuses == [True, False]  # the method is at its end, and its baseline is not
    under_way = baseline if baseline and beside else run
    now = read_now(folder / BASELINE if beside else folder) if state != FINISHED else {}
    if state == RUNNING and _broken_off(under_way):
        now = {}  # of the time before; its process does not train yet

    def draw() -> tuple[str, str]:
        run, baseline = _both(places, folder)
        if state == RUNNING:
            run, baseline = _taken_up(run), baseline and _taken_up(baseline)
        with shown_in(str(run.summary["metric"]), run.summary.get("share")):
            sections = curves(run, baseline) + weights(run, baseline)
            sections += gap_section(run, baseline) + costs(run, baseline)
            answers = f'<div id="answers">{headline(run, baseline, whole_above(folder))}</div>\n'
            return f'<div id="head">{header(run, baseline)}</div>\n', answers + sections + failures(run, baseline)

    head, rest = places.drawn([folder, folder / BASELINE], draw, state)
    with shown_in(str(run.summary["metric"]), run.summary.get("share")):
        doing = _progress(under_way, now, state, "baseline, " if beside else "")
        body = head + doing + _silos(silo_states(under_way, now, state == RUNNING, state == WAITING)) + rest
    trail = [("All runs", "/")]
    trail += [("Comparison", address("comparison", one)) for one in places.comparisons if within(one, name)][-1:]
    trail += [("Report", address("files", f"{name}/report.html"))] if (folder / "report.html").exists() else []
    return whole(f"{name}: {run.method}", body, trail)


def _broken_off(run: Run) -> bool:
    return run.info.get("status") in (STOPPED, INTERRUPTED)


def _taken_up(run: Run) -> Run:
    """As a run says of itself as soon as it goes on; until then its folder tells how it was broken off."""
    return dataclasses.replace(run, info={**run.info, "status": RUNNING, "message": ""}) if _broken_off(run) else run


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
    called = broken(places.root.name if name == "." else name)
    link = f'<a href="{text(address("comparison", name))}">{called}</a>'
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
    called = places.root.name if name == "." else name
    words = f"{len(finished)} of {len(plan)} runs are finished"
    top = f'<header id="top"><p class="eyebrow">fairsilo watch</p>\n<h1>{broken(called)}</h1>\n'
    bar = f'<progress max="{len(plan) or 1}" value="{len(finished)}" aria-label="runs that are finished"></progress>'
    top += f'<p id="progress">{bar} <span role="status">{text(words)}</span></p></header>\n'
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
    return whole(called, top + grid, trail)


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
    with shown_in(finished[0][1].metric, finished[0][1].share):
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
