"""What `fairsilo advise` found, as sentences, a table and a page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from fairsilo import __version__
from fairsilo.advice.verdict import LOCAL
from fairsilo.analysis.chance import GUESSED
from fairsilo.analysis.metrics import AT_HOME, HEADLINES, at_chance, headline
from fairsilo.analysis.paired import Difference, compare_cells
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
from fairsilo.report.comparison_page import counted
from fairsilo.report.forest import Effect, forest_chart, sure_key, told
from fairsilo.report.glance import ANSWERS, decimals, scaled
from fairsilo.report.tables import CHANCE, beside_mean, explained
from fairsilo.report.texts import duration, size, text
from fairsilo.report.units import as_summarised, in_its_unit, unit
from fairsilo.runs.comparison import method_in
from fairsilo.runs.folder import RunFolder

PAGE = "advice.html"
Content = Mapping[str, Any]  # as `Advice.as_dict` has it
ENOUGH = 5  # seeds, below which a test of many comparisons hardly ever finds anything
LEARN_MORE = (
    "Give pilots more rounds (--rounds, or a longer --budget) or another learning rate (lr=...), in another folder "
    "(--out)."
)
DOES = {"generalisation": "generalises", "personalisation": "personalises", "fairness": "is more even over silos"}


def _metric(content: Content, *_: Any) -> Mapping[str, Any]:
    return as_summarised(content["metric"])


def write_advice(folder: Path) -> Path:
    """The page beside `advice.json`."""
    return RunFolder(folder).write_text(PAGE, page(RunFolder(folder).read_json("advice.json")))


# ----------------------------------------------------------------------------------------------------------- sentences
@in_its_unit(_metric)
def sentences(content: Content) -> list[str]:
    """What to take and why, in plain words; the first is the answer with what it costs."""
    found = content["verdict"]
    if not found["learned"]:
        return [_nothing_learned(content), *_limits(content)]
    told_ = [" ".join([_answer(content), *_costs(content)])]
    told_ += filter(None, (_guessing(content, key) for key in found["counts"] if key != "fairness"))
    told_ += [f"If that alone counts: {name} {_gain(content, key, name)}." for key, name in found["others"].items()]
    told_ += [
        f"Worse than {content['methods'][0]} for sure ({ANSWERS[key][0].lower()}): {listed(names)}."
        for key, names in found["worse"].items()
        if names
    ]
    shared = f"{content['methods'][0]}'s shared one"
    told_ += [_at_home(content, "silos' own models", shared, found["own"], ", by itself")]
    told_ += [_at_home(content, "models of silos that train alone", "the shared one", found["alone"], "")]
    return [*filter(None, told_), *_limits(content)]


def in_short(content: Content) -> str:
    """The answer in a few words."""
    if content["recommended"] is not None:
        return f"Take {content['recommended']}"
    if content["verdict"]["learned"]:
        return "No method to take"
    return "Most pilots did not learn" if _some_learned(content) else "The pilots did not learn"


def _some_learned(content: Content) -> bool:
    """Whether a single pilot is better than guessing in some answer that counts."""
    return any(
        headline(cell["summary"])[key] is not None and not at_chance(cell["summary"])[key]
        for cell in content["cells"]
        for key in content["verdict"]["counts"]
    )


def _nothing_learned(content: Content) -> str:
    """Instead of an answer, where there is none."""
    goal = content["verdict"]["counts"]
    about = f"{ANSWERS[goal[0]][0].lower()}, " if len(goal) == 1 else ""
    how = "by every method most are" if _some_learned(content) else "all are"
    return (
        f"{in_short(content)}: {how} no better than guessing ({about}{GUESSED}), so that nothing can be said of "
        f"methods. {LEARN_MORE}"
    )


def _guessing(content: Content, key: str) -> str:
    """Which methods are no better than guessing in an answer."""
    guess, answer = content["verdict"]["guessed"][key], ANSWERS[key][0].lower()
    if not guess:
        return ""
    others = [row for row in compare_cells(content["methods"], content["cells"]) if row["method"] not in guess]
    if any(row[key]["mean"] is not None for row in others):
        return f"In most pilots no better than guessing ({answer}, {GUESSED}): {listed(guess)}."
    return f"In most pilots no method is better than guessing ({answer}, {GUESSED}): of that nothing can be said."


def _answer(content: Content) -> str:
    found, plain, best = content["verdict"], content["methods"][0], content["recommended"]
    if best is None:
        return (
            f"{in_short(content)}: most pilots of {plain} are no better than guessing ({GUESSED}), and of the methods "
            f"that learned ({listed(found['learned'])}) none is better for sure without being worse elsewhere. "
            f"{LEARN_MORE}"
        )
    won = [_gain(content, key, best) for key in found["wins"]]
    if found["personal"]:
        more = f" It also {'; it '.join(won)}." if won else ""
        return (
            f"Take {best}, and let silos use models of their own at home: alone they are better off there than with "
            f"{plain}'s shared model, and no method is better for sure without being worse elsewhere.{more}"
        )
    if best == plain:
        if found["others"]:
            return (
                f"Take {plain}: no method is better for sure without being worse, for sure, in something that counts."
            )
        looked = counted(_looked(content), "comparison")
        return f"Take {plain}: no difference found that speaks for another method, in {looked}."
    worse = [ANSWERS[key][0].lower() for key in found["loses"]]
    cost = f" It is worse, or has no result, where this is asked: {listed(worse)}." if worse else ""
    return f"Take {best}: it {'; it '.join(won)}.{cost}"


def _costs(content: Content) -> list[str]:
    """What the recommended method takes and sends beside the plain one."""
    plain, best = content["methods"][0], content["recommended"]
    if best in (None, plain):
        return []
    spent, usual = content["costs"][best], content["costs"][plain]
    known = {key: word for key, word in (("seconds", "time"), ("bytes", "bytes")) if spent[key] and usual[key]}
    takes = [f"{_times(spent[key], usual[key])} the {word}" for key, word in known.items()]
    cost = [f"A round takes {' and '.join(takes)} of one of {plain}."] if takes else []
    sends = f"Besides the model it sends {'; '.join(spent['sends']) or 'nothing'}."
    return [*cost, "No model is sent." if method_in(best) == LOCAL else sends]


def _times(spent: float, usual: float) -> str:
    return f"{spent / usual:.2g} ×"


def _gain(content: Content, key: str, name: str) -> str:
    """Such as `generalises better than fedavg by 3.1 ± 1.2 points`."""
    one = content["verdict"]["compared"][key][name]["difference"]
    much = f"{points(abs(one['mean']))}" + (f" ± {points(one['margin'])}" if one["margin"] is not None else "")
    better = "" if key == "fairness" else " better"
    return f"{DOES[key]}{better} than {content['methods'][0]} by {much} {unit().points}"


def _at_home(content: Content, models: str, others: str, one: Mapping[str, Any] | None, how: str) -> str:
    """By how much one kind of model is ahead on silos' own data."""
    if one is None:
        return ""
    found = Difference(**one["difference"])
    much = points(abs(found.mean)) + (f" ± {points(found.margin)}" if found.margin is not None else "")
    if points(abs(found.mean)) == points(0.0) and not found.sure:
        return f"At home no difference found between {models} and {others} ({much} {unit().points})."
    ahead = "better" if (found.mean > 0) == content["metric"]["higher_is_better"] else "worse"
    sure = f"sure{how}" if found.sure else "not sure"
    return f"At home {models} are {ahead} than {others} by {much} {unit().points} ({sure})."


def _limits(content: Content) -> list[str]:
    """What stands behind the answer, and what it does not say."""
    (done, asked), domains = content["rounds"], [one for one in content["domains"] if one != "-"]
    runs = f"{counted(len(content['cells']), 'pilot')} of {counted(done, 'round')}"
    early = ": methods that need longer to show what they can may be judged too early"
    short = f" in place of your {asked}{early}" if done < asked else ""
    held = f"{listed(domains)} held out in turn" if domains else "no domain held out"
    seeds = len(content["seeds"])
    told_ = [
        f"It rests on {runs}{short}; {counted(seeds, 'seed')}, {held}; test data took no part. Sure means: over other "
        "seeds, on these samples, in less than one of twenty cases by chance, corrected for all comparisons that count."
    ]
    if seeds < ENOUGH:
        more = "--seeds allows more, and a longer --budget makes room for them"
        told_.append(f"With fewer than {ENOUGH} seeds little can be sure: {more}.")
    rows = compare_cells(content["methods"], content["cells"])
    told_ += filter(None, (_not_compared(content, key, rows, bool(domains)) for key in content["verdict"]["counts"]))
    if reserved := content["reserved"]:
        told_.append(f"Not used at all, so that you can report on it: {listed(reserved)} (data.held_out).")
    told_ += [f"Not held out: {name} ({why})." for name, why in content["skipped"].items()]
    return told_ + [f"Not tried: {name} ({why})." for name, why in content["left_out"].items()]


def _not_compared(content: Content, key: str, rows: Sequence[Mapping[str, Any]], outside: bool) -> str:
    """Why an answer that counts was compared for no method, or for some alone."""
    compared, answer = content["verdict"]["compared"].get(key, {}), ANSWERS[key][0].lower()
    if key == "generalisation" and not outside:
        return f"Not compared: {answer} (no domain was held out)."
    guess = [row for row in rows if key == "fairness" and row[key]["at_chance"]]
    named = [f"{row['method']} in {row[key]['at_chance']} of {counted(row['cells'], 'run')}" for row in guess]
    why = f"at chance, where an even result is not fair: {listed(named)}" if named else "runs have no number to compare"
    if compared:  # then the plain one is not at chance
        names = listed(row["method"] for row in guess)
        return f"Not compared: {answer}, of {names} ({why})." if names else ""
    return f"Not compared: {answer} ({why})."


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
            centre = row[AT_HOME]["mean"]
            shown = ["–" if one["mean"] is None else beside_mean(points(one["mean"]), key, centre)]
            other = content["verdict"]["compared"].get(key, {}).get(name)
            if other is not None:
                mean, margin = (scaled(other["difference"][part]) for part in ("mean", "margin"))
                shown.append(told(Effect(name, mean, margin), decimals()))
            if one["at_chance"]:
                few = one["at_chance"] < row["cells"]
                shown += [GUESSED, *([f"in {one['at_chance']} of {counted(row['cells'], 'run')}"] if few else [])]
            values.append(shown)
        for key, form in (("seconds", duration), ("bytes", size)):
            spent, usual = costs[name][key], costs[plain][key]
            if spent is None:  # pilots of one round, which also sets things up
                values.append(["–"])
                continue
            times = [_times(spent, usual)] if usual and name != plain else []
            values.append([form(spent), *times])
        found.append((name, values))
    return found


COLUMNS = ("generalise", "personalise", "spread", "time", "bytes")


@in_its_unit(_metric)
def advice_table(content: Content) -> Table:
    """For a terminal."""
    beneath = f"beneath: difference to {content['methods'][0]} ± 95 %"
    title = f"{unit().word}; spread: std over silos (mean); {beneath}; time and bytes are of a round"
    table_ = Table(title=title, title_justify="left")
    table_.add_column("method", overflow="fold")
    for name in COLUMNS:
        table_.add_column(name, justify="right", no_wrap=True)
    for name, values in _rows(content):
        table_.add_row(escape(name), *("\n".join(some) for some in values))
    return explained(table_)


def _cell(lines: Sequence[str]) -> str:
    first, *rest = map(text, lines)
    return f'<td class="number">{first}{"".join(f"<small>{one}</small>" for one in rest)}</td>'


def _forest(content: Content, key: str) -> str:
    """The differences of one answer, with the key that says what is sure."""
    title, what = ANSWERS[key]
    label = f"{title}: {what}, minus {content['methods'][0]}"
    found = {name: Difference(**one["difference"]) for name, one in content["verdict"]["compared"][key].items()}
    effects = [Effect(name, scaled(one.mean), scaled(one.margin), sure=one.sure) for name, one in found.items()]
    chart = forest_chart(effects, title=label, x_label=unit().points, decimals=decimals())
    together = key in content["verdict"]["counts"]
    tested = any(one.repeated for one in _together(content, together))
    return figure(title, chart, sure_key(_looked(content, together) if tested else 0), f"{label}.")


def _together(content: Content, counting: bool) -> list[Difference]:
    """The comparisons that are corrected together: all that count, silos alone at home among them, or all others."""
    found = content["verdict"]
    family = [
        one for key, some in found["compared"].items() if (key in found["counts"]) == counting for one in some.values()
    ]
    family += [found["alone"]] if counting and found["alone"] else []
    return [Difference(**one["difference"]) for one in family]


def _looked(content: Content, counting: bool = True) -> int:
    """How many comparisons are corrected for; of one seed, which tests nothing, how many there are."""
    family = _together(content, counting)
    return sum(one.repeated for one in family) or len(family)


@in_its_unit(_metric)
def page(content: Content) -> str:
    """The whole document."""
    answer, *rest = sentences(content)
    top = heading("fairsilo advise", in_short(content), answer, *rest)
    drawn = [_forest(content, key) for key in content["verdict"]["compared"]]
    found = _rows(content)
    rows = [f'<tr><th scope="row">{text(name)}</th>{"".join(map(_cell, values))}</tr>\n' for name, values in found]
    head = f'<tr><th scope="col">method</th>{heads(COLUMNS)}</tr>'
    sends = "".join(
        f"<li>{text(name)}: {text('; '.join(one['sends']) or 'nothing else')}</li>"
        for name, one in content["costs"].items()
    )
    first = content["methods"][0]
    words = f"{unit().word.capitalize()}; spread: the standard deviation over silos, in brackets the mean that it is "
    words += f"around; beneath: the difference to {first}, paired by seed and division."
    marked = any(GUESSED in some for _, values in found for some in values)
    said = paragraph(words) + (paragraph(f"{CHANCE}.") if marked else "")
    body = (
        top
        + section("pilots", "What the pilots showed", said, figures(*drawn), table(head, rows))
        + section("shift", "How far the silos are apart", *map(paragraph, shift_sentences(content)))
        + section("sent", "What is sent besides the model", f'<ul class="notes">{sends}</ul>')
    )
    took = f"fairsilo {__version__}; took {duration(content['seconds'])}"
    below = f"<footer>{paragraph(took)}</footer>\n"
    return document(in_short(content), body, below)
