"""CSV files that a spreadsheet shows and never runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV. A name that a spreadsheet would take for a formula gets an apostrophe in front."""
    return csv_lines(columns, ([row.get(column) for column in columns] for row in rows))


def csv_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The same of rows by place, so that two columns may have one name."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([harmless(value) for value in row] for row in (columns, *rows))
    return text.getvalue()


def harmless(value: Any) -> Any:
    """The value as a cell; numbers, and texts that are numbers or a lone dash, stay as they are."""
    if not isinstance(value, str) or len(value) < 2 or not value.startswith(_FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
