"""What is measured beside the pilots' results: how far silos are apart, and what methods cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairsilo.analysis.metrics import mean
from fairsilo.analysis.shift import Pair, feature_distances, label_distances, size_ratio
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import ModelMaker
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.trained import Trained

SAMPLES = 200  # of each silo, whose features are looked at
SILOS = 12  # whose features are: distances are of pairs
TALKS = "evaluate"  # the exchange that belongs to measuring, not to a method


@dataclass(frozen=True)
class Shift:
    """How far silos are apart.

    Attributes:
        labels: By pair of silos, the total variation distance of their mixtures of classes; empty without classes.
        sizes: The largest silo's training samples as a multiple of the smallest's.
        features: By pair of silos, the proxy A-distance of what the plain pilot's network makes of their samples.
        samples: Silo -> training samples.
    """

    labels: Mapping[Pair, float]
    sizes: float
    features: Mapping[Pair, float]
    samples: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Pairs as lists: JSON has no tuples for keys."""
        listed = {key: [[*pair, value] for pair, value in getattr(self, key).items()] for key in ("labels", "features")}
        return {**listed, "sizes": self.sizes, "samples": dict(self.samples)}


def shift_of(people: Federation, pilot: Path, model: ModelMaker | None) -> Shift:
    """Of the silos that train, by what they train on.

    Args:
        people: The silos.
        pilot: The folder of a run of the plain method, whose network's features are taken.
        model: The function that makes the network, where it was given one.
    """
    members = people.roster.silos
    counts = {one.name: one.trained for one in members if one.trained}
    sizes = {one.name: one.train for one in members}
    trained = Trained(pilot, model=model, trust=True)  # a run of this very program
    return Shift(label_distances(counts), size_ratio(list(sizes.values())), _apart(trained, people), sizes)


def _apart(trained: Trained, people: Federation) -> dict[Pair, float]:
    found: dict[str, NDArray[np.float64]] = {}
    for silo in people.silos[:SILOS]:
        places = torch.linspace(0, len(silo.train) - 1, min(SAMPLES, len(silo.train))).long()
        features = trained.features(silo.train.take(places)[0])
        if features is None:
            return {}
        found[silo.name] = features.double().numpy()
    return feature_distances(found)


def costs_of(methods: Sequence[str], cells: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """By method: seconds and bytes a round without the evaluation, and what it sends besides the model.

    A first round also sets things up, for the method that comes first above all, so that it tells bytes but no seconds.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in methods:
        places = [RunFolder(folder / cell["folder"]) for cell in cells if cell["method"] == name]
        runs = [place.rows("rounds") for place in places]
        later = [record for records in runs for record in records[1:]]
        rounds = later or [record for records in runs for record in records]
        talks = [[one for one in record["exchanges"] if one["kind"] != TALKS] for record in rounds]
        found[name] = {
            "seconds": mean(record["seconds"] - _evaluating(record) for record in later) if later else None,
            "bytes": mean(sum(one["bytes_down"] + one["bytes_up"] for one in some) for some in talks),
            "sends": list(places[0].read_json("run.json")["method_sends"]),
        }
    return found


def _evaluating(record: Mapping[str, Any]) -> float:
    return sum(float(one["seconds"]) for one in record["exchanges"] if one["kind"] == TALKS)
