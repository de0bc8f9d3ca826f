"""Features in and out of domain as one t-SNE map (FFT-GP, Fig. 7; GRACE, Fig. 2b)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from fairsilo.analysis.diagnostics.replay import (
    GLOBAL,
    Numbers,
    Replay,
    Row,
    answered,
    kept_round,
    last_global,
    one_thread,
)
from fairsilo.errors import FairsiloError

POINTS = 1000  # of an embedding, about, unless a limit is given
FEWEST = 4  # points of a map
NEIGHBOURS = 10  # of a point, by which mixing is told


@dataclass(frozen=True)
class EmbeddedPoint:
    """One sample seen by one model: `model` is global or the name of the silo whose local model it is."""

    x: float
    y: float
    model: str
    silo: str
    unseen: bool
    target: int | None


@dataclass(frozen=True)
class Embedding:
    round: int
    global_model: str
    points: tuple[EmbeddedPoint, ...]

    def rows(self) -> list[Row]:
        names = {"target": "class"}
        return [
            {"round": self.round, "global_model": self.global_model}
            | {names.get(key, key): value for key, value in asdict(point).items()}
            for point in self.points
        ]

    def numbers(self) -> Numbers:
        """How well domains mix in the global model's features: 1 where unseen points have neighbours like all others.

        Of the ten nearest neighbours in the map of every unseen point, the share of points of silos that train, over
        the share of these among all points.
        """
        points = [point for point in self.points if point.model == GLOBAL]
        unseen = np.array([point.unseen for point in points])
        if not unseen.any() or unseen.all() or len(points) <= NEIGHBOURS:
            return {}
        places = np.array([(point.x, point.y) for point in points])
        apart = np.square(places[unseen][:, None] - places[None]).sum(-1)
        apart[np.arange(len(apart)), np.flatnonzero(unseen)] = np.inf  # nobody is a neighbour of oneself
        nearest = np.argsort(apart, axis=1, kind="stable")[:, :NEIGHBOURS]
        seen = ~unseen
        return {"mixing": float(seen[nearest].mean() / (seen.sum() / (len(points) - 1)))}


def t_sne(
    replay: Replay,
    round: int | None = None,
    split: str = "test",
    limit: int | None = None,
    perplexity: float = 30.0,
    seed: int = 0,
    against: str | None = None,
) -> Embedding:
    """t-SNE of features at one round, all in one map (FFT-GP's Fig. 7, GRACE's Fig. 2b).

    The global model sees every silo and every unseen silo; a local model sees its own silo and the unseen ones.
    `limit` samples are taken for each such pair, by default so many that there are about a thousand points. The
    global model is the one `after` the round where it was kept, else the one `sent`. Perplexity is lowered to a third
    of the points where there are few. One thread, a fixed random state and a start from principal components: the
    same features always give the same map.
    """
    number = kept_round(replay, round)
    which, reference = last_global(replay, number, against)
    local = answered(replay, number)
    pairs = [(GLOBAL, reference, silo) for silo in (*replay.silos, *replay.unseen)]
    pairs += [(name, model, silo) for name, model in local.items() for silo in (name, *replay.unseen)]
    limit = max(4, POINTS // len(pairs)) if limit is None else limit
    seen = [(name, silo, *replay.features(model, silo, split, limit)) for name, model, silo in pairs]
    places = _flat_map(torch.cat([features for *_, features, _ in seen]), perplexity, seed)
    labels = [
        (name, silo, silo in replay.unseen, target)
        for name, silo, features, targets in seen
        for target in _classes(targets, len(features))
    ]
    points = [EmbeddedPoint(x, y, *label) for (x, y), label in zip(places.tolist(), labels, strict=True)]
    return Embedding(number, which, tuple(points))


def _classes(targets: Tensor, count: int) -> list[int | None]:
    """One class per sample; None where targets are not classes (masks, real numbers)."""
    if targets.ndim != 1 or targets.is_floating_point():
        return [None] * count
    return [int(target) for target in targets.tolist()]


def _flat_map(features: Tensor, perplexity: float, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    values = features.detach().cpu().double().numpy()
    if len(values) < FEWEST:
        raise FairsiloError(f"a t-SNE map needs at least {FEWEST} points; there are {len(values)}")
    if values.shape[1] < 2:  # principal components in the plane need two dimensions
        values = np.pad(values, ((0, 0), (0, 2 - values.shape[1])))
    bounded = min(perplexity, (len(values) - 1) / 3)
    with one_thread():
        method = TSNE(perplexity=bounded, init="pca", random_state=seed)  # type: ignore[no-untyped-call]
        return np.asarray(method.fit_transform(values))
