"""The figures that were written into a folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from fairsilo.report.figures.captions import CAPTIONS


class Drawn(NamedTuple):
    """A figure found in a folder, whoever put it there."""

    name: str
    title: str
    about: str
    svg: str
    csv: str

    @property
    def wide(self) -> bool:
        """Several panels side by side: it wants the width of the page."""
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)
        return box is not None and float(box[1]) > 2 * float(box[2])


def figures_in(folder: Path) -> list[Drawn]:
    """The figures in a folder, those of `CAPTIONS` first and in that order."""
    found = []
    for path in folder.glob("*.json"):
        drawing = path.with_suffix(".svg")
        about = _read_about(path) if drawing.exists() else None
        if about:
            svg, numbers = drawing.read_text(encoding="utf-8"), path.with_suffix(".csv")
            csv = numbers.read_text(encoding="utf-8") if numbers.exists() else ""
            found.append(Drawn(path.stem, about["title"], about["about"], svg[max(svg.find("<svg"), 0) :], csv))
    known = list(CAPTIONS)
    return sorted(found, key=lambda item: (known.index(item.name) if item.name in known else len(known), item.name))


def _read_about(path: Path) -> dict[str, str] | None:
    """Title and description, or None for some other JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    fits = isinstance(content, dict) and all(isinstance(content.get(key), str) for key in ("title", "about"))
    return content if fits else None
