"""How far local features move away from global ones (GRACE, Fig. 2a)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fairsilo.analysis.diagnostics.replay import (
    SENT,
    Numbers,
    Replay,
    Row,
    answered,
    check_global,
    global_model,
    mean_of,
    measured,
    one_thread,
)
from fairsilo.errors import FairsiloError

FEWEST = 4  # samples that can be halved and still told apart


@dataclass(frozen=True)
class ADistance:
    """`distance` is None where the silo has too few samples."""

    round: int
    silo: str
    global_model: str
    samples: int
    distance: float | None


@dataclass(frozen=True)
class ADistances:
    found: tuple[ADistance, ...]

    def rows(self) -> list[Row]:
        names = {"distance": "proxy_a_distance"}
        return [{names.get(key, key): value for key, value in asdict(item).items()} for item in self.found]

    def numbers(self) -> Numbers:
        """The distance in the first and in the last round, mean over the silos, and over all rounds."""
        rounds = sorted({item.round for item in self.found if item.distance is not None})
        ends = dict(zip(("first", "last"), (rounds[0], rounds[-1]), strict=True)) if rounds else {}
        found = {name: mean_of(item.distance for item in self.found if item.round == at) for name, at in ends.items()}
        return measured({**found, "mean": mean_of(item.distance for item in self.found)})


def proxy_a_distance(one: Tensor, other: Tensor, seed: int = 0) -> float:
    """How well a linear classifier tells two sets of features apart: max(0, 2 (1 - 2 error)).

    0: not at all; 2: always. Logistic regression on standardised features learns from one half of each set and is
    tested on the other. An error above one half happens by chance alone and counts as distance 0, because a distance
    is not negative. Both sets are cut to the same size and halved alike, so their order does not matter, and where
    row i is the same sample under two models it is in the same half of both.
    """
    from sklearn.linear_model import LogisticRegression

    size = min(len(one), len(other))
    if size < FEWEST:
        raise FairsiloError(f"an A-distance needs at least {FEWEST} samples of each kind; there are {size}")
    order = np.random.default_rng(seed).permutation(size)
    known, asked = order[: size // 2], order[size // 2 :]
    sets = [values.detach().cpu().double().numpy() for values in (one, other)]
    seen, labels = _labelled(sets, known)
    tested, truth = _labelled(sets, asked)
    centre, scale = seen.mean(axis=0), seen.std(axis=0)
    scale[scale == 0] = 1  # a feature that never varies says nothing
    classifier: Any = LogisticRegression(max_iter=2000)  # type: ignore[no-untyped-call]
    with one_thread():
        classifier.fit((seen - centre) / scale, labels)
    error = float(np.mean(classifier.predict((tested - centre) / scale) != truth))
    return max(0.0, 2 * (1 - 2 * error))


def _labelled(sets: Sequence[np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([values[rows] for values in sets]), np.repeat(np.arange(len(sets)), len(rows))


def a_distance(replay: Replay, split: str = "test", limit: int = 200, against: str = SENT, seed: int = 0) -> ADistances:
    """Per silo and round the A-distance of global to local features on the silo's own data (GRACE's Fig. 2a).

    The global model is the one the silo was `sent`, because that is what the alignment loss of GRACE's equation 2
    pulls the features to; `after` takes the aggregated one instead, where it was kept.
    """
    check_global(against)
    found = []
    for number in replay.rounds:
        reference = global_model(replay, number, against)
        if reference is None:
            continue
        for silo, own in answered(replay, number).items():
            theirs, _ = replay.features(reference, silo, split, limit)
            ours, _ = replay.features(own, silo, split, limit)
            distance = proxy_a_distance(theirs, ours, seed) if len(ours) >= FEWEST else None
            found.append(ADistance(number, silo, against, len(ours), distance))
    return ADistances(tuple(found))
