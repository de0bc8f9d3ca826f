"""The section of a run's page about its synthetic images."""

from __future__ import annotations

import base64

from fairsilo.report.blocks import paragraph, section
from fairsilo.report.texts import text
from fairsilo.runs.pictures import Sheet


def synthetic(sheet: Sheet | None) -> str:
    """A picture of some of them; nothing where a run had none."""
    if sheet is None:
        return ""
    coded = base64.b64encode(sheet.picture).decode("ascii")
    about = "Some of the labelled images in each silo's style that the server was given, by class from left to right."
    rows = f"From top to bottom: {', '.join(sheet.silos)}."
    shown = f'<img class="sheet" src="data:image/png;base64,{coded}" alt="{text(f"{about} {rows}")}" />\n'
    return section("synthetic", "Synthetic images", paragraph(about), shown, paragraph(rows, "quiet"))
