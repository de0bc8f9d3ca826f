"""What the pages of `fairsilo watch` share: addresses, names, the frame of a page, how states and answers look.

Pages are drawn here and not in the browser, from the same sections as the report; a small script only puts a newer page
in the place of an older one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from fairsilo.analysis.metrics import AT_HOME, HEADLINES
from fairsilo.report.blocks import document, paragraph, points, share
from fairsilo.report.tables import CHANCE, beside_mean
from fairsilo.report.texts import text, usable
from fairsilo.report.units import shown_in
from fairsilo.runs.inventory import DAMAGED, FINISHED, INTERRUPTED, RUNNING, STOPPED, WAITING, Kept
from fairsilo.runs.tryouts import GIVEN_UP

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'"
)
STATES = {
    FINISHED: "good",
    STOPPED: "bad",
    INTERRUPTED: "bad",
    RUNNING: "going",
    WAITING: "going",
    GIVEN_UP: "",
    DAMAGED: "bad",
}
JOINT = re.compile("[/_-]")

Folders = Mapping[str, Path]  # by the names that they have here


# ------------------------------------------------------------------------------------------------ addresses and names
def address(kind: str, name: str) -> str:
    return f"/{kind}/{quoted(name)}"


def quoted(name: str) -> str:
    """By its bytes: the name of a folder need not be a text."""
    return quote(os.fsencode(name))


def broken(name: str) -> str:
    """A name of a folder that a narrow screen breaks where it has a joint."""
    return JOINT.sub(r"\g<0><wbr>", text(name))


# --------------------------------------------------------------------------------------------------------- the frame
def whole(title: str, body: str, trail: Sequence[tuple[str, str]] = ()) -> str:
    """A page around its body: the way back above, and how it is kept up to date below."""
    links = "".join(f'<a href="{text(where)}">{text(name)}</a> ' for name, where in trail)
    way = f'<nav id="way" aria-label="Where you are">{links}</nav>\n' if links else ""
    below = (
        '<footer><p><button type="button" id="pause" aria-pressed="false">Stop updating</button> '
        '<span id="connection" role="status"></span></p>\n'
        "<noscript><p>Without scripts this page does not update itself: load it again.</p></noscript></footer>\n"
    )
    head = '<script src="/watch.js" defer></script>\n'
    return document(title, way + body, below, policy=POLICY, head=head)


def top(title: str, below: str = "") -> str:
    """The head of a page that has none from the report; its title is HTML."""
    return f'<header id="top"><p class="eyebrow">fairsilo watch</p>\n<h1>{title}</h1>\n{below}</header>\n'


def tag(state: str, words: str = "") -> str:
    return f'<span class="tag {STATES.get(state, "")}">{text(words or state)}</span>'


# ------------------------------------------------------------------------------------------------- the three answers
def answers(one: Kept) -> list[tuple[str, bool]]:
    """The three answers of a run, and which of them are at chance."""
    with shown_in(one.metric, one.share, one.higher):
        return [(written(one.numbers, key), bool(one.at_chance.get(key))) for key in HEADLINES]


def written(numbers: Mapping[str, float | None], key: str) -> str:
    """One of the three answers; a spread with the mean that it is around."""
    value, centre = numbers.get(key), numbers.get(AT_HOME)
    if key != "fairness" or value is None or not usable(value):
        return share(value)
    return beside_mean(points(value), key, centre if usable(centre) else None)


def guessing(runs: Sequence[Kept]) -> str:
    """What the mark of chance means, where there is one."""
    return paragraph(f"{CHANCE}.") if any(any(one.at_chance.values()) for one in runs) else ""
