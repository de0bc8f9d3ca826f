"""A comparison as LaTeX: two kinds of tables that need the package booktabs and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairsilo.analysis.metrics import (
    AT_HOME,
    HEADLINES,
    TAILS,
    VARIANCE,
    by_held_out,
    guessed_by_held_out,
    spread_by_held_out,
    with_own_models,
)
from fairsilo.analysis.paired import compare_cells
from fairsilo.report.left_out import called, left_out
from fairsilo.report.repeats import repeats
from fairsilo.report.tables import (
    CHANCE,
    OF_OWN,
    means,
    of_comparison,
    paired_difference,
    percent,
    squared,
    with_spread,
)
from fairsilo.report.units import in_its_unit, unit

COLUMNS = ("generalisation", "personalisation", AT_HOME, "fairness", *TAILS)
OF_FAIRNESS = (AT_HOME, "fairness", *TAILS, VARIANCE)
DAGGER, ASTERISK = r"\dagger", r"\ast"


@in_its_unit(of_comparison)
def comparison_latex(comparison: Mapping[str, Any]) -> str:
    """A table of methods and answers, then for each answer one of methods and held-out domains."""
    tables = [_answers(comparison), *(_by_domain(comparison, key) for key in HEADLINES)]
    gone = "".join(f"% left out: {called(run)} ({' '.join(run['why'].split())})\n" for run in left_out(comparison))
    return gone + "\n".join(f"{one}\n" for one in tables if one)


def _answers(comparison: Mapping[str, Any]) -> str:
    """Means and deviations: over seeds behind the ±, over held-out domains in brackets."""
    rows, own = compare_cells(comparison["methods"], comparison["cells"]), with_own_models(comparison["cells"])
    brackets = "; in brackets: std over held-out domains" if repeats(comparison).domains.most > 1 else ""
    comments = [f"{unit().title}, {means(comparison)}{brackets}"]
    comments += _marks(any(row[key]["at_chance"] for row in rows for key in COLUMNS), bool(own))
    comments += [
        f"over silos: mean, standard deviation, means of the worst and best tenth, variance in {unit().squared}"
    ]
    head = ["Method", "Generalisation", "Personalisation", "Mean", "Std", "Worst tenth", "Best tenth", "Variance"]
    lines = []
    for row in rows:
        found = [(row[key], percent, key) for key in COLUMNS] + [(row[VARIANCE], squared, VARIANCE)]
        cells = [_number(one, how, row["method"] in own and key in OF_FAIRNESS) for one, how, key in found]
        lines.append([escaped_latex(row["method"]), *cells])
    return _tabular(comments, head, lines)


def _by_domain(comparison: Mapping[str, Any], key: str) -> str:
    """Each domain held out: mean ± deviation over seeds; then their mean, both deviations apart, and the paired
    difference. Nothing where no run has the answer."""
    cells, domains, first = comparison["cells"], list(comparison["held_out"]), comparison["methods"][0]
    rows, own = compare_cells(comparison["methods"], cells), with_own_models(cells) if key == "fairness" else []
    if all(row[key]["mean"] is None for row in rows):
        return ""
    several, behind = len(domains) > 1, repeats(comparison)
    names = ["no domain held out" if name == "-" else name for name in domains]
    head = ["Method", *map(escaped_latex, names)]
    head += ["Mean", *(["Std (seeds)"] if behind.varied else []), "Std (domains)"] if several else []
    head += [f"Minus {escaped_latex(first)}"]
    lines = []
    for row in rows:
        found, spreads = by_held_out(cells, row["method"], key), spread_by_held_out(cells, row["method"], key)
        guessed, mine = guessed_by_held_out(cells, row["method"], key), row["method"] in own
        line = [
            _number({"mean": found.get(name), "std": spreads.get(name), "at_chance": name in guessed}, percent, mine)
            for name in domains
        ]
        if several:
            line.append(_number({**row[key], "std": None, "std_domains": None}, percent, mine))
            line += [f"${percent(row[key]['std'])}$"] if behind.varied else []
            line.append(f"${percent(row[key]['std_domains'])}$")
        gain = paired_difference(row[key]).replace("±", r"\pm")
        lines.append([escaped_latex(row["method"]), *line, f"${gain}$" if gain else ""])
    of = (
        f"{key}: std over silos in {unit().points}, lower is more even"
        if key == "fairness"
        else f"{key}: {unit().title}"
    )
    over = f"mean +- std over {behind.over_seeds}" if behind.seeds.most > 1 else behind.over_seeds
    margin = " +- 95 % (over seeds)" if behind.paired else ""
    comments = [f"{of}, by held-out domain, {over}; last column: difference to {first}, paired{margin}"]
    comments += _marks(any(row[key]["at_chance"] for row in rows), bool(own))
    return _tabular(comments, head, lines)


def _marks(guessed: bool, own: bool) -> list[str]:
    """What the marks mean, where they occur."""
    of_chance, of_own = CHANCE.partition(": ")[2], OF_OWN
    return [f"{DAGGER}: {of_chance}"] * guessed + [f"{ASTERISK} ({of_own.replace(': ', '): ', 1)}"] * own


def _tabular(comments: list[str], head: list[str], lines: list[list[str]]) -> str:
    """With rules of booktabs; a comment says what the numbers are."""
    said = ["% " + " ".join(one.replace("±", "+-").split()) for one in comments]
    body = [" & ".join(line) + r" \\" for line in [head, *lines]]
    begin = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", body[0], r"\midrule"]
    return "\n".join([*said, *begin, *body[1:], r"\bottomrule", r"\end{tabular}"])


def _number(found: Mapping[str, Any], how: Callable[[float | None], str], own: bool) -> str:
    """A number with its deviations and its marks."""
    domains = rf"\;({how(found['std_domains'])})" if found.get("std_domains") is not None else ""
    marks = DAGGER * bool(found["at_chance"]) + ASTERISK * (own and found["mean"] is not None)
    written = with_spread(found, how).replace("±", r"\pm") + domains
    return f"${written}^{{{marks}}}$" if marks else f"${written}$"


def escaped_latex(text: str) -> str:
    """A text as LaTeX prints it."""
    special = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "|": r"\textbar{}"}
    return "".join(
        special.get(character) or (f"\\{character}" if character in "&%$#_{}" else character) for character in text
    )
