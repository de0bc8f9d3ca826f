"""What sites are told before a run: how to read their samples, so that all mean the same by a class or a pixel."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairsilo import __version__
from fairsilo.config import Experiment
from fairsilo.data.embedded import DATASETS
from fairsilo.errors import FairsiloError

UNNAMED = (
    "sites map their labels to classes by name, and the settings do not name the classes; "
    "set data.classes, such as data.classes=benign,malignant (or data.classes=- where the data have none)"
)


@dataclass(frozen=True)
class Brief:
    """Preprocessing, class names in their order, splits; and which version asks.

    Attributes:
        version: Of fairsilo at the server.
        classes: Their names; sites map their own labels to them by name. Empty for tasks without classes.
        size: To which every image is resized.
        fit: How one that is not square becomes square.
        split: As `data.split`.
        validation: Share of training samples that a silo validates with.
        test: Share of samples that a silo tests on, where its data do not say.
        seed: Of the splits.
        groups: Columns by whose values results are told apart, at sites that allow it.
    """

    version: str
    classes: tuple[str, ...]
    size: int | None
    fit: str
    split: str
    validation: float
    test: float
    seed: int
    groups: tuple[str, ...] = ()

    @classmethod
    def of(cls, experiment: Experiment) -> Brief:
        """From the settings of a run.

        Raises:
            FairsiloError: The settings do not say which classes there are.
        """
        data = experiment.data
        shared = {key: getattr(data, key) for key in ("size", "fit", "split", "validation", "test", "seed")}
        return cls(__version__, classes_of(experiment), **shared, groups=experiment.evaluate.columns)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Brief:
        """The inverse of `as_dict`; whatever else a newer version may say is left aside."""
        known = {item.name for item in dataclasses.fields(cls)}
        given = {key: value for key, value in content.items() if key in known}
        return cls(**{**given, "classes": tuple(given["classes"]), "groups": tuple(given.get("groups", ()))})


def classes_of(experiment: Experiment) -> tuple[str, ...]:
    """The class names that travel with a job: those of the settings, or of the data set that they name."""
    data = experiment.data
    if data.named_classes is not None:
        return data.named_classes
    if data.name in DATASETS:
        from fairsilo.data.glyphs import CLASSES  # of the one that is embedded; scikit-learn comes with it

        return CLASSES
    raise FairsiloError(UNNAMED)


def refuse_unnamed(content: Mapping[str, Any], changes: Sequence[str]) -> None:
    """Refuse settings that name neither classes nor a data set: the default data are a simulation's.

    Args:
        content: Of the file.
        changes: Settings as `key=value`.
    """
    data = content.get("data")
    given = {*content, *(f"data.{key}" for key in (data if isinstance(data, Mapping) else ()))}
    given |= {one.partition("=")[0].strip() for one in changes}
    if not given & {"data.classes", "data.name", "classes", "name"}:
        raise FairsiloError(UNNAMED)
