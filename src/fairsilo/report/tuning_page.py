"""A search for settings as one HTML file: how methods differ at the same settings, what was chosen, what mattered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from fairsilo import __version__
from fairsilo.analysis.chance import GUESSED
from fairsilo.analysis.metrics import Row
from fairsilo.report.bars import Bar, bar_chart
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
from fairsilo.report.forest import Effect, forest_chart, sure_key
from fairsilo.report.lines import line_chart
from fairsilo.report.scatters import scatter_chart
from fairsilo.report.series import COLOURS, Series, legend
from fairsilo.report.texts import text
from fairsilo.report.units import as_summarised, in_its_unit, unit
from fairsilo.runs.folder import RunFolder
from fairsilo.tuning.alike import Alike, differences, looked
from fairsilo.tuning.search import CHOSEN, RESULT

Content = Mapping[str, Any]
PAGE = "tuning.html"
FIRST = 6  # methods whose single settings are drawn
ROUNDING = 1e-9
LEARN_MORE = (
    "More rounds (rounds=...) or higher learning rates (--search lr=log:LOW..HIGH) may help, in another folder (--out)."
)
BEST = "what was chosen is the best of several trials with one seed: too high for that reason, and nothing to test"


def write_tuning(folder: Path) -> Path:
    """Write the page beside `tuning.json`."""
    return RunFolder(folder).write_text(PAGE, page(RunFolder(folder).read_json(RESULT)))


def _summary_of(content: Content) -> Row:
    """Searches of older versions keep no more than the metric's name."""
    return as_summarised(content.get("metric") or {"name": content["settings"]["evaluate"]["metric"]})


@in_its_unit(_summary_of)
def page(content: Content) -> str:
    """The whole document."""
    lead = "".join(map(paragraph, not_learned(content)))
    body = header(content) + lead + tried_alike(content) + chosen(content)
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


def not_learned(content: Content) -> list[str]:
    """What no trial learned, and what helps; nothing where every method has settings that are better than guessing."""
    several, some, whole = len(content["found"]) > 1, [], True
    for domain, methods in content["found"].items():
        for name, one in methods.items():
            if one.get("at_chance"):
                some.append(f"{name} ({domain} held out)" if several else name)
            else:
                whole = False
    if whole and some:
        said = "Nothing was learned: no trial is better than guessing"
    elif some:
        said = f"Nothing was learned by {listed(some)}: no such trial is better than guessing"
    else:
        return []
    return [f"{said} ({GUESSED}), so that what was chosen there says nothing. {LEARN_MORE}"]


def marked(score: str, guessed: bool | None, gap: str = " ") -> str:
    return f"{score}{gap}{GUESSED}" if guessed else score


def usual_guessed(one: Mapping[str, Any]) -> bool | None:
    """Whether the first trial, with the settings as they are, is no better than guessing."""
    return None if one["usual"] is None else one["trials"][0].get("at_chance")


def gain(one: Mapping[str, Any]) -> float | None:
    """Of the chosen settings over those that are there without a search."""
    return None if one["usual"] is None else one["score"] - one["usual"]


def difference(value: float | None) -> str:
    return "–" if value is None else ("+" if value > 0 and not rounds_away(value) else "") + points(value)


def rounds_away(value: float) -> bool:
    """Whether nothing is left of a difference as it is written."""
    return abs(value) <= ROUNDING or float(unit().number(value)) == 0


def _results(one: Mapping[str, Any], gap: str = " ") -> list[str]:
    """As it is, searched, and the gain."""
    usual = marked(share(one["usual"]), usual_guessed(one), gap)
    return [usual, marked(share(one["score"]), one.get("at_chance"), gap), difference(gain(one))]


def chosen(content: Content) -> str:
    lines = []
    for domain, methods in content["found"].items():
        for name, one in methods.items():
            numbers = cells([*_results(one), str(one["trial"] + 1)])
            lines.append(
                f'<tr><th scope="row">{text(name)}</th><td>{text(domain)}</td>{numbers}'
                f"<td><code>{text(one['row'])}</code></td></tr>\n"
            )
    lead = '<th scope="col">method</th><th scope="col">held out</th>'
    head = f"<tr>{lead}{heads(['as it is', 'searched', 'gain', 'trial'])}<th scope='col'>chosen</th></tr>"
    said = (
        f"Validation results of the silos that train. {BEST.capitalize()}. The first trial, with the settings as they "
        "are, is among those chosen from, so that no search can make a method worse here. What a method is worth is "
        f"told by fairsilo compare -c {CHOSEN}, with other seeds and on test data."
    )
    return section("chosen", "What was chosen", paragraph(said), table(head, lines))


def tried_alike(content: Content) -> str:
    """How every method differs from the first at the same settings; nothing where a single method was searched."""
    first, *others = content["methods"]
    if not others:
        return ""
    found = differences(content["methods"], content["found"])
    drawn = ""
    if any(one.compared for one in found.values()):
        effects = [Effect(name, *_scaled(one), sure=_sure(one)) for name, one in found.items()]
        label = f"Validation result minus that of {first}" + ("" if unit().higher else "; less is better")
        decimals = 1 if unit().factor != 1 else 3
        chart = forest_chart(effects, title=label, x_label=unit().points, decimals=decimals)
        key = sure_key(looked(found))
        drawn = figures(figure("At the same settings", chart, key, f"{label}, over settings tried alike."))
    told = "".join(f"<li>{text(one)}</li>" for one in in_words(content))
    return section("alike", "Tried at the same settings", drawn, f"<ul>{told}</ul>\n", _about(found))


def _sure(one: Alike) -> bool:
    return one.compared is not None and one.compared.sure


def _scaled(one: Alike) -> tuple[float | None, float | None]:
    if one.compared is None:
        return None, None
    mean, margin = one.compared.difference.mean, one.compared.difference.margin
    return unit().factor * mean, None if margin is None else unit().factor * margin


def _about(found: Mapping[str, Alike]) -> str:
    """What the differences, intervals and tests are of."""
    said = (
        "In the first trials (in all of a random search) a setting that several methods have was tried at the same "
        "values for all of them, and in every held-out domain: first as it is (where that is in its range), then "
        "drawn. Trials of one number are pairs. What one method alone has was drawn along with it, so that this is "
        "how methods do over the ranges searched, and not at their best. "
    )
    if any(one.compared and one.compared.difference.margin is not None for one in found.values()):
        count = looked(found)
        corrected = "" if count == 1 else f", corrected for all {count} comparisons (Holm)"
        said += (
            "Lines are intervals (95 %) over other settings of these ranges, each by itself; held-out domains had the "
            "same settings and are averaged first. A difference is called sure over settings where chance in drawing "
            f"them would give it in less than one of twenty cases{corrected}. "
        )
    said += "All trials have one seed: how much another seed would change is not known here. "
    if any(one.left_out for one in found.values()):
        said += (
            "Where a trial was given up or failed, the pair is left out. These are mostly settings at which a method "
            "did badly, so that leaving them out favours it."
        )
    return paragraph(said.strip(), "quiet")


def in_words(content: Content) -> list[str]:
    """How every method compares with the first at the same settings, in plain words."""
    first = content["methods"][0]
    found = differences(content["methods"], content["found"])
    return [sentence(name, first, one) for name, one in found.items()]


def sentence(name: str, first: str, one: Alike) -> str:
    """One comparison; it says itself that it is over settings, and of one seed."""
    if not one.shared:
        return f"{name} and {first} search no setting in common, so that nothing was tried alike"
    if one.guessed and one.guessed == one.pairs:
        return f"{name} and {first}: no trial of either is better than guessing ({GUESSED}), {_paired(one)}"
    if one.compared is None:
        return f"{name} and {first} have no result at the same settings ({one.left_out} pairs of trials left out)"
    mean, margin = one.compared.difference.mean, one.compared.difference.margin
    much = " ± ".join(points(abs(value)) for value in (mean, margin) if value is not None) + f" {unit().points}"
    alike = rounds_away(mean)
    if alike and margin is not None and rounds_away(margin):
        how = f"{name} and {first} score alike ({much} apart)"
    elif alike:  # how far they may be apart is another matter
        how = f"no difference found between {name} and {first} ({much})"
    else:
        how = f"{name} scores {much} {'above' if mean > 0 else 'below'} {first}"
    fewest, most = one.settings
    count = str(most) if fewest == most else f"{fewest} to {most}"
    over = f"over {count} setting{'s' if most > 1 else ''} tried alike ({_brief(one.shared)}), one seed, {_paired(one)}"
    judged = "sure over settings, not over seeds" if one.compared.sure else "may be chance"
    return f"{how} {over}" + ("" if alike else f": {judged}")


def _brief(settings: Sequence[str]) -> str:
    return ", ".join(setting.rpartition(".")[2] for setting in settings)


def _paired(one: Alike) -> str:
    tried = len(one.tried)
    of = "" if one.domains == tried else f"{one.domains} of "
    several = f" in {of}{tried} held-out domains" if tried > 1 else ""
    left = f", {one.left_out} left out" if one.left_out else ""
    left += f", both {GUESSED} in {one.guessed}" if 0 < one.guessed < one.pairs else ""
    return f"{one.pairs} pair{'s' if one.pairs > 1 else ''} of trials{several}{left}"


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
    return figure(f"{name}: {setting}", drawing, legend(drawn) if known else "", f"searched: {told['span']}")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def every_trial(content: Content) -> str:
    lines = []
    for domain, methods in content["found"].items():
        for name, one in methods.items():
            for trial in one["trials"]:
                numbers = [
                    str(trial["number"] + 1),
                    marked(share(trial["score"]), trial.get("at_chance")),
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
            found.add_row(escape(name), escape(domain), *_results(one, "\n"), escape(one["row"]))
    found.caption, found.caption_justify = escape("\n".join([*in_words(content), BEST])), "left"
    return found
