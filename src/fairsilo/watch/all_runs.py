"""The page of all runs: a row for each; those that belong together are folded under a row of their own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from fairsilo.analysis.chance import GUESSED
from fairsilo.report.blocks import cells, heads, listed, paragraph, scrolled, section, table
from fairsilo.report.comparison_page import counted
from fairsilo.report.tables import age
from fairsilo.report.texts import text
from fairsilo.runs.inventory import FINISHED, Kept
from fairsilo.runs.tryouts import GIVEN_UP, Tryouts
from fairsilo.watch.comparison import comparison_row
from fairsilo.watch.pieces import STATES, Folders, address, answers, broken, guessing, quoted, tag, top, whole
from fairsilo.watch.places import Places, began, innermost

ANSWERS = ("generalises", "personalises", "spread")  # as HEADLINES are called where there is little room
HANDFUL = 5  # runs of a comparison that are shown without being asked for


def overview(places: Places, runs: Folders, comparisons: Folders) -> str:
    """Every comparison and every run below the folder, those that began last first: so rows stay where they are."""
    newest = sorted(runs.items(), key=lambda item: (-began(item[1]), item[0]))
    found = [(name, one) for name, folder in newest if (one := places.kept(folder))]
    states = [one.state for _, one in found]
    said = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states) or "no run yet"
    head = top(f"Runs in {text(places.root.name)}", f'<p id="said" role="status">{text(said)}</p>')
    body = ""
    # `advise` compares its pilots, seed by seed: that is its own business
    asked_for = {name: folder for name, folder in comparisons.items() if places.tryouts_of(name) is None}
    if asked_for:
        rows = [comparison_row(places, name, folder, runs) for name, folder in asked_for.items()]
        names = f'<tr><th scope="col">comparison</th>{heads(["finished", "runs"])}</tr>'
        body += section("comparisons", "Comparisons", table(names, rows))
    if found:
        spread = paragraph("Spread: standard deviation over silos, in brackets the mean that it is around.")
        drawn = _listed(places, {*asked_for, *places.tryouts}, dict(found))
        body += section("runs", "Runs", spread, guessing([one for _, one in found]), drawn)
    else:
        body += section(
            "runs", "Runs", paragraph("There is no run in this folder yet; this page shows it when it begins.")
        )
    return whole(f"Runs in {places.root.name}", head + body)


def _listed(places: Places, folds: Collection[str], found: Mapping[str, Kept]) -> str:
    """The table of runs; those in a folder that folds them are rows of their own below its row."""
    now = time.time()
    groups: list[tuple[float, str, str]] = []
    inside: dict[str, list[str]] = {}
    for name, one in found.items():
        if (fold := innermost(folds, name)) is None:
            groups.append((began(one.folder), name, f"<tbody>\n{_run_row(name, name, one, now)}</tbody>\n"))
        else:
            inside.setdefault(fold, []).append(name)
    for fold, names in inside.items():
        # by the first of them: its place does not change when another one begins
        first = min(began(found[name].folder) for name in names)
        groups.append((first, fold, _folded(places, fold, {name: found[name] for name in names}, now)))
    numbers = heads(("rounds", *ANSWERS, "changed"))
    head = f'<tr><th scope="col">run</th><th scope="col">state</th><th scope="col">method</th>{numbers}</tr>'
    rows = "".join(drawn for _, _, drawn in sorted(groups, key=lambda group: (-group[0], group[1])))
    choose = '<p><button type="submit">Compare the two that are ticked</button></p>\n'
    grouped = scrolled(f"<table>\n<thead>{head}</thead>\n{rows}</table>")
    return f'<form action="/pair" method="get">\n{grouped}{choose}</form>\n'


def _folded(places: Places, name: str, found: Mapping[str, Kept], now: float) -> str:
    """A row that says how far a comparison is, or what a command tries out, and folds the rows of its runs."""
    runs, tryouts = list(found.values()), places.tryouts.get(name)
    states = [one.state for one in runs]
    tags = " ".join(tag(state, f"{states.count(state)} {state}") for state in STATES if state in states)
    trouble = any(STATES[state] == "bad" for state in states)
    few = tryouts is None and len(found) <= HANDFUL
    summary = f"<summary>{broken(places.title(name))}</summary>"
    fold = f'<details{" open" if trouble or few else ""} data-name="{text(quoted(name))}">{summary}</details>'
    words = _tried(name, tryouts, runs) if tryouts else text(_compared(runs))
    last = age(now - max(one.changed for one in runs))
    empty = [""] * (1 + len(ANSWERS))
    head = f'<tr><th scope="rowgroup">{fold}</th><td>{tags}</td>'
    head += f'<td class="method">{words}</td>{cells([*empty, last])}</tr>\n'
    start = "" if name == "." else f"{name}/"
    rows = "".join(_run_row(run, run.removeprefix(start), one, now) for run, one in found.items())
    return f'<tbody class="folded">\n{head}{rows}</tbody>\n'


def _compared(runs: Sequence[Kept]) -> str:
    methods = len({one.method for one in runs if one.method})
    return f"{counted(len(runs), 'run')} of {counted(methods, 'method')}"


def _tried(name: str, tryouts: Tryouts, runs: Sequence[Kept]) -> str:
    """How far a command is, and where to read what came out."""
    link = f'<a href="{text(address("files", f"{name}/{tryouts.page}"))}">{tryouts.found}</a>'
    return text(_so_far(tryouts, runs)) + (f"<small>{link}</small>" if tryouts.has_page else "")


def _so_far(tryouts: Tryouts, runs: Sequence[Kept]) -> str:
    """How many runs there are, and how far the command is."""
    over = tryouts.has_page and not tryouts.under_way(runs)
    of = "" if over or tryouts.planned < len(runs) else f" of {tryouts.planned}"
    many = f"{len(runs)}{of} {tryouts.called}{'' if len(runs) == 1 and not of else 's'} of {tryouts.command}"
    return many if over else f"{many} so far: {_in_turn(tryouts, runs) if tryouts.turn else _ended(runs)}"


def _in_turn(tryouts: Tryouts, runs: Sequence[Kept]) -> str:
    """Every turn has a seed of its own, the next higher one."""
    seeds = {one.seed for one in runs if isinstance(one.seed, int)}
    last = max(seeds, default=0)
    done = sum(one.state == FINISHED for one in runs if one.seed == last)
    return f"turn {len(seeds)}, {done} of {tryouts.turn} finished"


def _ended(runs: Sequence[Kept]) -> str:
    """By the folders of the methods: what a method is called does not tell its settings."""
    ended = Counter(one.folder.parent.name for one in runs if one.state in (FINISHED, GIVEN_UP))
    return f"{listed(f'{ended[name]} of {name}' for name in sorted(ended)) or 'none'} ended"


def _run_row(name: str, called: str, one: Kept, now: float) -> str:
    done, planned = one.rounds
    rounds = f"{done} of {planned}" if planned else str(done)
    label = text(f"compare {name}")
    tick = f'<input type="checkbox" name="run" value="{quoted(name)}" aria-label="{label}"> '
    link = f'<a href="{text(address("run", name))}">{broken(called)}</a>'
    held_out = "" if one.held_out == "-" else f", {one.held_out} held out"
    seed = "" if one.seed is None else f", seed\u00a0{one.seed}"
    why = f" <small>{text(one.why)}</small>" if one.why else ""
    about = f'<td>{tag(one.state)}{why}</td><td class="method">{text(one.method + held_out + seed)}</td>'
    guess = f"<small>{GUESSED}</small>"
    numbers = "".join(f'<td class="number">{shown}{guess if guessed else ""}</td>' for shown, guessed in answers(one))
    values = f"{cells([rounds])}{numbers}{cells([age(now - one.changed)])}"
    return f'<tr><th scope="row">{tick}{link}</th>{about}{values}</tr>\n'
