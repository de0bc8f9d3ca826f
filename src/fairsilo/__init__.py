"""fairsilo: cross-silo federated learning under domain shift.

import fairsilo
result = fairsilo.run(method="fedprox(mu=0.1) | fedheal", rounds=10)
print(result.summary["generalisation"]["mean"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fairsilo.api import advise, compare, load, resume, run, tune
    from fairsilo.core.method import Method
    from fairsilo.core.output import Output
    from fairsilo.core.part import Part
    from fairsilo.core.samples import SiloData, Split
    from fairsilo.data.federation import Federation
    from fairsilo.engine.events import Event, Listener
    from fairsilo.errors import FairsiloError
    from fairsilo.methods.text import method
    from fairsilo.runs.trained import Trained

_HOMES = {
    "run": "fairsilo.api",
    "resume": "fairsilo.api",
    "compare": "fairsilo.api",
    "load": "fairsilo.api",
    "tune": "fairsilo.api",
    "advise": "fairsilo.api",
    "method": "fairsilo.methods.text",
    "Part": "fairsilo.core.part",
    "Method": "fairsilo.core.method",
    "Output": "fairsilo.core.output",
    "Split": "fairsilo.core.samples",
    "SiloData": "fairsilo.core.samples",
    "Federation": "fairsilo.data.federation",
    "Trained": "fairsilo.runs.trained",
    "Event": "fairsilo.engine.events",
    "Listener": "fairsilo.engine.events",
    "FairsiloError": "fairsilo.errors",
}
__all__ = [
    "Event",
    "FairsiloError",
    "Federation",
    "Listener",
    "Method",
    "Output",
    "Part",
    "SiloData",
    "Split",
    "Trained",
    "advise",
    "compare",
    "load",
    "method",
    "resume",
    "run",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `fairsilo --help` does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fairsilo' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
