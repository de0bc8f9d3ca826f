"""Training on everybody's data in one place: what a federation cannot do, and is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from fairsilo.core.attachments import Sends
from fairsilo.core.part import About, Part


@dataclass(frozen=True)
class Pooled(Part):
    """One silo holds all training data (and the synthetic images, where there are any); the rest is as ever."""

    name = "pooled"
    about = About(
        paper="the centralised baseline of Wang et al., ICML 2025",
        formula="w <- w - eta grad L(w; all data together)",
        sends=(Sends("data", "all data, to one place", ("samples",), exchange="before the run"),),
    )
    does = frozenset({"pools-data"})
