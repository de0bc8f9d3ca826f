"""Who and what there is in a federation across machines: tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table


def sites_table(sites: Sequence[Mapping[str, Any]]) -> Table:
    drawn = Table(title="sites", title_justify="left")
    for column in ("site", "connected", "last seen", "fairsilo"):
        drawn.add_column(column)
    for one in sites:
        connected = "removed" if one["removed"] else "yes" if one["connected"] else "no"
        drawn.add_row(escape(one["site"]), connected, one["last_seen"] or "-", one["version"] or "-")
    return drawn


def runs_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    drawn = Table(title="runs", title_justify="left")
    for column in ("run", "state", "rounds", "sites", ""):
        drawn.add_column(column, overflow="fold")
    for one in runs:
        drawn.add_row(
            escape(one["run"]),
            one["state"],
            f"{one['rounds']} of {one['of']}",
            escape(", ".join(one["sites"])),
            escape(one["message"]),
        )
    return drawn
