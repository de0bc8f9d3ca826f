"""The data sets that come with the package: name -> what they show."""

from __future__ import annotations

DATASETS: dict[str, str] = {
    "glyphs": "ten digits in five domains: scans, ink on photographs, printed type, sketches, street signs",
}
