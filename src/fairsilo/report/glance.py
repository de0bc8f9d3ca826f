"""A comparison at a glance: what differs for sure, as pictures and in sentences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fairsilo.analysis.metrics import AT_HOME, at_chance, judged_fairness, with_own_models
from fairsilo.analysis.paired import Compared, compare_cells, together
from fairsilo.report.blocks import figure, figures, listed, paragraph, section
from fairsilo.report.forest import Effect, forest_chart, sure_key
from fairsilo.report.repeats import repeats
from fairsilo.report.scatters import scatter_chart
from fairsilo.report.series import COLOURS, Series, emphasised, legend
from fairsilo.report.tables import marked_own, of_comparison
from fairsilo.report.texts import signed, text, usable
from fairsilo.report.units import in_its_unit, unit

Content = Mapping[str, Any]
ROUNDING = 1e-9
Found = Mapping[str, Mapping[str, Compared]]
ANSWERS = {
    "generalisation": ("Generalise", "the global model on the held-out domain"),
    "personalisation": ("Personalise", "silos' own models at home"),
    "fairness": ("Fair", "standard deviation over silos, less is more even"),
}
OUTSIDE_AND_AT_HOME = {"generalisation": "on the held-out domain", "personalisation": "by silos' own models at home"}
LEAST = 5.0  # points that an axis of shares has at least


def glance(content: Content) -> str:
    """The section that opens the page; nothing where a single method was run."""
    methods = content["methods"]
    if len(methods) < 2:
        return ""
    found = together(methods, content["cells"])
    drawn, mine = [], with_own_models(content["cells"])
    for key, some in found.items():
        title, what = ANSWERS[key]
        own = mine if key == "fairness" else []
        label = f"{title}: {what}, minus {told_apart(methods[0], some, own)}"
        effects = [
            Effect(marked_own(name, own), scaled(one.difference.mean), scaled(one.difference.margin), sure=one.sure)
            for name, one in some.items()
        ]
        chart = forest_chart(effects, title=label, x_label=unit().points, decimals=decimals())
        drawn.append(figure(title, chart, caption=f"{label}."))
    said = margins(content, found)
    pictures = figures(*drawn) + sure_key(_looked(found)) if drawn else ""
    pictures += paragraph(said, "quiet") if said else ""
    pictures += paragraph(unfair) if (unfair := without_fairness(content)) else ""
    pictures += paragraph(even) if (even := no_further_apart(content)) else ""
    pictures += figures(*trades(content))
    guessed = paragraph(unlearned) if (unlearned := not_learned(content)) else ""
    return section("glance", "At a glance", guessed, verdict(content, found), pictures, in_words(content, found))


def not_learned(content: Content) -> str:
    """Where no run of any method is better than guessing, and what helps; empty where there is no such answer."""
    rows = compare_cells(content["methods"], content["cells"])
    where = []
    for key, place in OUTSIDE_AND_AT_HOME.items():
        shown = [row for row in rows if row[key]["mean"] is not None]
        if shown and all(row[key]["at_chance"] == row["cells"] for row in shown):
            where.append(place)
    if not where:
        return ""
    return (
        f"Nothing was learned {' and '.join(where)}: no run is better than guessing there, so that differences say "
        "nothing about methods. More rounds (rounds=...) or another learning rate (lr=...) may help."
    )


def without_fairness(content: Content) -> str:
    """Why the fairness of some methods is not among the pictures; empty where it is of all."""
    first, *others = content["methods"]
    runs: dict[str, list[bool]] = {}
    for cell in content["cells"]:
        runs.setdefault(cell["method"], []).append(at_chance(cell["summary"])["fairness"])
    found = [first] if any(runs.get(first, ())) else [name for name in others if any(runs.get(name, ()))]
    if not found:
        return ""
    where = "at chance level" if all(all(runs[name]) for name in found) else "at chance level in some runs"
    who = listed(found, len(found))
    if found != [first] and len(found) < len(others):
        return f"Fairness of {who} is not compared: {where}, and an even result there is not fair."
    verb = "is" if len(found) == 1 else "are"
    return f"Fairness is not compared: {who} {verb} {where}, and an even result there is not fair."


def no_further_apart(content: Content) -> str:
    """Methods of which no run has silos further apart than chance makes them; empty where there is none."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for cell in content["cells"]:
        runs.setdefault(cell["method"], []).append(judged_fairness(cell["summary"]))
    found = [name for name in content["methods"] if all(one.get("apart") is False for one in runs.get(name, [{}]))]
    if not found:
        return ""
    spreads = [unit().factor * one["std_if_equal"] for name in found for one in runs[name]]
    least, most = (f"{value:.{decimals()}f}" for value in (min(spreads), max(spreads)))
    equal = least if least == most else f"{least} to {most}"
    who = "any method" if len(found) == len(content["methods"]) > 1 else listed(found, len(found))
    return (
        f"In no run of {who} are the silos further apart than equally good ones would seem on these test data (a "
        f"standard deviation of {equal} {unit().points}): one run does not show that they are served unevenly. A "
        "difference between methods that share the test data can still be sure."
    )


def told_apart(name: str, others: Collection[str], own: Collection[str]) -> str:
    """A method with whose models its fairness is of, where it or one of the others is about silos' own models."""
    if not {name, *others} & set(own):
        return name
    return marked_own(name, own) if name in own else f"{name} (global model)"


def scaled(value: float | None) -> float | None:
    return None if value is None else unit().factor * value


def decimals() -> int:
    return 1 if unit().factor != 1 else 3


def verdict(content: Content, found: Found) -> str:
    """What is sure, in a few sentences."""
    if not found:
        first = content["methods"][0]
        return paragraph(f"Nothing to compare: no method has a result where {first} has one, by domain and seed.")
    if not _looked(found):
        return paragraph(
            "No difference has an interval, so that each may be chance: it takes several seeds, whatever the number of "
            "held-out domains."
        )
    told = _told(content, found, sure=True)
    return _listed(told) if told else paragraph(f"Nothing differs from {content['methods'][0]} for sure.")


def in_words(content: Content, found: Found) -> str:
    """All comparisons as sentences, folded away; nothing where there are none."""
    if not found:
        return ""
    return f"<details><summary>In words</summary>\n{_listed(_told(content, found, sure=False))}</details>\n"


def _listed(told: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{text(one)}</li>" for one in told) + "</ul>\n"


def _all(found: Found) -> list[Compared]:
    return [one for some in found.values() for one in some.values()]


def _looked(found: Found) -> int:
    """How many comparisons are corrected for."""
    return sum(one.difference.repeated for one in _all(found))


def margins(content: Content, found: Found) -> str:
    """What a picture's lines are."""
    if all(one.difference.margin is None for one in _all(found)):
        return ""
    paired = "Differences are paired by seed"
    if content["held_out"] != ["-"]:
        paired = "Differences are paired by held-out domain and seed, and each domain counts once"
    over = "other seeds" if len(content["held_out"]) == 1 else "other seeds on these held-out domains"
    return (
        f"{paired}. Lines are intervals (95 %) over {over}, each of a single comparison. Sure is what chance would "
        f"give in less than one of twenty cases, corrected for all {_looked(found)} comparisons that are looked at "
        "(Holm), so that the line of a difference that may be chance can leave zero out."
    )


@in_its_unit(of_comparison)
def surely(content: Content) -> list[str]:
    """For a terminal: what was not learned, and what differs from the first method for sure, with several seeds."""
    return [*filter(None, [not_learned(content)]), *_surely(content)]


def _surely(content: Content) -> list[str]:
    found = together(content["methods"], content["cells"])
    looked = _looked(found)
    if not looked:
        return []
    first, told = content["methods"][0], _told(content, found, sure=True)
    count = "one comparison" if looked == 1 else f"{looked} comparisons, corrected for their number"
    if told and looked > 1:
        told.append(f"sure is corrected for all {looked} comparisons; an interval (± 95 %) is of one alone")
    return told or [f"nothing differs from {first} for sure ({count})"]


def _told(content: Content, found: Found, *, sure: bool) -> list[str]:
    first, mine, told = content["methods"][0], with_own_models(content["cells"]), []
    for key, some in found.items():
        own = mine if key == "fairness" else []
        for name, one in some.items():
            if one.sure or not sure:
                told.append(sentence(told_apart(name, [first], own), told_apart(first, [name], own), key, one))
    return told


def sentence(name: str, first: str, key: str, one: Compared) -> str:
    """One comparison in plain words."""
    mean, margin, even = one.difference.mean, one.difference.margin, key == "fairness"
    verb = {"generalisation": "generalises", "personalisation": "personalises", "fairness": "is"}[key]
    if not usable(mean):
        return f"{name} cannot be compared with {first} ({ANSWERS[key][0].lower()}): a result is no finite number"
    if abs(mean) <= ROUNDING and margin is None:
        return f"{name} {verb} as {'even' if even else 'well'} as {first}"
    good = mean < 0 if even or not unit().higher else mean > 0
    word = ("more" if good else "less") + " even" if even else "better" if good else "worse"
    much = " ± ".join(f"{abs(value) * unit().factor:.{decimals()}f}" for value in (mean, margin) if value is not None)
    judged = "sure" if one.sure else "may be chance" if one.seeds > 1 else "one seed, which may be chance"
    return f"{name} {verb} {word} than {first} by {much} {unit().points}: {judged}"


def trades(content: Content) -> list[str]:
    """Methods by two of the answers, as differences to the first: outside and at home, and at home and how even."""
    return [
        *trade(content, "Outside and at home", "personalisation", "generalisation"),
        *trade(content, "At home and how even", AT_HOME, "fairness"),
    ]


AXES = {
    "personalisation": "silos' own models at home",
    "generalisation": "held-out domain",
    AT_HOME: "mean over silos",
    "fairness": "standard deviation over silos",
}


def trade(content: Content, label: str, across: str, up: str) -> list[str]:
    """Differences cancel what all methods of a seed have in common, which spreads of the means would not."""
    first, rows = content["methods"][0], compare_cells(content["methods"], content["cells"])
    own = with_own_models(content["cells"]) if up == "fairness" else []
    points, reach, missing = {}, {}, []
    for row in rows:
        x, y = (_away(row, key, first) for key in (across, up))
        if x is None or y is None:
            missing += [row["method"]] * usable(row[up]["mean"])
            continue
        name = marked_own(row["method"], own)
        points[name] = [(x[0], y[0])]
        if x[1] is not None or y[1] is not None:
            reach[name] = (x[1] or 0.0, y[1] or 0.0)
    if len(points) < 2:
        return []
    few = content["methods"] if len(content["methods"]) <= COLOURS else []
    series = emphasised(points, [Series(marked_own(name, own), [], place) for place, name in enumerate(few, 1)])
    drawn = scatter_chart(
        series,
        title=label,
        x_label=f"{AXES[across]}, difference in {unit().points}",
        y_label=f"{AXES[up]}, difference in {unit().points}",
        form=lambda value: signed(f"{value:.{decimals()}f}"),
        least=LEAST if unit().factor == 100 else 0.0,
        reach=reach,
    )
    of = "the named methods" if len(points) > COLOURS else "the other methods"
    zero = told_apart(first, content["methods"], own)
    said = [f"Each point is a method, by its mean differences to {zero}, which is at zero."]
    seeds = {cell["seed"] for cell in content["cells"]}
    paired = "varies from seed to seed" if repeats(content).paired else "is of several seeds"
    without = "One seed" if len(seeds) == 1 else f"No difference {paired}"
    said += [f"Thin lines: intervals (95 %) of {of}." if reach else f"{without}, so that nothing shows the spread."]
    said += ["What is sure, the forest plots show."] if reach else []
    said += [f"Better is {'right' if unit().higher else 'left'} and {'up' if _upwards(up) else 'down'}."]
    said += [f"Without a comparable spread: {listed(missing, len(missing))}."] if missing else []
    return [figure(label, drawn, legend(series, points=True), " ".join(said))]


def _upwards(key: str) -> bool:
    return key != "fairness" and unit().higher


def _away(row: Mapping[str, Any], key: str, first: str) -> tuple[float, float | None] | None:
    """A method's difference to the first one with its margin; the first one's own is nothing."""
    if row["method"] == first:
        return (0.0, None) if usable(row[key]["mean"]) else None
    found = row[key]
    return (unit().factor * found["difference"], scaled(found["margin"])) if usable(found["difference"]) else None
