"""What `fairsilo advise` found, as sentences, a table and a page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from fairsilo import __version__
from fairsilo.analysis.metrics import HEADLINES
from fairsilo.analysis.paired import SURE, compare_cells
from fairsilo.analysis.shift import farthest, typical
from fairsilo.report.blocks import (
    document,
    figure,
    figures,
    heading,
    heads,
    listed,
    paragraph,
    points,
    section,
    table,
)
from fairsilo.report.charts import duration, size, text
from fairsilo.report.forest import Effect, forest_chart, told
from fairsilo.report.glance import ANSWERS, decimals, scaled
from fairsilo.report.units import in_its_unit, unit
from fairsilo.runs.folder import RunFolder

PAGE = "advice.html"
Content = Mapping[str, Any]  # as `Advice.as_dict` has it
DOES = {"generalisation": "generalises", "personalisation": "personalises", "fairness": "is more even over silos"}


def _metric(content: Content, *_: Any) -> Mapping[str, Any]:
    return {"metric": content["metric"]["name"], "share": content["metric"]["share"]}


def write_advice(folder: Path) -> Path:
    """The page beside `advice.json`."""
    return RunFolder(folder).write_text(PAGE, page(RunFolder(folder).read_json("advice.json")))


# ----------------------------------------------------------------------------------------------------------- sentences
@in_its_unit(_metric)
def sentences(content: Content) -> list[str]:
    """What to take and why, in plain words; the first is the answer."""
    found, plain = content["verdict"], content["methods"][0]
    best = content["recommended"]
    told_ = [_answer(content, best, plain)]
    for key, name in found["others"].items():
        told_.append(f"If that alone counts: {name} {_gain(content, key, name)}.")
    told_ += [_own(found["own"], plain)] if found["own"] else []
    told_ += [_alone(found)] if found["alone"] else []
    told_ += _limits(content)
    return told_


def _answer(content: Content, best: str, plain: str) -> str:
    found = content["verdict"]
    if best == plain and found["personal"]:
        return (
            f"Take {plain}, and let silos use models of their own at home: alone they are better off there than with "
            "its shared model. No method is better for sure."
        )
    if best == plain:
        looked = sum(len(some) for some in found["compared"].values())
        others = listed(content["methods"][1:])
        return f"Take {plain}: no difference found that is sure, in {looked} comparisons with {others}."
    won = [_gain(content, key, best) for key in found["wins"]]
    if not won:
        return (
            f"Take {best}, which gives silos models of their own: alone they are better off at home than with "
            f"{plain}'s shared model. Against {plain} itself no difference is sure."
        )
    worse = [DOES[key] for key in found["loses"]]
    cost = f" It has no result, or a worse one, for: {listed(worse)}." if worse else ""
    return f"Take {best}: it {'; it '.join(won)}.{cost}"


def _gain(content: Content, key: str, name: str) -> str:
    """Such as `generalises better than fedavg by 3.1 ± 1.2 points`."""
    one = content["verdict"]["compared"][key][name]["difference"]
    much = f"{points(abs(one['mean']))}" + (f" ± {points(one['margin'])}" if one["margin"] is not None else "")
    better = "" if key == "fairness" else " better"
    return f"{DOES[key]}{better} than {content['methods'][0]} by {much} {unit().points}"


def _judged(one: Mapping[str, Any]) -> str:
    p = one["difference"]["p"]
    return "sure" if p is not None and p < SURE else "not sure"


def _amount(one: Mapping[str, Any]) -> str:
    mean, margin = one["difference"]["mean"], one["difference"]["margin"]
    return points(abs(mean)) + (f" ± {points(margin)}" if margin is not None else "") + f" {unit().points}"


def _own(own: Mapping[str, Any], plain: str) -> str:
    ahead = (own["difference"]["mean"] > 0) == unit().higher
    which = "better" if ahead else "worse"
    return f"At home silos' own models are {which} than {plain}'s shared one by {_amount(own)} ({_judged(own)})."


def _alone(found: Mapping[str, Any]) -> str:
    one = found["alone"]
    ahead = (one["difference"]["mean"] > 0) == unit().higher
    which = "better" if ahead else "worse"
    return (
        f"Silos that train alone are {which} off at home than with the shared model by {_amount(one)} ({_judged(one)})."
    )


def _limits(content: Content) -> list[str]:
    """What stands behind the answer, and what it does not say."""
    (done, asked), domains = content["rounds"], [one for one in content["domains"] if one != "-"]
    runs = f"{len(content['cells'])} pilots of {done} rounds"
    short = (
        f" in place of your {asked}: methods that need longer to show what they can may be judged too early"
        if done < asked
        else ""
    )
    held = f"{listed(domains)} held out in turn" if domains else "no domain held out, as fewer than three train"
    missing = content["possible"] - len(content["domains"])
    held += f"; the time did not suffice for {missing} more divisions" if missing else ""
    told_ = [f"It rests on {runs}{short}; {len(content['seeds'])} seeds, {held}; test data took no part."]
    if len(content["seeds"]) < 3:
        told_.append("With fewer than three seeds little can be sure: a longer --budget makes room for more.")
    told_ += [f"Not tried: {name} ({why})." for name, why in content["left_out"].items()]
    return told_


@in_its_unit(_metric)
def shift_sentences(content: Content) -> list[str]:
    """How far the silos are apart."""
    shift, found = content["shift"], []
    labels, features = ({(a, b): value for a, b, value in shift[key]} for key in ("labels", "features"))
    if labels:
        pair = farthest(labels)
        found.append(
            f"Labels: to have the same mixture of classes two silos would have to change "
            f"{100 * (typical(labels) or 0):.0f} % of theirs on average, {' and '.join(pair or ())} "
            f"{100 * max(labels.values()):.0f} %."
        )
    found.append(f"Sizes: the largest silo has {shift['sizes']:.1f} times the training samples of the smallest.")
    if features:
        pair = farthest(features)
        found.append(
            f"Features: proxy A-distance {typical(features):.2f} on average, {max(features.values()):.2f} between "
            f"{' and '.join(pair or ())}; 0: a linear rule cannot tell silos apart, 2: it always can."
        )
    return found


# -------------------------------------------------------------------------------------------------------------- tables
def _rows(content: Content) -> list[tuple[str, list[list[str]]]]:
    """Method -> its three answers, each with the difference to the plain one; time and bytes a round, likewise."""
    plain, costs = content["methods"][0], content["costs"]
    found = []
    for row in compare_cells(content["methods"], content["cells"]):
        name, values = row["method"], []
        for key in HEADLINES:
            one = row[key]
            shown = ["–" if one["mean"] is None else points(one["mean"])]
            if name != plain and one["difference"] is not None:
                shown.append(told(Effect(name, scaled(one["difference"]), scaled(one["margin"])), decimals()))
            values.append(shown)
        for key, form in (("seconds", duration), ("bytes", size)):
            spent, usual = costs[name][key], costs[plain][key]
            times = [f"{spent / usual:.2g} ×"] if usual and name != plain else []
            values.append([form(spent), *times])
        found.append((name, values))
    return found


COLUMNS = ("generalise", "personalise", "spread", "time", "bytes")


@in_its_unit(_metric)
def advice_table(content: Content) -> Table:
    """For a terminal."""
    title = f"{unit().word}; beneath: difference to {content['methods'][0]} ± 95 %; time and bytes are of a round"
    table_ = Table(title=title, title_justify="left")
    table_.add_column("method", overflow="fold")
    for name in COLUMNS:
        table_.add_column(name, justify="right", no_wrap=True)
    for name, values in _rows(content):
        table_.add_row(escape(name), *("\n".join(some) for some in values))
    return table_


def _cell(lines: Sequence[str]) -> str:
    first, *rest = map(text, lines)
    return f'<td class="number">{first}{"".join(f"<small>{one}</small>" for one in rest)}</td>'


@in_its_unit(_metric)
def page(content: Content) -> str:
    """The whole document."""
    answer, *rest = sentences(content)
    top = heading("fairsilo advise", f"Take {content['recommended']}", answer, *rest)
    drawn = []
    for key, some in content["verdict"]["compared"].items():
        title, what = ANSWERS[key]
        label = f"{title}: {what}, minus {content['methods'][0]}"
        effects = [
            Effect(name, scaled(one["difference"]["mean"]), scaled(one["difference"]["margin"]))
            for name, one in some.items()
        ]
        drawn.append(
            figure(
                title,
                forest_chart(effects, title=label, x_label=unit().points, decimals=decimals()),
                caption=f"{label}.",
            )
        )
    rows = [
        f'<tr><th scope="row">{text(name)}</th>{"".join(map(_cell, values))}</tr>\n' for name, values in _rows(content)
    ]
    head = f'<tr><th scope="col">method</th>{heads(COLUMNS)}</tr>'
    sends = "".join(
        f"<li>{text(name)}: {text('; '.join(one['sends']) or 'nothing else')}</li>"
        for name, one in content["costs"].items()
    )
    words = (
        f"{unit().word.capitalize()}; beneath: the paired difference to {content['methods'][0]} ± 95 %. A "
        "difference is sure where chance gives it in less than one of twenty cases, corrected for all of them (Holm)."
    )
    body = (
        top
        + section("pilots", "What the pilots showed", paragraph(words), figures(*drawn), table(head, rows))
        + section("shift", "How far the silos are apart", *map(paragraph, shift_sentences(content)))
        + section("sent", "What is sent besides the model", f'<ul class="notes">{sends}</ul>')
    )
    took = f"fairsilo {__version__}; took {duration(content['seconds'])}"
    below = f"<footer>{paragraph(took)}</footer>\n"
    return document(f"Take {content['recommended']}", body, below)
