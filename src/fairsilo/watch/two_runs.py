"""The page of two runs side by side, the second in the place that a baseline has in a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from fairsilo.analysis.chance import GUESSED
from fairsilo.analysis.metrics import AT_HOME, HEADLINES, at_chance, headline
from fairsilo.report.beside import change, whose, why_not_compared
from fairsilo.report.blocks import Run, heads, paragraph, points, section, share, table
from fairsilo.report.page import header, low_to_high, silo_table
from fairsilo.report.sections import costs, curves, gap_section
from fairsilo.report.tables import CHANCE, written
from fairsilo.report.texts import shorten, text, usable
from fairsilo.report.units import shown_as
from fairsilo.watch.pieces import Folders, address, top, whole
from fairsilo.watch.places import Places

ASIDE = ("method", "baseline", "engine.", "evaluate.examples", "evaluate.keep_local")  # may differ: how, what is kept
LONG = 60  # letters of a setting's value that are shown


def pair_page(places: Places, chosen: Folders) -> str:
    """Results and curves of both, and every setting in which they differ."""
    back = ("All runs", "/")
    if len(chosen) != 2:
        title = "Two runs side by side"
        words = f"tick two runs to compare them; {len(chosen) or 'none'} ticked"
        return whole(title, top(title, paragraph(words)), [back])

    def draw() -> tuple[str]:
        one, other = chosen.values()
        first, second = places.read(one), places.read(other, like=one)
        said = in_what_they_differ(first, second)
        if first.method == second.method:
            first, second = (
                dataclasses.replace(run, method=f"{run.method} ({name})")
                for run, name in zip((first, second), chosen, strict=True)
            )
        with shown_as(first.summary):
            head = header(first, second, called=(first.method, second.method))
            body = f'<div id="head">{head}{paragraph(said, "banner") if said else ""}</div>\n'
            body += three_answers(first, second)
            if first.summary["metric"] == second.summary["metric"]:  # else there is no axis for both
                body += silo_table(first, second) + curves(first, second)
            return (body + gap_section(first, second) + costs(first, second),)

    (body,) = places.drawn(list(chosen.values()), draw)
    return whole(" and ".join(chosen), body, [back, *((name, address("run", name)) for name in chosen)])


# ------------------------------------------------------------------------------------------------- the three answers
MEANINGS = {
    "generalisation": "the global model on the held-out domain",
    "personalisation": "each silo's own model at home",
    "fairness": "standard deviation over silos; lower is more even",
}


def three_answers(first: Run, second: Run) -> str:
    """A row for each, the runs side by side; below the first its difference to the second where that says something."""
    runs = (first, second)
    if not any(run.rows for run in runs):
        return section("answers", "The three answers", paragraph("Nothing was evaluated yet."))
    why = why_not_compared(first, second)
    head = heads([run.method for run in runs])
    rows = []
    for key in HEADLINES:
        drawn = _answer(first, second, key, "" if why else _difference(*runs, key)) + _answer(second, first, key)
        meaning = f"<small>{text(MEANINGS[key])}</small>"
        rows.append(f'<tr><th scope="row">{key.capitalize()}{meaning}</th>{drawn}</tr>\n')
    guessed = [at_chance(run.summary) for run in runs]
    said = paragraph(f"{CHANCE}.") if any(any(one.values()) for one in guessed) else ""
    below = f"{_small(runs)}{why}"
    if not why:
        below += f"Bold: the difference, {first.method} minus {second.method}. "
        below += "Spreads at chance level are not compared. " if any(one["fairness"] for one in guessed) else ""
        below += _caution(first, second)
    return section(
        "answers",
        "The three answers",
        said,
        table(f'<tr><th scope="col">answer</th>{head}</tr>', rows),
        paragraph(below, "quiet"),
    )


def _small(runs: Sequence[Run]) -> str:
    intervals = [run.summary[key].get("interval") for run in runs for key in ("generalisation", "personalisation")]
    return "Small: the 95\u00a0% interval from the size of the test set. " if any(intervals) else ""


def _answer(run: Run, other: Run, key: str, difference: str = "") -> str:
    """What a run found, with what is needed to read it in small below."""
    value, small = headline(run.summary)[key], []
    with shown_as(run.summary):
        shown = share(value)
        if key != "fairness":
            small = [low_to_high(ends)] if (ends := run.summary[key].get("interval")) else []
        elif value is not None:
            shown, models = points(value), whose(run, other)
            small = [f"around {share(headline(run.summary)[AT_HOME])}", *([models] if models else [])]
    small += [GUESSED] if at_chance(run.summary)[key] else []
    below = "".join(f"<small>{text(one)}</small>" for one in small) + difference
    return f'<td class="number">{text(shown)}{below}</td>'


def _difference(first: Run, second: Run, key: str) -> str:
    """In small, as `compare` takes it: of each run's own headline."""
    one, other = (headline(run.summary)[key] for run in (first, second))
    even = key == "fairness"
    guessed = even and any(at_chance(run.summary)[key] for run in (first, second))
    if one is None or other is None or guessed or not usable(one - other):
        return ""
    much, kind, words = change(one, other, spread=even)
    lines = [much, words] if words else [much]
    return "".join(f'<small class="{f"difference {kind}".strip()}">{text(line)}</small>' for line in lines)


def _caution(first: Run, second: Run) -> str:
    seeds = [str(run.config.get("seed", "–")) for run in (first, second)]
    said = f"seed {seeds[0]}" if seeds[0] == seeds[1] else f"seeds {seeds[0]} and {seeds[1]}"
    words = f"One run each, {said}: a difference may be chance. Repeat with other seeds before drawing a conclusion."
    if first.counted != second.counted:
        words += " Not the same silos were counted in every round of the two."
    return words


# --------------------------------------------------------------------------------------------------- how they differ
def in_what_they_differ(first: Run, second: Run) -> str:
    """A sentence on the settings, with both values; empty where the method alone differs."""
    found = differences(first, second)
    if not found:
        return ""
    values, settings = [], [{"data": run.info.get("data"), **_settings(run)} for run in (first, second)]
    for key in found:
        both = [shorten(str(written(one.get(key))), LONG) for one in settings]
        values.append(key if both[0] == both[1] else f"{key}: {both[0]} / {both[1]}")
    more = "" if first.method == second.method else "more than the method: "
    return f"These runs differ in {more}{'; '.join(values)}."


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
