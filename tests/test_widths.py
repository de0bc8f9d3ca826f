"""Tables in a terminal of 80 columns: no line is longer, no word is cut or broken, and no number is lost."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from fairsilo.cli import output
from fairsilo.report.tables import comparison_table, held_out_tables, spread_table
from test_tables import summary

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
METHODS = ("fedavg", "fedprox(mu=0.1) | fedheal", "fedavg @ lr=0.1")


def comparison(domains: tuple[str, ...] = DOMAINS, methods: tuple[str, ...] = METHODS) -> dict[str, Any]:
    """Three seeds; every run differs from every other."""
    cells = []
    for place, name in enumerate(methods):
        for number, domain in enumerate(domains):
            for seed in range(3):
                shift = 0.011 * place + 0.023 * number + 0.007 * seed * (1 + place)
                runs = summary(0.31 + shift, 0.52 + shift, 0.74 - 0.5 * shift)
                cells.append({"method": name, "held_out": domain, "seed": seed, "summary": runs})
    return {"methods": list(methods), "held_out": list(domains), "seeds": [0, 1, 2], "cells": cells}


def shown(table: Table, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """As `fairsilo compare` prints it."""
    screen = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=screen, width=width))
    output.show(table)
    return screen.getvalue()


def all_tables(content: dict[str, Any]) -> list[Table]:
    return [*held_out_tables(content), comparison_table(content), spread_table(content)]


def words(text: str) -> list[str]:
    return sorted(re.sub(r"[^\w.()=@%±|+:,²;≈-]|[┃│]", " ", text).split())


@pytest.mark.parametrize("place", range(5))
def test_a_comparison_fits_eighty_columns_with_every_word_whole(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = shown(all_tables(comparison())[place], 80, monkeypatch)
    wide = shown(all_tables(comparison())[place], 400, monkeypatch)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert words(narrow) == words(wide)


def test_results_at_chance_fit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    content = comparison()
    for cell in content["cells"][::2]:
        for key in ("global", "personal"):
            (cell["summary"]["fairness"].get(key) or {})["at_chance"] = True
    for one, other in zip(all_tables(content), all_tables(content), strict=True):
        narrow, wide = shown(one, 80, monkeypatch), shown(other, 400, monkeypatch)
        assert max(map(len, narrow.splitlines())) <= 80
        assert words(narrow) == words(wide)


def test_where_words_do_not_fit_they_are_broken_and_none_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    domains = tuple(f"a-hospital-in-the-{name}" for name in ("north", "south", "east", "west", "middle", "mountains"))
    for table in all_tables(comparison(domains)):
        text = shown(table, 80, monkeypatch)
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text


def test_a_table_that_fits_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(title="numbers")
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_row("one", "1.0")
    screen = io.StringIO()
    Console(file=screen, width=80).print(table)
    assert shown(table, 80, monkeypatch) == screen.getvalue()
