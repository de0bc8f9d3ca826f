"""The numbers of a figure as CSV, inside the page: a link that a browser saves, without script and without a server."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from fairsilo.report.spreadsheet import csv_lines

Cell = str | float | None


class Chart(str):
    """A drawing as HTML that carries the numbers it shows, so that no figure can be made without them."""

    heading: str
    csv: str

    def __new__(cls, drawing: str, heading: str, csv: str) -> Chart:
        chart = super().__new__(cls, drawing)
        chart.heading, chart.csv = heading, csv
        return chart


def numbers_as_csv(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Rows as CSV; nothing where there are none."""
    written = [[_cell(value) for value in row] for row in rows]
    return csv_lines(columns, written) if written else ""


def _cell(value: Cell) -> str | None:
    """Whole numbers in full, others with five digits: more than a drawing shows, and the page stays small."""
    if value is None or isinstance(value, str):
        return value
    if not math.isfinite(value):
        return None
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.5g}"


def csv_link(chart: Chart, title: str) -> str:
    """A link that saves the numbers; a slash is coded too, so that no name in them can pass for an address."""
    if not chart.csv:
        return ""
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "figure"
    # latin letters and digits, commas and colons only: safe between quotation marks as it is
    data = quote(chart.csv, safe=",:", errors="replace")
    return f'<a class="csv" download="{name}.csv" href="data:text/csv;charset=utf-8,{data}">CSV</a>'
