"""A comparison at a glance: what differs for sure, as pictures and in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairsilo.analysis.metrics import AT_HOME
from fairsilo.analysis.paired import Compared, compare_cells, together
from fairsilo.report.blocks import figure, figures, paragraph, section
from fairsilo.report.charts import emphasised, legend, scatter_chart, text, usable
from fairsilo.report.forest import Effect, forest_chart
from fairsilo.report.tables import of_comparison
from fairsilo.report.units import in_its_unit, unit

Content = Mapping[str, Any]
ROUNDING = 1e-9
Found = Mapping[str, Mapping[str, Compared]]
ANSWERS = {
    "generalisation": ("Generalise", "the global model on the held-out domain"),
    "personalisation": ("Personalise", "silos' own models at home"),
    "fairness": ("Fair", "standard deviation over silos, less is more even"),
}


def glance(content: Content) -> str:
    """The section that opens the page; nothing where a single method was run."""
    methods = content["methods"]
    if len(methods) < 2:
        return ""
    found = together(methods, content["cells"])
    drawn = []
    for key, some in found.items():
        title, what = ANSWERS[key]
        label = f"{title}: {what}, minus {methods[0]}"
        effects = [
            Effect(name, scaled(one.difference.mean), scaled(one.difference.margin)) for name, one in some.items()
        ]
        chart = forest_chart(effects, title=label, x_label=unit().points, decimals=decimals())
        drawn.append(figure(title, chart, caption=f"{label}."))
    pictures = figures(*drawn, trade(content))
    return section("glance", "At a glance", verdict(methods[0], found), pictures, in_words(content, found))


def scaled(value: float | None) -> float | None:
    return None if value is None else unit().factor * value


def decimals() -> int:
    return 1 if unit().factor != 1 else 3


def verdict(first: str, found: Found) -> str:
    """What is sure, in a few sentences."""
    if not _looked(found):
        return paragraph(
            "No difference has an interval, so that each may be chance: it takes several seeds, whatever the number of "
            "held-out domains."
        )
    told = _told(first, found, sure=True)
    return _listed(told) if told else paragraph(f"Nothing differs from {first} for sure.")


def in_words(content: Content, found: Found) -> str:
    """All comparisons as sentences, folded away, with what the intervals are."""
    words, told = margins(content, found), _told(content["methods"][0], found, sure=False)
    return (
        f"{paragraph(words, 'quiet') if words else ''}<details><summary>In words</summary>\n{_listed(told)}</details>\n"
    )


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
        f"{paired}; lines are intervals (95 %) over {over}, each by itself. A difference is called sure where chance "
        f"would give it in less than one of twenty cases, corrected for all {_looked(found)} comparisons (Holm)."
    )


@in_its_unit(of_comparison)
def surely(content: Content) -> list[str]:
    """For a terminal: what differs from the first method for sure; nothing where there is one seed."""
    found = together(content["methods"], content["cells"])
    looked = _looked(found)
    if not looked:
        return []
    first, told = content["methods"][0], _told(content["methods"][0], found, sure=True)
    count = "one comparison" if looked == 1 else f"{looked} comparisons, corrected for their number"
    return told or [f"nothing differs from {first} for sure ({count})"]


def _told(first: str, found: Found, *, sure: bool) -> list[str]:
    looked = [(key, name, one) for key, some in found.items() for name, one in some.items()]
    return [sentence(name, first, key, one) for key, name, one in looked if one.sure or not sure]


def sentence(name: str, first: str, key: str, one: Compared) -> str:
    """One comparison in plain words."""
    mean, margin, even = one.difference.mean, one.difference.margin, key == "fairness"
    verb = {"generalisation": "generalises", "personalisation": "personalises", "fairness": "is"}[key]
    if abs(mean) <= ROUNDING and margin is None:
        return f"{name} {verb} as {'even' if even else 'well'} as {first}"
    good = mean < 0 if even or not unit().higher else mean > 0
    word = ("more" if good else "less") + " even" if even else "better" if good else "worse"
    much = " ± ".join(f"{abs(value) * unit().factor:.{decimals()}f}" for value in (mean, margin) if value is not None)
    judged = "sure" if one.sure else "may be chance" if one.seeds > 1 else "one seed, which may be chance"
    return f"{name} {verb} {word} than {first} by {much} {unit().points}: {judged}"


def trade(content: Content) -> str:
    """Methods by two of the answers: outside and at home, or where no domain was held out at home and how even."""
    rows = compare_cells(content["methods"], content["cells"])
    outside = any(usable(row["generalisation"]["mean"]) for row in rows)
    across, up = ("personalisation", "generalisation") if outside else (AT_HOME, "fairness")
    names = {
        "personalisation": "silos' own models at home",
        "generalisation": "held-out domain",
        AT_HOME: "mean over silos",
        "fairness": "standard deviation over silos",
    }
    factor = unit().factor
    points = {
        row["method"]: [(factor * row[across]["mean"], factor * row[up]["mean"])]
        for row in rows
        if usable(row[across]["mean"]) and usable(row[up]["mean"])
    }
    if len(points) < 2:
        return ""
    series = emphasised(points)
    label = "Outside and at home" if outside else "At home and how even"
    drawn = scatter_chart(
        series, title=label, x_label=f"{names[across]}, {unit().word}", y_label=f"{names[up]}, {unit().word}"
    )
    return figure(label, drawn, legend(series), "Each point is a method, mean over its runs.")
