"""Results by group, such as sex or scanner: a section of the page, and tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from fairsilo.analysis.groups import KINDS, judged
from fairsilo.core.disclosure import MINIMUM
from fairsilo.report.bars import Bar, bar_chart
from fairsilo.report.blocks import (
    Run,
    cells,
    figure,
    figures,
    heads,
    kind_of,
    pair,
    panel,
    paragraph,
    points,
    section,
    share,
    table,
)
from fairsilo.report.sections import swatches
from fairsilo.report.texts import percent, plain, text
from fairsilo.report.units import shown_as, unit

HEADS = {"global": "global", "personal": "own models", "unseen": "unseen"}
ENDS = (("gap", "gap, best to worst"), ("std", "standard deviation"))
Found = Mapping[str, Any]  # of one column, as `analysis.groups.by_group` gives it


def kinds_in(found: Sequence[Found]) -> list[str]:
    """The kinds of results that there are."""
    return [kind for kind in KINDS if any(one.get(kind) for one in found)]


def left_out_words(found: Found) -> str:
    """How many samples no group of the table holds."""
    counts = (("silos that trained", found["left_out"]), ("unseen silos", found["unseen_left_out"]))
    told = [f"{count:,} of the {whose}" for whose, count in counts if count]
    if not told:
        return ""
    return (
        f"Test samples left out: {' and '.join(told)}. A silo does not tell of groups with fewer than {MINIMUM} test "
        "samples, nor of one more where theirs would follow by subtraction."
    )


# ------------------------------------------------------------------------------------------------------------ the page
def groups(run: Run, baseline: Run | None) -> str:
    """One table and one drawing for each column; nothing where no groups were asked for."""
    columns = run.summary.get("groups") or {}
    if not columns:
        return ""
    about = (
        f"{run.metric.capitalize()} by group, over all test samples of a group: the silos' sums are added up before "
        "the metric is computed. The global and the silos' own models are measured at the silos that trained, and "
        "the global one (adapted, where the method does so) at the unseen silos. Small groups differ by chance: below "
        "each result its 95 % interval from the number of test samples."
    )
    return section("groups", "Group by group", paragraph(about), *(_column(run, baseline, name) for name in columns))


def _column(run: Run, baseline: Run | None, column: str) -> str:
    runs = [(item, colour, (item.summary.get("groups") or {}).get(column)) for item, colour in pair(run, baseline)]
    known = [(item, colour, found) for item, colour, found in runs if found]
    kinds = kinds_in([found for _, _, found in known])
    kind = judged(run.summary["about"], known[0][2])
    said = [_spread_words(item, found, kind) for item, _, found in known]
    drawn = figures(_chart(column, known, kind, run.metric), panel(*said, left_out_words(known[0][2])))
    return f"<h3>By {text(column)}</h3>\n{_table(column, known, kinds)}{drawn}"


def _table(column: str, runs: Sequence[tuple[Run, int, Found]], kinds: Sequence[str]) -> str:
    first = runs[0][2]
    unseen = "unseen" in kinds
    counted = ["test samples", *(["unseen test samples"] if unseen else [])]
    names = [HEADS[kind] for kind in kinds]
    head = f'<tr><th scope="col">{text(column)}</th>{heads(counted)}{heads(names, True) * len(runs)}</tr>'
    if len(runs) > 1:
        above = "".join(
            f'<th class="group" scope="colgroup" colspan="{len(kinds)}">{text(item.method)}</th>' for item, _, _ in runs
        )
        head = f'<tr><td colspan="{1 + len(counted)}"></td>{above}</tr>{head}'
    rows = []
    for value, of in first["values"].items():
        samples = [f"{of['samples']:,}", *([f"{of['unseen_samples']:,}"] if unseen else [])]
        row = f'<th scope="row">{text(value)}</th>{cells(samples)}'
        row += "".join(_results(found, value, kinds) for _, _, found in runs)
        rows.append(f"<tr>{row}</tr>\n")
    for key, words in ENDS:
        row = f'<th scope="row">{text(words)}</th>{cells([""] * len(counted))}'
        for _, _, found in runs:
            row += cells([points(found[kind][key]) if _several(found, kind) else "–" for kind in kinds], True)
        rows.append(f"<tr>{row}</tr>\n")
    return table(head, rows)


def _several(found: Found, kind: str) -> bool:
    """Whether there are groups to compare."""
    return sum(of[kind] is not None for of in found["values"].values()) > 1


def _is_worst(found: Found, kind: str, value: str) -> bool:
    return _several(found, kind) and found[kind]["gap"] > 0 and bool(found[kind]["worst_group"] == value)


def _results(found: Found, value: str, kinds: Sequence[str]) -> str:
    of = found["values"].get(value, {})
    drawn = ""
    for place, kind in enumerate(kinds):
        mark = '<small class="bad">worst</small>' if _is_worst(found, kind, value) else ""
        first = " first" if place == 0 else ""
        ends = (of.get("intervals") or {}).get(kind)
        below = f"<small>{points(ends[0])} to {points(ends[1])}</small>" if ends else ""
        drawn += f'<td class="number{first}">{text(share(of.get(kind)))}{below}{mark}</td>'
    return drawn


def _chart(column: str, runs: Sequence[tuple[Run, int, Found]], kind: str, metric: str) -> str:
    factor, form = unit().factor, percent if unit().sign else plain
    shown = [kind, *(["unseen"] if kind != "unseen" and any(found["unseen"] for _, _, found in runs) else [])]

    def bar(item: Run, colour: int, found: Found, value: str, of: str) -> Bar:
        result = found["values"].get(value, {}).get(of)
        label = f"{item.method}, {HEADS[of]}"
        return Bar(label, None if result is None else result * factor, colour, of == "unseen")

    drawn = [
        (value, [bar(item, colour, found, value, of) for item, colour, found in runs for of in shown])
        for value in runs[0][2]["values"]
    ]
    means = [
        Bar(f"mean over groups, {item.method}", found[kind]["mean"] * factor, colour)
        for item, colour, found in runs
        if found[kind]
    ]
    title = f"{'Own models' if kind == 'personal' else 'Global model'} by {column}"
    high = 100.0 if unit().sign else None
    chart = bar_chart(drawn, title=title, x_label=f"{metric}{unit().label}", form=form, high=high, means=means)
    hollow = "hollow: at the unseen silos" if len(shown) > 1 else ""
    return figure(title, chart, swatches([(item.method, colour) for item, colour, _ in runs], hollow))


def _spread_words(run: Run, found: Found, kind: str) -> str:
    even = found[kind]
    if not _several(found, kind):
        return f"{run.method}: a single group has a result, so there is nothing to compare."
    return (
        f"{run.method}: worst {even['worst_group']} {share(even['worst'])}, best {even['best_group']} "
        f"{share(even['best'])}, a gap of {points(even['gap'])} {unit().points}; {share(even['mean'])} on average over "
        f"the groups, with a {kind_of(run)} standard deviation of {points(even['std'])} {unit().points}."
    )


# -------------------------------------------------------------------------------------------------------- the terminal
def group_tables(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Table]:
    """A table for each column, of a method and of what was trained beside it; none where no groups were asked for."""
    with shown_as(runs[0][1]):
        return [_terminal(runs, column) for column in runs[0][1].get("groups") or {}]


def _terminal(runs: Sequence[tuple[str, Mapping[str, Any]]], column: str) -> Table:
    """The model that results are about, at home and at unseen silos; the page has all."""
    known = [(name, summary["groups"][column]) for name, summary in runs if column in (summary.get("groups") or {})]
    first = known[0][1]
    home = judged(str(runs[0][1]["about"]), first)
    kinds = [kind for kind in kinds_in([found for _, found in known]) if kind in (home, "unseen")]
    unseen = "unseen" in kinds
    drawn = Table(title=f"by {escape(column)} — {unit().title}, over all samples of a group", title_justify="left")
    drawn.add_column(escape(column))
    drawn.add_column("samples + unseen" if unseen else "samples", justify="right")
    for name, _ in known:
        for kind in kinds:
            drawn.add_column(f"{escape(name)}, {HEADS[kind]}", justify="right")
    last = list(first["values"])[-1:]
    for value, of in first["values"].items():
        samples = f"{of['samples']:,}" + (f" + {of['unseen_samples']:,}" if unseen else "")
        results = [_marked(found, value, kind) for _, found in known for kind in kinds]
        drawn.add_row(escape(value), samples, *results, end_section=[value] == last)
    for key, _ in ENDS:
        ends = [
            unit().number(found[kind][key]) if _several(found, kind) else "-" for _, found in known for kind in kinds
        ]
        drawn.add_row(key, "", *ends, style="bold")
    drawn.caption, drawn.caption_justify = left_out_words(first) or None, "left"
    return drawn


def _marked(found: Found, value: str, kind: str) -> str:
    result = found["values"].get(value, {}).get(kind)
    if result is None:
        return "-"
    return unit().number(result) + (" worst" if _is_worst(found, kind, value) else "")


def measured_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What `fairsilo evaluate` found by group, domain by domain."""
    drawn = Table(title=f"by group, {unit().title}", title_justify="left")
    for column in ("domain", "model", "column", "value"):
        drawn.add_column(column)
    for column in ("metric", "samples"):
        drawn.add_column(column, justify="right")
    for row in rows:
        for column, values in row.get("groups", {}).items():
            for value, found in values.items():
                metric = "-" if found["metric"] is None else unit().number(found["metric"])
                names = map(escape, (row["domain"], row["model"], column, value))
                drawn.add_row(*names, metric, f"{found['samples']:,}")
    return drawn
