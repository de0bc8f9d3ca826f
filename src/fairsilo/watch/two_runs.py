"""The page of two runs side by side, the second in the place that a baseline has in a report."""

from __future__ import annotations

import dataclasses
from typing import Any

from fairsilo.report.blocks import Run, listed, paragraph
from fairsilo.report.page import header, headline, silo_table
from fairsilo.report.sections import costs, curves, gap_section
from fairsilo.report.units import shown_in
from fairsilo.watch.pieces import Folders, address, top, whole
from fairsilo.watch.places import Places

ASIDE = ("method", "baseline", "engine.", "evaluate.examples", "evaluate.keep_local")  # may differ: how, what is kept


def pair_page(places: Places, chosen: Folders) -> str:
    """Curves and results of both, and every setting in which they differ."""
    back = ("All runs", "/")
    if len(chosen) != 2:
        title = "Two runs side by side"
        words = f"tick two runs to compare them; {len(chosen) or 'none'} ticked"
        return whole(title, top(title, paragraph(words)), [back])

    def draw() -> tuple[str]:
        one, other = chosen.values()
        first, second = places.read(one), places.read(other, like=one)
        differ = differences(first, second)
        if first.method == second.method:
            first, second = (
                dataclasses.replace(run, method=f"{run.method} ({name})")
                for run, name in zip((first, second), chosen, strict=True)
            )
        caution = f"These runs differ in more than the method: {listed(differ, len(differ))}." if differ else ""
        with shown_in(str(first.summary["metric"]), first.summary.get("share")):
            return (
                f'<div id="head">{header(first, second)}{paragraph(caution, "banner") if caution else ""}</div>\n'
                f'<div id="answers">{headline(first, second)}</div>\n'
                + silo_table(first, second)
                + curves(first, second)
                + gap_section(first, second)
                + costs(first, second),
            )

    (body,) = places.drawn(list(chosen.values()), draw)
    return whole(" and ".join(chosen), body, [back, *((name, address("run", name)) for name in chosen)])


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
