"""What the sections of the page are made of: a run as read, and small pieces of HTML."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fairsilo.report.downloads import Chart, csv_link
from fairsilo.report.texts import signed, text
from fairsilo.report.units import unit

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
History = dict[int, dict[str, float]]
MARKUP = re.compile("<[^>]*>")
# what gives a table inside a section its name, or has nothing to do with it
NAMING = re.compile(
    r"<figure\b.*?</figure>|<(?P<kind>h3|summary)\b[^>]*>(?P<words>.*?)</(?:h3|summary)>|(?P<folded></details>)"
    r'|(?P<table><div class="table[^"]*" tabindex="0" role="region")>',
    re.DOTALL,
)


@dataclass(frozen=True)
class Run:
    """What a run folder holds, and its summary."""

    method: str
    info: Mapping[str, Any]
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    rounds: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]

    def setting(self, group: str, key: str, default: Any = None) -> Any:
        value = (self.config.get(group) or {}).get(key)
        return default if value is None else value

    @property
    def metric(self) -> str:
        return str(self.setting("evaluate", "metric", "accuracy")).replace("-", " ")

    @property
    def done(self) -> int:
        return max((int(record["round"]) for record in self.rounds), default=0)

    @property
    def counted(self) -> list[Sequence[str]]:
        """Whose updates were used, round by round."""
        return [record.get("counted", ()) for record in self.rounds]

    @property
    def silos(self) -> list[str]:
        """Those that train, as far as they were evaluated."""
        return [silo["silo"] for silo in self.summary["silos"] if not silo["unseen"]]

    def members(self, kind: str) -> list[Mapping[str, Any]]:
        """Who takes part, which is known before the first evaluation; `kind`: `silos` (they train) or `unseen`."""
        return list((self.info.get("roster") or {}).get(kind) or ())

    @property
    def held_out(self) -> list[str]:
        """The domains that nobody trains on."""
        evaluated = [silo for silo in self.summary["silos"] if silo["unseen"]]
        return list(dict.fromkeys(str(silo["domain"]) for silo in self.members("unseen") or evaluated))


def section(name: str, title: str, *content: str) -> str:
    return f'<section id="{name}">\n<h2>{text(title)}</h2>\n{_named(title, "".join(content))}</section>\n'


def _named(title: str, content: str) -> str:
    """With a name for whoever hears the page on each table: the section's title, and the nearest heading inside it."""
    inner, outside = "", list[str]()

    def passed(found: re.Match[str]) -> str:
        nonlocal inner
        if found["words"] is not None:
            if found["kind"] == "summary":
                outside.append(inner)
            inner = html.unescape(MARKUP.sub("", found["words"])).strip()
        elif found["folded"]:
            inner = outside.pop() if outside else ""
        elif found["table"]:
            return f'{found["table"]} aria-label="{text(f"{title}: {inner}" if inner else title)}">'
        return found[0]

    return NAMING.sub(passed, content)


def heading(command: str, title: str, *said: str) -> str:
    """The top of a page: which command wrote it, its title, and a few sentences."""
    sentences = "".join(map(paragraph, said))
    return f'<header>\n<p class="eyebrow">{text(command)}</p>\n<h1>{text(title)}</h1>\n{sentences}</header>\n'


def paragraph(words: str, kind: str = "") -> str:
    return f'<p class="{kind}">{text(words)}</p>\n' if kind else f"<p>{text(words)}</p>\n"


def figure(title: str, drawing: Chart, key: str = "", caption: str = "") -> str:
    """A drawing with its title, a link to its numbers, its key and a caption."""
    said = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    numbers = csv_link(drawing, title or drawing.heading)
    return f"<figure><h3>{text(title)}</h3>{numbers}{drawing}{key}{said}</figure>\n"


def image(svg: str, title: str, csv: str) -> Chart:
    """A drawing from a file, as an image: whatever the file holds, a browser runs no script in it and loads nothing."""
    coded = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return Chart(f'<img src="data:image/svg+xml;base64,{coded}" alt="{text(title)}">', title, csv)


def figures(*content: str) -> str:
    return f'<div class="figures">\n{"".join(content)}</div>\n'


def panel(*paragraphs: str) -> str:
    said = "".join(paragraph(words) for words in paragraphs if words)
    return f'<div class="panel">{said}</div>\n' if said else ""


def table(head: str, rows: Iterable[str]) -> str:
    return scrolled(f"<table>\n<thead>{head}</thead>\n<tbody>\n{''.join(rows)}</tbody></table>")


def scrolled(drawn: str) -> str:
    """A table that may have to be scrolled sideways, so that it is reachable by keyboard; its section names it."""
    return f'<div class="table" tabindex="0" role="region">{drawn}</div>\n'


def cells(values: Sequence[str], first: bool = False) -> str:
    """Right-aligned numbers; a rule in front of the first where a group of columns begins."""
    kinds = ["number first" if first and index == 0 else "number" for index in range(len(values))]
    return "".join(f'<td class="{kind}">{text(value)}</td>' for kind, value in zip(kinds, values, strict=True))


def heads(names: Sequence[str], first: bool = False) -> str:
    kinds = ["number first" if first and index == 0 else "number" for index in range(len(names))]
    return "".join(f'<th class="{kind}" scope="col">{text(name)}</th>' for kind, name in zip(kinds, names, strict=True))


def share(value: float | None) -> str:
    """A result in its unit: a share between 0 and 1 in percent."""
    if value is None or not math.isfinite(value):
        return "–"
    return signed(unit().number(value)) + unit().sign


def points(value: float) -> str:
    """A difference of results or their spread, without its unit."""
    return signed(unit().number(value))


def listed(names: Iterable[str], most: int = 6) -> str:
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def ranges(numbers: Iterable[int]) -> str:
    """Round numbers in words: `round 3`, `rounds 1 to 4, 7`."""
    found = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in found:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return ("round " if len(found) == 1 else "rounds ") + ", ".join(words)


def pair(run: Run, baseline: Run | None) -> list[tuple[Run, int]]:
    """The run in colour 1 and its baseline in colour 2."""
    return [(run, 1), (baseline, 2)] if baseline else [(run, 1)]


def kind_of(run: Run) -> str:
    return "sample" if run.summary["ddof"] else "population"


def document(title: str, body: str, footer: str, policy: str = POLICY, head: str = "") -> str:
    """A whole page with its style inside; the policy forbids scripts, and to load anything from elsewhere."""
    style = files("fairsilo.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{text(title)} – fairsilo</title>\n<style>\n{style}</style>\n{head}</head>\n<body>\n"
        f"<main>\n{body}</main>\n{footer}</body>\n</html>\n"
    )
