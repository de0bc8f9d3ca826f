"""Names that lead nowhere are refused at once; what would refuse them later takes seconds to import."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

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
    for row in rows:
        _refuse_place(method_in(row))
    for text in filter(None, (experiment.method, experiment.baseline, *map(method_in, rows))):
        names.refuse_unknown(text)
    if experiment.model != "auto":
        described.check(experiment.model)
    if experiment.data.name:
        data.refuse_unknown(experiment.data.name)


def _refuse_place(text: str) -> None:
    """Refuse data or settings in the place of a method: who names a folder there has forgotten what it is."""
    try:
        names.refuse_unknown(text)
    except FairsiloError:
        if not text or not os.path.exists(text):  # noqa: PTH110 - whatever the text is, and however long
            raise
        place = shlex.quote(text)
        if Path(text).is_dir():
            kind = "packed" if any(Path(text).glob("*.npz")) else "folder"
            raise FairsiloError(f"{text!r} is a folder and no method; give it as data.{kind}={place}") from None
        if Path(text).suffix.lower() in (".yaml", ".yml"):
            raise FairsiloError(f"{text!r} is a file and no method; give a file of settings as -c {place}") from None
        raise FairsiloError(
            f"{text!r} is a file and no method; give a file of settings as -c FILE.yaml, and data as data.folder=FOLDER"
        ) from None


def refuse_unknown_export(name: str) -> None:
    if name not in EXPORTS:
        raise FairsiloError(f"--to is {name!r}{nearest(name, EXPORTS)}")
