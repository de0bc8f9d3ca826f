"""A search for settings as one HTML file: what was chosen, how it got there, and which settings mattered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from fairsilo import __version__
from fairsilo.analysis.metrics import Row
from fairsilo.analysis.paired import from_pairs
from fairsilo.report.blocks import (
    cells,
    document,
    figure,
    figures,
    heads,
    listed,
    paragraph,
    points,
    section,
    share,
    table,
)
from fairsilo.report.charts import COLOURS, Bar, Series, bar_chart, legend, line_chart, scatter_chart, text
from fairsilo.report.units import in_its_unit, unit
from fairsilo.runs.folder import RunFolder
from fairsilo.tuning.search import CHOSEN, RESULT

Content = Mapping[str, Any]
PAGE = "tuning.html"
FIRST = 6  # methods whose single settings are drawn


def write_tuning(folder: Path) -> Path:
    """Write the page beside `tuning.json`."""
    return RunFolder(folder).write_text(PAGE, page(RunFolder(folder).read_json(RESULT)))


def _summary_of(content: Content) -> Row:
    return {"metric": content["settings"]["evaluate"]["metric"]}


@in_its_unit(_summary_of)
def page(content: Content) -> str:
    """The whole document."""
    body = header(content) + chosen(content)
    body += "".join(course(content, domain) + mattered(content, domain) for domain in content["found"])
    body += every_trial(content)
    title = f"Search: {listed(content['methods'], 4)}"
    return document(title, body, f"<footer>\n{paragraph(f'fairsilo {__version__}')}</footer>\n")


def header(content: Content) -> str:
    counts = ", ".join(f"{count} with {domain} held out" for domain, count in content["counted"].items())
    facts = [
        ("Metric", content["settings"]["evaluate"]["metric"]),
        ("Rounds", content["settings"]["train"]["rounds"]),
        ("Trials of every method", counts),
        ("Chosen by", "validation samples of the silos that train; the held-out domain took no part"),
    ]
    drawn = "".join(f"<div><dt>{name}</dt><dd>{text(value)}</dd></div>" for name, value in facts)
    return (
        f'<header>\n<p class="eyebrow">fairsilo tune</p>\n<h1>{text(listed(content["methods"], 4))}</h1>\n'
        f'<dl class="facts">{drawn}</dl>\n</header>\n'
    )


def gain(one: Mapping[str, Any]) -> float | None:
    """Of the chosen settings over those that are there without a search."""
    return None if one["usual"] is None else one["score"] - one["usual"]


def difference(value: float | None) -> str:
    return "–" if value is None else ("+" if value > 0 else "") + points(value)


def chosen(content: Content) -> str:
    lines = []
    for domain, methods in content["found"].items():
        for name, one in methods.items():
            numbers = cells([share(one["usual"]), share(one["score"]), difference(gain(one)), str(one["trial"] + 1)])
            lines.append(
                f'<tr><th scope="row">{text(name)}</th><td>{text(domain)}</td>{numbers}'
                f"<td><code>{text(one['row'])}</code></td></tr>\n"
            )
    lead = '<th scope="col">method</th><th scope="col">held out</th>'
    head = f"<tr>{lead}{heads(['as it is', 'searched', 'gain', 'trial'])}<th scope='col'>chosen</th></tr>"
    said = (
        "Validation results of the silos that train. They are the best of several and too high for that reason: "
        f"what a method is worth is told by fairsilo compare -c {CHOSEN}, with other seeds and on test data."
    )
    told = "".join(f"<li>{text(one)}</li>" for one in in_words(content))
    return section(
        "chosen", "What was chosen", paragraph(said), table(head, lines), f"<ul>{told}</ul>\n" if told else ""
    )


def in_words(content: Content) -> list[str]:
    """How every method compares with the first where both were searched alike; of one seed, so that nothing is sure."""
    first, *others = content["methods"]
    told = []
    for name in others:
        pairs = {
            (domain, 0): methods[name]["score"] - methods[first]["score"]
            for domain, methods in content["found"].items()
            if name in methods and first in methods
        }
        found = from_pairs(pairs)
        if found is None:
            continue
        mean = found.difference.mean
        over = f", mean over {len(pairs)} held-out domains" if len(pairs) > 1 else ""
        side = "above" if mean >= 0 else "below"
        told.append(
            f"searched alike, {name} is {points(abs(mean))} {unit().points} {side} {first} on the validation samples "
            f"that chose both{over}: one seed, which may be chance"
        )
    return told


def course(content: Content, domain: str) -> str:
    """The best result so far, trial by trial."""
    lines = []
    for place, (name, one) in enumerate(content["found"][domain].items()):
        # beyond the eighth method colours and markers come again, with a broken line
        lines.append(Series(name, _best_so_far(one), 1 + place % COLOURS, dashed=place >= COLOURS))
    drawing = line_chart(
        lines,
        title=f"Best validation result so far, {domain} held out",
        y_label=f"best so far{unit().label}",
        x_label="trial",
        form=lambda value: f"{value:.4g}",
    )
    return section(
        f"course-{domain}", f"How the search went ({domain} held out)", figures(figure("", drawing, legend(lines)))
    )


def _best_so_far(one: Mapping[str, Any]) -> list[tuple[float, float | None]]:
    best, found = None, []
    better = max if one["higher"] else min
    for trial in one["trials"]:
        score = trial["score"]
        if score is not None:
            best = score if best is None else better(best, score)
        found.append((trial["number"] + 1.0, None if best is None else unit().factor * best))
    return found


def mattered(content: Content, domain: str) -> str:
    """How much each setting tells good trials from the others, and the result over its values."""
    methods = content["found"][domain]
    told = {name: one["importance"] for name, one in methods.items() if one["importance"]}
    drawings = []
    if told:
        colours = {name: 1 + place % COLOURS for place, name in enumerate(methods)}
        groups = [
            (
                setting,
                [Bar(name, found[key], colours[name]) for name, found in told.items() for key in _keys(found, setting)],
            )
            for setting in dict.fromkeys(key.rpartition(".")[2] for found in told.values() for key in found)
        ]
        bars = bar_chart(groups, title="What mattered", x_label="share", form=lambda value: f"{value:.2f}")
        key = legend([Series(name, [], colours[name]) for name in told])
        about = "How much of the variation between trials a setting explains (fANOVA); shares of a method add up to 1."
        drawings.append(figure("Importance", bars, key, about))
    for name, one in list(methods.items())[:FIRST]:
        drawings += [_slice(name, one, setting, told) for setting, told in one["space"].items()]
    if not drawings:
        return ""
    few = "" if told else paragraph("Too few trials came to an end to say what mattered.", "quiet")
    return section(f"mattered-{domain}", f"What mattered ({domain} held out)", few, figures(*drawings))


def _keys(found: Mapping[str, float], setting: str) -> list[str]:
    """What a method calls the setting: `lr` is `train.lr`, `mu` is `fedprox.mu`."""
    return [key for key in found if key.rpartition(".")[2] == setting]


def _slice(name: str, one: Mapping[str, Any], setting: str, told: Mapping[str, Any]) -> str:
    known = [trial for trial in one["trials"] if _number(trial["values"].get(setting)) and trial["score"] is not None]
    best = [trial for trial in known if trial["number"] == one["trial"]]
    drawn = [
        Series("trial", [(trial["values"][setting], unit().factor * trial["score"]) for trial in known], 2),
        Series("chosen", [(trial["values"][setting], unit().factor * trial["score"]) for trial in best], 1),
    ]
    drawing = scatter_chart(
        drawn,
        title=f"{name}: {setting}",
        x_label=setting,
        y_label=f"validation{unit().label}",
        log=bool(told["log"]),
        form=lambda value: f"{value:.4g}",
    )
    return figure(f"{name}: {setting}", drawing, caption=f"searched: {told['span']}")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def every_trial(content: Content) -> str:
    lines = []
    for domain, methods in content["found"].items():
        for name, one in methods.items():
            for trial in one["trials"]:
                numbers = [
                    str(trial["number"] + 1),
                    share(trial["score"]),
                    str(trial["rounds"]),
                    f"{trial['seconds']:.0f}",
                ]
                lines.append(
                    f'<tr><th scope="row">{text(name)}</th><td>{text(domain)}</td>{cells(numbers)}'
                    f"<td><code>{text(trial['row'])}</code></td><td>{text(trial['why'])}</td></tr>\n"
                )
    lead = '<th scope="col">method</th><th scope="col">held out</th>'
    last = '<th scope="col">settings</th><th scope="col">given up because</th>'
    head = f"<tr>{lead}{heads(['trial', 'validation', 'rounds', 'seconds'])}{last}</tr>"
    folded = f"<details><summary>{len(lines)} trials</summary>\n{table(head, lines)}</details>\n"
    return section("trials", "Every trial", folded)


# ----------------------------------------------------------------------------------------------------------- terminal
@in_its_unit(_summary_of)
def tuning_table(content: Content) -> Table:
    """What was chosen, for the terminal."""
    found = Table(title="Validation results of the silos that train", title_justify="left")
    for name in ("method", "held out"):
        found.add_column(name)
    for name in ("as it is", "searched", "gain"):
        found.add_column(name, justify="right")
    found.add_column("chosen", overflow="fold")
    for domain, methods in content["found"].items():
        for name, one in methods.items():
            numbers = [share(one["usual"]), share(one["score"]), difference(gain(one))]
            found.add_row(escape(name), escape(domain), *numbers, escape(one["row"]))
    found.caption, found.caption_justify = escape("\n".join(in_words(content))) or None, "left"
    return found
