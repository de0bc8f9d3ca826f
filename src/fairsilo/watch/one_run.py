"""The page of one run as far as it is: who does what, then the report's sections; of a damaged run, what is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fairsilo.analysis.remaining import roughly
from fairsilo.report.blocks import Run, cells, heads, listed, paragraph, section, table
from fairsilo.report.page import header, headline
from fairsilo.report.said import failures
from fairsilo.report.sections import costs, curves, gap_section, weights
from fairsilo.report.texts import plain, text
from fairsilo.report.units import shown_as
from fairsilo.report.whole import whole_above
from fairsilo.runs.folder import BASELINE
from fairsilo.runs.inventory import DAMAGED, FINISHED, INTERRUPTED, RUNNING, STOPPED, WAITING, why_damaged
from fairsilo.runs.tryouts import GIVEN_UP
from fairsilo.watch.damaged import LeftOut, most_of, there
from fairsilo.watch.pieces import address, broken, tag, top, whole
from fairsilo.watch.places import Places, within
from fairsilo.watch.states import left, next_evaluation, read_now, silo_states


class Drawn(NamedTuple):
    """What the page of a run is made of: its head, what goes on this moment, and the sections below."""

    method: str
    head: str
    moment: str
    sections: str


def run_page(places: Places, name: str, folder: Path) -> str:
    """The page, also where some files of the run are damaged: then it says why, and shows what it can.

    Raises:
        FileNotFoundError: The run is not there any more.
    """
    one = places.kept(folder)
    if one is None:
        raise FileNotFoundError(folder)
    why = one.why
    drawn: Drawn | None
    left_out: LeftOut = ()
    try:
        drawn = _drawn(places, folder, one.state)
    except Exception as problem:  # noqa: BLE001 - files of anybody's, with anything in them
        why = why or why_damaged(folder, problem)
        drawn, left_out = most_of(folder, partial(_of_damaged, folder))
    head = drawn.head if drawn else top(broken(places.title(name)))
    said = _damage(why, left_out, drawn is None) if why else ""
    body = f'<div id="head">{head}{said}</div>\n' + (drawn.moment + drawn.sections if drawn else "")
    method = drawn.method if drawn else DAMAGED
    return whole(f"{name}: {method}", body, _trail(places, name, folder))


def _trail(places: Places, name: str, folder: Path) -> list[tuple[str, str]]:
    trail = [("All runs", "/")]
    trail += [("Comparison", address("comparison", one)) for one in places.comparisons if within(one, name)][-1:]
    if (above := places.tryouts_of(name)) and above.has_page:
        page = f"{places.name(above.folder)}/{above.page}"
        trail.append((above.found, address("files", page)))
    trail += [("Report", address("files", f"{name}/report.html"))] if there(folder / "report.html") else []
    return trail


def _damage(why: str, left_out: LeftOut, nothing: bool) -> str:
    words = why.rstrip(".") + ". "
    if nothing:
        words += "Nothing else of it can be shown."
    elif left_out:
        words += f"What is shown here is drawn without {listed(left_out)}, as if nothing had been written there."
    return f'<p class="banner" role="status"><strong>Run damaged</strong>: {text(words)}</p>\n'


# --------------------------------------------------------------------------------------------------- what it is made of
def _drawn(places: Places, folder: Path, state: str) -> Drawn:
    run, baseline = _both(places, folder)
    statuses = [place.info.get("status") == FINISHED if place else None for place in (run, baseline)]
    beside = state != FINISHED and statuses == [True, False]  # the method is at its end, and its baseline is not
    under_way = baseline if baseline and beside else run
    now = read_now(folder / BASELINE if beside else folder) if state != FINISHED else {}
    if state == RUNNING and _broken_off(under_way):
        now = {}  # of the time before; its process does not train yet

    def draw() -> tuple[str, str]:
        return _lasting(*_both(places, folder), folder, state)

    head, sections = places.drawn([folder, folder / BASELINE], draw, state)
    moment = _progress(under_way, now, state, "baseline, " if beside else "") + _silos(under_way, now, state)
    return Drawn(run.method, head, moment + _first_results(under_way, now, state), sections)


def _of_damaged(folder: Path, run: Run, baseline: Run | None, left_out: LeftOut) -> Drawn:
    """Nothing that would be wrong without the files that are left out."""
    head, sections = _lasting(run, baseline, folder, DAMAGED)
    progress = "" if left_out else _progress(run, {}, DAMAGED)
    silos = "" if {"run.json", "rounds.jsonl"} & set(left_out) else _silos(run, {}, DAMAGED)
    return Drawn(run.method, head, progress + silos, sections)


def _lasting(run: Run, baseline: Run | None, folder: Path, state: str) -> tuple[str, str]:
    """Head and sections, which change with the files alone."""
    if state == RUNNING:
        run, baseline = _taken_up(run), baseline and _taken_up(baseline)
    if state == GIVEN_UP:
        run = _given_up(run)
    with shown_as(run.summary):
        sections = ""
        if run.rows:
            sections += f'<div id="answers">{headline(run, baseline, whole_above(folder))}</div>\n'
        if run.rows or run.rounds:
            sections += curves(run, baseline)
        if run.rounds:
            sections += weights(run, baseline)
        if run.rows:
            sections += gap_section(run, baseline)
        if run.rounds:
            sections += costs(run, baseline) + failures(run, baseline)
        return header(run, baseline), sections


def _broken_off(run: Run) -> bool:
    return run.info.get("status") in (STOPPED, INTERRUPTED)


def _taken_up(run: Run) -> Run:
    """As a run says of itself as soon as it goes on; until then its folder tells how it was broken off."""
    return dataclasses.replace(run, info={**run.info, "status": RUNNING, "message": ""}) if _broken_off(run) else run


def _given_up(run: Run) -> Run:
    """A trial that fell behind says no more than that it was interrupted."""
    return dataclasses.replace(run, info={"message": "tune gave this trial up.", **run.info})


def _both(places: Places, folder: Path) -> tuple[Run, Run | None]:
    inside = folder / BASELINE
    return places.read(folder), places.read(inside, like=folder) if (inside / "run.json").exists() else None


def _progress(run: Run, now: Mapping[str, Any], state: str, what: str = "") -> str:
    planned = int(run.setting("train", "rounds", run.done) or 0)
    words = f"{what}{run.done} of {planned} rounds"
    if state == RUNNING:
        rest, follows = left(run, now), run.config.get("baseline")
        if rest is not None and run.done < planned:
            words += f", about {roughly(rest)} left" + (f" for this method; {follows} follows" if follows else "")
        words += f"; round {now['round']}: {now['exchange']}" if now.get("exchange") else ""
    elif state == WAITING:
        words += "; the federation's server waits for sites, or finishes other runs first"
    bar = f'<progress max="{planned or 1}" value="{run.done}" aria-label="rounds that are complete"></progress>'
    # the words are said aloud when they change: the time left would be said with every look
    return f'<p id="progress">{tag(state)} {bar} <span>{text(words)}</span></p>\n'


def _first_results(run: Run, now: Mapping[str, Any], state: str) -> str:
    """When there will be results, where there are none yet."""
    if run.rows or state in (FINISHED, DAMAGED):
        return ""
    number = next_evaluation(run)
    if state in (RUNNING, WAITING):
        words = f"Results come with the first evaluation, at the end of round {number}"
        rest = left(run, now, number) if state == RUNNING else None
        words += f", in about {roughly(rest)}" if rest is not None else ""
    else:
        words = f"The run ended before there were results: its first evaluation is at the end of round {number}"
    return section("results", "Results", paragraph(f"{words}."))


def _silos(run: Run, now: Mapping[str, Any], state: str) -> str:
    states = silo_states(run, now, state == RUNNING, state == WAITING)
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
