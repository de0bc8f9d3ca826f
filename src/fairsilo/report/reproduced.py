"""Tables of the papers beside ours, for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table as Drawn

from fairsilo.analysis.paired import SURE
from fairsilo.report.crossed import crossed_markdown, markdown
from fairsilo.reproduction.checking import TOLERANCE, Checked
from fairsilo.reproduction.crossing import crossed
from fairsilo.reproduction.measures import MEASURES, Record
from fairsilo.reproduction.standing import Estimate, Found, Row, Standing

NOTHING = "-"
CHOSEN = 10  # compositions of a grid that go on
TITLES = {
    "fedheal": "FedHEAL",
    "fft-gp": "FFT-GP",
    "grace": "GRACE",
    "fedgcr": "FedGCR",
    "fedag": "FedAG",
    "demo": "The demo",
    "crossings": "Halves of the systems, crossed",
}


def number(value: float | None, decimals: int, sign: bool = False) -> str:
    return NOTHING if value is None else f"{value:{'+' if sign else ''}.{decimals}f}"


def estimated(found: Estimate | None, decimals: int, sign: bool = False) -> str:
    """A mean, with its margin where it has one."""
    if found is None:
        return NOTHING
    margin = "" if found.margin is None else f" ± {found.margin:.{decimals}f}"
    return number(found.mean, decimals, sign) + margin


def judged(found: Found) -> str:
    """Whether a difference goes the paper's way; of one run nothing is said."""
    return {None: "", True: " (as the paper)", False: " (not as the paper)"}[found.same_way]


class Cells(NamedTuple):
    """Of one measure of a row: our number, the paper's, the differences to the first row, and ours tuned alike."""

    ours: str
    paper: str
    gain: str
    paper_gain: str
    tuned: str
    tuned_gain: str

    def shown(self, standing: Standing) -> list[str]:
        """Without the paper's where it has no numbers, and without those tuned alike where nobody searched."""
        paper, searched = bool(standing.table.numbers), standing.searched
        beside = [self.tuned, self.tuned_gain] if searched else []
        return [self.ours, *([self.paper] if paper else []), self.gain, *([self.paper_gain] if paper else []), *beside]


def titles(standing: Standing) -> list[str]:
    """Of the columns that `Cells.shown` has for each measure."""
    found, first = [], f"minus {standing.rows[0].method}"
    for name in standing.table.measures:
        title = MEASURES[name].title
        whole = Cells(title, "the paper", f"{first} (95 %)", "the paper", "tuned alike", f"{first}, tuned alike (95 %)")
        found += whole.shown(standing)
    return found


def cells(row: Row) -> list[Cells]:
    """Of each measure."""
    texts = []
    for name, found in row.found.items():
        places = MEASURES[name].decimals
        ours, paper = estimated(found.ours, places), number(found.paper, places)
        gain, wanted = estimated(found.gain, places, sign=True), number(found.paper_gain, places, sign=True)
        tuned, led = estimated(found.tuned, places), estimated(found.tuned_gain, places, sign=True)
        texts.append(Cells(ours, paper, gain + judged(found), wanted, tuned, led))
    return texts


def in_words(standing: Standing, *, only: bool = False) -> list[str]:
    """A sentence for each difference to the first row; only for those that are away from zero, where asked."""
    first, count = standing.rows[0].method, standing.comparisons
    told = []
    for row in standing.rows[1:]:
        for name, found in row.found.items():
            gain, p = found.gain, standing.corrected.get((row.method, name))
            if gain is None:
                continue
            if gain.margin is None and abs(gain.mean) <= MEASURES[name].rounding:
                told += [] if only else [f"{MEASURES[name].title}: {row.method} is where {first} is"]
                continue
            if gain.away:
                judgement = "sure" if p is not None and p < SURE else f"not sure as one of {count} comparisons"
            else:
                judgement = "may be chance" if p is not None else "without an interval, so that it may be chance"
            beside = "" if found.paper_gain is None else f" (the paper: {_beside(found.paper_gain, name)})"
            way = {None: "", True: ", as the paper has it", False: ", not as the paper has it"}[found.same_way]
            if gain.away or not only:
                much = _beside(gain.mean, name, gain.margin)
                told.append(f"{MEASURES[name].title}: {row.method} is {much} {first}{beside}{way}; {judgement}")
    if only and not told and count:
        return [f"nothing differs from {first} for sure ({count} comparisons)"]
    return told


def _beside(gain: float, measure: str, margin: float | None = None) -> str:
    """`1.2 ± 0.5 above`."""
    places = MEASURES[measure].decimals
    much = " ± ".join(f"{abs(value):.{places}f}" for value in (gain, margin) if value is not None)
    return f"{much} {'above' if gain >= 0 else 'below'}"


def shown(row: Row) -> bool:
    """Whether there is anything to show of a row: runs, or numbers of the paper."""
    return bool(row.runs) or any(found.paper is not None or found.tuned for found in row.found.values())


def reproduced_table(standing: Standing) -> Drawn:
    """Our number beside the paper's, and the difference to the first row, by measure."""
    table = Drawn(title=f"{standing.table.name}: {standing.table.of or 'no table of a paper'}", title_justify="left")
    table.add_column("method", overflow="fold")
    table.add_column("runs", justify="right")
    first = escape(standing.rows[0].method)
    for name in standing.table.measures:
        for title in (f"{MEASURES[name].title}: ours", f"minus {first}: ours (95 %)"):
            table.add_column(_over(title, "the paper", "tuned alike", standing), justify="right")
    left = [row.method for row in standing.rows if not shown(row)]
    for row in filter(shown, standing.rows):
        texts = []
        for one in cells(row):
            texts += [_over(one.ours, one.paper, one.tuned, standing)]
            texts += [_over(one.gain, one.paper_gain, one.tuned_gain, standing)]
        table.add_row(escape(row.method), f"{row.runs} of {row.wanted}", *texts)
    if left:
        table.caption = f"not run: {escape('; '.join(left))}"
        table.caption_justify = "left"
    return table


def _over(ours: str, paper: str, tuned: str, standing: Standing) -> str:
    """Ours above the paper's, where the paper has numbers, and above ours tuned alike, where there are such."""
    below = [f"[dim]{paper}[/dim]"] if standing.table.numbers else []
    below += [tuned] if standing.searched else []
    return "\n".join([ours, *below])


def reproduced_markdown(standing: Standing) -> str:
    """The same as Markdown."""
    head = ["method", "runs", *titles(standing)]
    lines = []
    for row in standing.rows:
        if row.runs:
            numbers = (text for one in cells(row) for text in one.shown(standing))
            lines.append([row.method, f"{row.runs} of {row.wanted}", *numbers])
    return markdown(head, lines)


def ledger_page(standings: Sequence[Standing], records: Mapping[str, Sequence[Record]]) -> str:
    """Every table that was run, with what came out and why; then a list of the others."""
    blocks, paper = [], ""
    told = [one for one in standings if records[one.table.name] or one.table.notes]
    order = list(TITLES)
    for one in sorted(told, key=lambda one: order.index(one.table.name.partition("/")[0])):
        table, lines = one.table, records[one.table.name]
        if table.name.partition("/")[0] != paper:
            paper = table.name.partition("/")[0]
            blocks.append(f"## {TITLES[paper]}")
        blocks += [
            f"### {table.name}",
            f"{table.of or 'No table of a paper'}. `fairsilo reproduce {table.name}`; {one.state}.",
        ]
        blocks += ["\n".join(f"- Differs from the paper: {text}." for text in table.differs)] if table.differs else []
        grid = crossed(table, lines)
        shown = crossed_markdown(grid, CHOSEN if grid.blocks.choosable else 0) if grid else [reproduced_markdown(one)]
        blocks += [*shown, *_made(lines)] if lines else []
        blocks += [table.notes] if table.notes else []
    others = [
        f"- `{one.table.name}`: {one.table.of or 'no table of a paper'}; {one.state}"
        + (f", needs {one.table.needs}." if one.table.needs else ".")
        for one in standings
        if one not in told
    ]
    return "\n\n".join([*blocks, "## Without notes or runs in the ledger", "\n".join(others)])


def _made(lines: Sequence[Record]) -> list[str]:
    """Seeds, rounding, when and from which code the runs are; settings other than the table's are told apart."""
    other, searched = (sum(bool(line.get(key)) for line in lines) for key in ("settings", "tuned"))
    kinds = {
        line["rounding"]["precision"] + (" (deterministic)" if line["rounding"].get("deterministic") else "")
        for line in lines
    }
    hours = sum(line["seconds"] or 0 for line in lines) / 3600
    dates = sorted({line["date"] for line in lines if "date" in line})
    failed = sum(bool(line.get("failures")) for line in lines)
    said = [
        f"{len(lines)} runs, {hours:.1f} hours in all, {', '.join(sorted(kinds))}",
        f"seeds {', '.join(map(str, sorted({line['seed'] for line in lines})))}",
        f"code {', '.join(sorted({line['commit'] for line in lines}))}",
    ]
    said += [f"from {dates[0]} to {dates[-1]}"] if dates else []
    said += [f"{other} with other settings, not in the table"] if other else []
    said += [f"{searched} tuned alike"] if searched else []
    said += [f"{failed} in which a silo failed in some round"] if failed else []
    return [f"{'; '.join(said)}."]


def checked_table(found: Sequence[Checked]) -> Drawn:
    """Numbers of the ledger and today's."""
    table = Drawn(title=f"the ledger and now; they may be {TOLERANCE:g} points apart", title_justify="left")
    for column in ("method", "measure", "ledger", "now", "verdict"):
        table.add_column(column)
    for one in found:
        measure = MEASURES[one.measure]
        texts = number(one.ledger, measure.decimals), number(one.now, measure.decimals)
        said = "holds" if one.holds else "not in the ledger" if one.ledger is None else "does not hold"
        table.add_row(escape(one.method), measure.title, *texts, said)
    return table


def listed_table(standings: Sequence[Standing]) -> Drawn:
    """All tables with their state."""
    table = Drawn(title="tables of the papers", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("state")
    paper = ""
    for one in standings:
        if paper and one.table.name.partition("/")[0] != paper:
            table.add_section()
        paper = one.table.name.partition("/")[0]
        runs = f"{sum(row.runs for row in one.rows)} of {sum(row.wanted for row in one.rows)}"
        needs = f"; needs {one.table.needs}" if one.table.needs and one.state != "run" else ""
        table.add_row(one.table.name, runs, f"{one.state}{needs}")
    return table
