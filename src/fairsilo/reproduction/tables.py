"""Tables of the papers as files: a comparison, with the paper's own numbers beside it. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fairsilo.config import Experiment, read_yaml
from fairsilo.data import domains_of
from fairsilo.errors import FairsiloError, nearest
from fairsilo.reproduction.measures import MEASURES
from fairsilo.runs.comparison import ComparisonFile, comparison_of

FOLDER = Path(__file__).resolve().parent.parent / "experiments"


@dataclass(frozen=True)
class Table:
    """One table of a paper, as it is run here.

    Attributes:
        name: Such as `fedheal/table2-digits`: its file below the folder of experiments.
        of: The paper and the table's number in it.
        differs: What is not as in the paper.
        measures: What the table shows of each row (`measures.py`).
        numbers: Method -> the paper's number for each measure, None where it has none.
        needs: Why it cannot simply be run: data that do not come with fairsilo; empty where nothing is missing.
        figures: Diagnostics (`fairsilo figure list`) whose numbers are kept of every run.
        earlier: Whether it was run before there was a ledger; its notes then have what came out.
    """

    name: str
    of: str = ""
    differs: tuple[str, ...] = ()
    measures: tuple[str, ...] = ("unseen", "personal")
    numbers: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    needs: str = ""
    figures: tuple[str, ...] = ()
    earlier: bool = False
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)  # of its file

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.yaml"

    @property
    def notes(self) -> str:
        """What came out, in words, with tables of runs from before the ledger; empty where nobody wrote any."""
        path = self.file.with_suffix(".md")
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""

    @cached_property
    def comparison(self) -> ComparisonFile:
        return comparison_of(self.content)

    @cached_property
    def common(self) -> Experiment:
        """What all of its runs have in common: without method, seed and held-out domain."""
        given = self.comparison.experiment
        return dataclasses.replace(given, method="", seed=0, data=dataclasses.replace(given.data, held_out=None))

    @property
    def held_out(self) -> int:
        """How many domains, or sets of them, are held out in turn: for `all` as many as the data set has."""
        asked, data = self.comparison.held_out, self.comparison.experiment.data
        if asked == "all":
            return len(data.domains or domains_of(data.name or "")) or 1
        return len(asked.split(",") if isinstance(asked, str) else asked or ()) or 1

    def paper(self, method: str, measure: str) -> float | None:
        """The paper's number."""
        found = self.numbers.get(method)
        return found[self.measures.index(measure)] if found else None


def tables() -> list[Table]:
    """All of them, by name."""
    return [_read(name) for name in _names()]


def read_table(name: str) -> Table:
    """The table of this name.

    Raises:
        FairsiloError: There is none, or its file says something that cannot be.
    """
    known = _names()
    if name not in known:
        raise FairsiloError(f"no table is called {name!r}{nearest(name, known)}; `fairsilo reproduce` lists them")
    return _read(name)


def _names() -> list[str]:
    return [path.relative_to(FOLDER).with_suffix("").as_posix() for path in sorted(FOLDER.rglob("*.yaml"))]


def _read(name: str) -> Table:
    content = read_yaml(FOLDER / f"{name}.yaml")
    told = content.get("paper") or {}
    wrong = [key for key in told if key not in ("of", "differs", "measures", "numbers", "needs", "figures", "earlier")]
    if wrong:
        raise FairsiloError(f"{name}: paper.{wrong[0]} is unknown")
    measures = tuple(told.get("measures", Table.measures))
    for measure in measures:
        if measure not in MEASURES:
            raise FairsiloError(f"{name}: no measure is called {measure!r}{nearest(measure, MEASURES)}")
    return Table(
        name,
        str(told.get("of", "")),
        tuple(told.get("differs", ())),
        measures,
        {str(method): _numbers(name, method, values, measures) for method, values in told.get("numbers", {}).items()},
        str(told.get("needs", "")),
        tuple(told.get("figures", ())),
        bool(told.get("earlier", False)),
        content,
    )


def _numbers(name: str, method: Any, values: Any, measures: tuple[str, ...]) -> tuple[float | None, ...]:
    found = tuple(values) if isinstance(values, list) else (values,)
    if len(found) != len(measures) or not all(one is None or isinstance(one, int | float) for one in found):
        raise FairsiloError(f"{name}: paper.numbers of {method} must be a number for each of {', '.join(measures)}")
    return found
