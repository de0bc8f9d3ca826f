"""What a run's differential privacy amounts to: a section of the page and a line for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairsilo.analysis.privacy import spent, words
from fairsilo.report.blocks import Run, cells, heads, paragraph, section, table
from fairsilo.report.texts import text

NOT_COVERED = (
    "It covers what silos send of their training. Sizes, losses and metrics, which silos send for this report, are as "
    "they are."
)


def privacy(run: Run) -> str:
    """The section; empty where the method makes no claim."""
    content = []
    for one in spent(run.rounds, run.info.get("method_privacy") or ()):
        content.append(paragraph(f"{sentence(one)} {NOT_COVERED}"))
        rows = [
            f'<tr><th scope="row">{text(silo)}</th>{cells([words(value)])}</tr>\n'
            for silo, value in sorted(one["epsilon"].items())
        ]
        content += [table(f'<tr><th scope="col">silo</th>{heads(["epsilon"])}</tr>', rows)] if rows else []
    return section("privacy", "Privacy", *content) if content else ""


def sentence(one: Mapping[str, Any]) -> str:
    """What was spent, and for what."""
    values: Sequence[float] = sorted(one["epsilon"].values())
    if not values:
        return f"{one['part']}: there was no noise, so that nothing is private."
    least, most = words(values[0]), words(values[-1])
    span = least if least == most else f"{least} to {most}"
    return f"{one['part']}: epsilon {span} at delta {one['delta']:g}, for {one['protects']}."
