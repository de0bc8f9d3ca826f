"""The data sets that come with the package: name -> what they show, and their domains."""

from __future__ import annotations

DATASETS: dict[str, str] = {
    "glyphs": "ten digits in five domains: scans, ink on photographs, printed type, sketches, street signs",
}
DOMAINS: dict[str, tuple[str, ...]] = {"glyphs": ("scan", "photo", "print", "sketch", "street")}
