"""What the page of a run says of the comparison that the run is one of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fairsilo.errors import FairsiloError
from fairsilo.report.blocks import Run, listed
from fairsilo.report.left_out import left_out
from fairsilo.report.texts import text
from fairsilo.runs.counting import is_comparison, last_asked_for

PAGE = "comparison.html"
DEEP = 3  # how many folders above a run its comparison may be


@dataclass(frozen=True)
class Whole:
    """A comparison, as its runs know it.

    Attributes:
        folder: Where it is.
        methods: That are compared.
        seeds: Of its runs.
        runs: How many there are.
        page: Whether it has a page, or gets one.
    """

    folder: Path
    methods: tuple[str, ...]
    seeds: tuple[str, ...]
    runs: int
    page: bool


def whole_of(folder: Path, content: Mapping[str, Any], page: bool) -> Whole:
    """A comparison from what `comparison.json` holds, with all that was asked for, whichever of its runs count."""
    asked = content.get("asked") or content
    methods, seeds = tuple(map(str, content["methods"])), tuple(map(str, asked["seeds"]))
    runs = len(content["cells"]) + len(left_out(content))
    return Whole(folder, methods, seeds, runs, page)


def whole_above(run: Path) -> Whole | None:
    """The comparison that a run lies in; None where it is none of one, or where that cannot be read."""
    here = run.resolve()
    for folder in list(here.parents)[:DEEP]:
        with suppress(FairsiloError, AttributeError, KeyError, TypeError):
            if is_comparison(folder):
                content = last_asked_for(folder)
                if any(folder / cell.get("folder", ".") == here for cell in content["cells"]):
                    return whole_of(folder, content, (folder / PAGE).exists())
    return None


def way_back(run: Path, whole: Whole | None) -> str:
    """A link to the page of the comparison; nothing where there is none."""
    if whole is None or not whole.page:
        return ""
    up = Path(os.path.relpath(whole.folder.resolve() / PAGE, run.resolve())).as_posix()
    return f'<nav><a href="{text(quote(up))}">Comparison of {text(listed(whole.methods, 4))}</a></nav>\n'


def caution(run: Run, baseline: Run | None, whole: Whole | None) -> str:
    """What one run can tell."""
    seed = run.config.get("seed", "–")
    chance = "a difference may be chance" if baseline else "another seed gives other numbers"
    if whole is None:
        return f"One run, one seed ({seed}): {chance}. Repeat with other seeds before drawing a conclusion."
    one = f"One of the {whole.runs} runs of a comparison"
    if len(whole.seeds) > 1:
        seeds = listed(whole.seeds, 12)
        page = "The page of the comparison says what holds over seeds."
        return f"{one} with seeds {seeds}; this one has seed {seed}. {page}"
    return f"{one}, all with seed {seed}: {chance}."
