"""Names that lead nowhere are refused at once; what would refuse them later takes seconds to import."""

from __future__ import annotations

from collections.abc import Sequence

from fairsilo import data
from fairsilo.config import Experiment
from fairsilo.errors import FairsiloError, nearest
from fairsilo.methods import names
from fairsilo.models import described
from fairsilo.runs.comparison import method_in

EXPORTS = ("onnx", "pt2", "safetensors", "hf")  # the formats of an export


def refuse_unknown(experiment: Experiment, rows: Sequence[str] = ()) -> None:
    """Refuse methods, a model and a data set that do not exist.

    Args:
        experiment: The settings of a run, or what all runs of a comparison have in common.
        rows: The methods of a comparison.
    """
    for text in filter(None, (experiment.method, experiment.baseline, *map(method_in, rows))):
        names.refuse_unknown(text)
    if experiment.model != "auto":
        described.check(experiment.model)
    if experiment.data.name:
        data.refuse_unknown(experiment.data.name)


def refuse_unknown_export(name: str) -> None:
    if name not in EXPORTS:
        raise FairsiloError(f"--to is {name!r}{nearest(name, EXPORTS)}")
