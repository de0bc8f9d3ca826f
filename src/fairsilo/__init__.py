"""fairsilo: cross-silo federated learning under domain shift.

import fairsilo
result = fairsilo.run(method="fedprox(mu=0.1) | fedheal", rounds=10)
print(result.summary["generalisation"]["mean"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["FairsiloError", "compare", "method", "resume", "run"]

if TYPE_CHECKING:
    from fairsilo.errors import FairsiloError
    from fairsilo.methods.text import method
    from fairsilo.runs.experiment import compare, resume, run

_HOMES = {
    "run": "fairsilo.runs.experiment",
    "resume": "fairsilo.runs.experiment",
    "compare": "fairsilo.runs.experiment",
    "method": "fairsilo.methods.text",
    "FairsiloError": "fairsilo.errors",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `fairsilo --help` does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fairsilo' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
