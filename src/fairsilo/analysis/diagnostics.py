"""What the papers look at beside accuracy, from the models a run kept. Knows no run folder and no engine.

Every function takes a `Replay` and returns a frozen result; its `rows` are the lines of a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fairsilo.analysis.metrics import variance
from fairsilo.core.server import base_weights, named, ordered
from fairsilo.core.vectors import BUFFER, Layout, Slot, weighted_mean
from fairsilo.errors import FairsiloError, nearest
from fairsilo.methods.parts.fairness_aware import equalise
from fairsilo.methods.parts.generalization_adjustment import adjust, gap, step_at

Row = dict[str, Any]
RULES = ("FedAvg", "GA", "FAA")
GLOBAL = "global"
SENT, AFTER = "sent", "after"


class Replay(Protocol):
    """A finished run: the vectors of its local models, ways to measure any vector at any silo, and its attention."""

    @property
    def layout(self) -> Layout:
        """Of all vectors below: what crosses the wire."""

    @property
    def silos(self) -> Sequence[str]: ...

    @property
    def unseen(self) -> Sequence[str]: ...

    @property
    def rounds(self) -> Sequence[int]:
        """Rounds whose local models were kept, ascending; the first round of a run is 1. May refuse with a sentence."""

    @property
    def total_rounds(self) -> int: ...

    @property
    def samples(self) -> Mapping[str, int]:
        """Training samples per silo."""

    def sent(self, round: int) -> Tensor:
        """The global model as it was sent at the start of the round."""

    def local(self, round: int) -> Mapping[str, Tensor]:
        """The local model of every silo that answered, after its training."""

    def after(self, round: int) -> Tensor | None:
        """The global model at the end of the round; None where it was not kept."""

    def loss(self, vector: Tensor, silo: str, split: str) -> float:
        """Mean task loss in evaluation mode."""

    def features(self, vector: Tensor, silo: str, split: str, limit: int) -> tuple[Tensor, Tensor]:
        """Features (n x d) and targets of at most `limit` samples, always the same ones, in evaluation mode."""

    @property
    def domains(self) -> Mapping[str, bool]:
        """Domains with test images, those of the silos first -> whether nobody trained on them."""

    @property
    def attends(self) -> bool:
        """Whether the global model is an adapter per silo, which answer together by attention."""

    def attention(self, domain: str) -> Tensor:
        """How much each silo's adapter counts for each test image of a domain (images x silos)."""


class Result(Protocol):
    def rows(self) -> list[Row]:
        """Lines of a table, all with the same columns."""


# ------------------------------------------------------------------------------------- aggregating kept models
def aggregate(layout: Layout, models: Sequence[Tensor], weights: Tensor) -> Tensor:
    """sum_i weights_i model_i; counters take the maximum."""
    rows = torch.stack(list(models))
    vector = rows[0].clone()
    vector[: layout.floats] = weighted_mean(rows[:, : layout.floats], weights)
    vector[layout.floats :] = rows[:, layout.floats :].amax(dim=0)
    return vector


def _answered(replay: Replay, number: int) -> dict[str, Tensor]:
    """The local models of a round, silos in their usual order."""
    local = replay.local(number)
    return {silo: local[silo] for silo in replay.silos if silo in local}


class _Round:
    """The local models of one round, and the gaps that any aggregation of them leaves."""

    def __init__(self, replay: Replay, number: int) -> None:
        self.replay, self.number = replay, number
        local = _answered(replay, number)
        self.silos, self.models = tuple(local), list(local.values())
        self.own = self._losses(self.models)

    def gaps(self, weights: Tensor) -> Tensor:
        """G_i = L_i(sum_j weights_j w_j) - L_i(w_i) on validation data."""
        return gap(self.own, self._losses([self.aggregate(weights)] * len(self.silos)))

    def gap_of(self, place: int, weights: Tensor) -> float:
        loss = self.replay.loss(self.aggregate(weights), self.silos[place], "validation")
        return loss - float(self.own[place])

    def aggregate(self, weights: Tensor) -> Tensor:
        return aggregate(self.replay.layout, self.models, weights)

    def step(self, size: float) -> float:
        return step_at(size, "released", self.number - 1, self.replay.total_rounds)

    def _losses(self, vectors: Sequence[Tensor]) -> Tensor:
        pairs = zip(vectors, self.silos, strict=True)
        return torch.tensor([self.replay.loss(v, silo, "validation") for v, silo in pairs], dtype=torch.float64)


def _replayed(replay: Replay) -> Iterator[_Round]:
    return (found for found in (_Round(replay, number) for number in replay.rounds) if found.silos)


class _Carried:
    """Weights carried from round to round, from 1/M on. Who is absent keeps its weight."""

    def __init__(self, silos: Sequence[str]) -> None:
        self.weights = {silo: 1 / len(silos) for silo in silos}

    def of(self, silos: Sequence[str]) -> Tensor:
        """The weights of some silos, scaled to sum 1 among them."""
        values = ordered(silos, self.weights)
        return values / values.sum() if values.sum() > 0 else torch.full_like(values, 1 / len(silos))

    def carry(self, silos: Sequence[str], shares: Tensor) -> None:
        """New shares among some silos; what they have together stays."""
        self.weights |= named(silos, shares / shares.sum() * ordered(silos, self.weights).sum())


@dataclass(frozen=True)
class _Probes:
    """FAA's two probes of a round and the weights it finds from them."""

    weights: Tensor
    gaps: Tensor
    perturbed: Tensor
    perturbed_gaps: Tensor
    solved: Tensor
    note: str


def _probe(found: _Round, weights: Tensor, step: float) -> _Probes:
    gaps = found.gaps(weights)
    perturbed = adjust(weights, gaps, step)
    perturbed_gaps = found.gaps(perturbed)
    answer = equalise(weights, gaps, perturbed, perturbed_gaps)
    note = "clipped to the simplex" if answer.clipped else answer.status.replace("_", " ")
    return _Probes(weights, gaps, perturbed, perturbed_gaps, answer.weights / answer.weights.sum(), note)


# ------------------------------------------------------------------------------------------ variance of the gaps
@dataclass(frozen=True)
class RoundGaps:
    """Weights and gaps of one aggregation of a round's local models; `note` says how FAA's equations ended."""

    round: int
    rule: str
    weights: dict[str, float]
    gaps: dict[str, float]
    note: str = ""

    @property
    def variance(self) -> float:
        """The population variance; equation 6 of FFT-GP is 2 M^2 times it."""
        return variance(self.gaps.values())


@dataclass(frozen=True)
class GapVariance:
    found: tuple[RoundGaps, ...]

    def curve(self, rule: str) -> list[tuple[int, float]]:
        return [(item.round, item.variance) for item in self.found if item.rule == rule]

    def rows(self) -> list[Row]:
        return [
            {"round": item.round, "aggregation": item.rule, "silo": silo, "weight": item.weights[silo]}
            | {"generalisation_gap": value, "population_variance_of_gaps": item.variance, "note": item.note}
            for item in self.found
            for silo, value in item.gaps.items()
        ]


def gap_variance(replay: Replay, step_size: float = 0.2) -> GapVariance:
    """How unequal the gaps are under FedAvg, GA and FAA aggregation of the same local models (FFT-GP's Fig. 6).

    G_i = L_i(aggregate) - L_i(w_i) on validation data. FedAvg weighs by samples; GA and FAA carry weights of their own
    from 1/M on, as their parts do with warmup=0: GA's change acts in the next round, FAA's in the same. The variance
    is the population variance over the silos that answered; equation 6 of FFT-GP prints 2 M^2 times it.
    """
    adjusted, fair = _Carried(replay.silos), _Carried(replay.silos)
    results = []
    for found in _replayed(replay):
        shares = base_weights(ordered(found.silos, dict(replay.samples)), "samples")
        results.append(_round_gaps(found, "FedAvg", shares, found.gaps(shares)))

        weights = adjusted.of(found.silos)
        gaps = found.gaps(weights)
        results.append(_round_gaps(found, "GA", weights, gaps))
        adjusted.carry(found.silos, adjust(weights, gaps, found.step(step_size)))

        probes = _probe(found, fair.of(found.silos), found.step(step_size))
        results.append(_round_gaps(found, "FAA", probes.solved, found.gaps(probes.solved), probes.note))
        fair.carry(found.silos, probes.solved)
    return GapVariance(tuple(results))


def _round_gaps(found: _Round, rule: str, weights: Tensor, gaps: Tensor, note: str = "") -> RoundGaps:
    return RoundGaps(found.number, rule, named(found.silos, weights), named(found.silos, gaps), note)


# ---------------------------------------------------------------------------------------- weights against gaps
@dataclass(frozen=True)
class Change:
    """What a change of a silo's weight did to its gap, the local models being the same."""

    round: int
    silo: str
    weight_change: float
    gap_change: float


@dataclass(frozen=True)
class Trend:
    """The least-squares line and Pearson's coefficient; None where the data are constant."""

    slope: float | None
    intercept: float | None
    pearson: float | None


@dataclass(frozen=True)
class WeightGap:
    changes: tuple[Change, ...]
    by_silo: dict[str, Trend]
    overall: Trend

    def rows(self) -> list[Row]:
        return [
            asdict(item)
            | {"slope_of_silo": self.by_silo[item.silo].slope, "pearson_of_silo": self.by_silo[item.silo].pearson}
            | {"slope_of_all": self.overall.slope, "pearson_of_all": self.overall.pearson}
            for item in self.changes
        ]


def trend(across: Sequence[float], up: Sequence[float]) -> Trend:
    """The line `up` = slope `across` + intercept of least squares, and how well the points keep to it."""
    x, y = np.asarray(across, dtype=float), np.asarray(up, dtype=float)
    if _constant(x):
        return Trend(None, None, None)
    x_off, y_off = x - x.mean(), y - y.mean()
    slope = float(x_off @ y_off / (x_off @ x_off))
    pearson = None if _constant(y) else float(x_off @ y_off / math.sqrt((x_off @ x_off) * (y_off @ y_off)))
    return Trend(slope, float(y.mean() - slope * x.mean()), pearson)


def _constant(values: np.ndarray) -> bool:
    """Whether values differ by no more than rounding."""
    return len(values) < 2 or float(np.ptp(values)) <= 1e-12 * float(np.abs(values).max())


def weight_against_gap(
    replay: Replay, step_size: float = 0.2, sweep: int = 0, rounds: Sequence[int] | None = None
) -> WeightGap:
    """How the gap of a silo answers to its weight: the line FAA relies on (FFT-GP's Fig. 2).

    Per round and silo a'_i - a_i and G'_i - G_i, from the two probes FAA makes: at its carried weights a and at GA's
    perturbation a' of them. There all weights move at once, so a gap also answers to the others'. With `sweep` one
    weight moves at a time, as the paper describes it: in that many steps up to d_r / M and as many down, the other
    weights scaled to make room; 2 M `sweep` losses a round. `rounds` says which rounds give points, by default all;
    slopes of early and late rounds differ. The slope is that of the gap against the weight, so K of equation 11 is
    -1 / slope.
    """
    for number in rounds or ():
        _number(replay, number)
    carried = _Carried(replay.silos)
    changes: list[Change] = []
    for found in _replayed(replay):
        step = found.step(step_size)
        probes = _probe(found, carried.of(found.silos), step)
        carried.carry(found.silos, probes.solved)
        if rounds is None or found.number in rounds:
            changes += _one_by_one(found, probes, step, sweep) if sweep else _together(found, probes)
    by_silo = {silo: _trend_of([item for item in changes if item.silo == silo]) for silo in replay.silos}
    return WeightGap(tuple(changes), by_silo, _trend_of(changes))


def _trend_of(changes: Sequence[Change]) -> Trend:
    return trend([item.weight_change for item in changes], [item.gap_change for item in changes])


def _together(found: _Round, probes: _Probes) -> list[Change]:
    weights, gaps = probes.perturbed - probes.weights, probes.perturbed_gaps - probes.gaps
    pairs = zip(found.silos, weights.tolist(), gaps.tolist(), strict=True)
    return [Change(found.number, silo, weight, change) for silo, weight, change in pairs]


def _one_by_one(found: _Round, probes: _Probes, step: float, sweep: int) -> list[Change]:
    changes = []
    largest = step / len(found.silos)
    for place, silo in enumerate(found.silos):
        before = float(probes.weights[place])
        for part in (part for part in range(-sweep, sweep + 1) if part):
            value = min(max(before + largest * part / sweep, 0.0), 1.0)
            if value == before or before == 1:  # nowhere to go, or nobody to give to
                continue
            change = found.gap_of(place, _with_weight(probes.weights, place, value)) - float(probes.gaps[place])
            changes.append(Change(found.number, silo, value - before, change))
    return changes


def _with_weight(weights: Tensor, place: int, value: float) -> Tensor:
    """One weight set, the others scaled so that all sum to 1."""
    moved = weights * (1 - value) / (1 - weights[place])
    moved[place] = value
    return moved


# ------------------------------------------------------------------------------------------------- A-distance
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
    with _one_thread():
        classifier.fit((seen - centre) / scale, labels)
    error = float(np.mean(classifier.predict((tested - centre) / scale) != truth))
    return max(0.0, 2 * (1 - 2 * error))


def _one_thread() -> AbstractContextManager[object]:
    """Sums over several threads would differ from run to run; and there is little to gain at these sizes."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # scikit-learn requires it

    limits: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limits


def _labelled(sets: Sequence[np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([values[rows] for values in sets]), np.repeat(np.arange(len(sets)), len(rows))


def a_distances(
    replay: Replay, split: str = "test", limit: int = 200, against: str = SENT, seed: int = 0
) -> ADistances:
    """Per silo and round the A-distance of global to local features on the silo's own data (GRACE's Fig. 2a).

    The global model is the one the silo was `sent`, because that is what the alignment loss of GRACE's equation 2
    pulls the features to; `after` takes the aggregated one instead, where it was kept.
    """
    _check_global(against)
    found = []
    for number in replay.rounds:
        reference = _global(replay, number, against)
        if reference is None:
            continue
        for silo, own in _answered(replay, number).items():
            theirs, _ = replay.features(reference, silo, split, limit)
            ours, _ = replay.features(own, silo, split, limit)
            distance = proxy_a_distance(theirs, ours, seed) if len(ours) >= FEWEST else None
            found.append(ADistance(number, silo, against, len(ours), distance))
    return ADistances(tuple(found))


def _check_global(which: str) -> None:
    if which not in (SENT, AFTER):
        raise FairsiloError(f"the global model of a round is {SENT!r} or {AFTER!r}, not {which!r}")


def _global(replay: Replay, number: int, which: str) -> Tensor | None:
    return replay.sent(number) if which == SENT else replay.after(number)


def _number(replay: Replay, number: int | None) -> int:
    """The round asked for, by default the last that was kept."""
    if not replay.rounds:
        raise FairsiloError("this run kept no local models, so there is nothing to draw")
    if number is not None and number not in replay.rounds:
        raise FairsiloError(
            f"the local models of round {number} were not kept; the first kept is {replay.rounds[0]}, "
            f"the last {replay.rounds[-1]}"
        )
    return replay.rounds[-1] if number is None else number


# ------------------------------------------------------------------------------------------------------- t-SNE
POINTS = 1000  # of an embedding, about, unless a limit is given


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


def embedding(
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
    number = _number(replay, round)
    which, reference = _last_global(replay, number, against)
    local = _answered(replay, number)
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


def _last_global(replay: Replay, number: int, which: str | None) -> tuple[str, Tensor]:
    """The global model asked for; by default the one after the round, where it was kept."""
    if which is not None:
        _check_global(which)
        found = _global(replay, number, which)
        if found is None:
            raise FairsiloError(f"the global model after round {number} was not kept; take the one that was sent")
        return which, found
    after = replay.after(number)
    return (SENT, replay.sent(number)) if after is None else (AFTER, after)


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
    with _one_thread():
        method = TSNE(perplexity=bounded, init="pca", random_state=seed)  # type: ignore[no-untyped-call]
        return np.asarray(method.fit_transform(values))


# ------------------------------------------------------------------------------------------------ loss surface
THIN = 1e-3  # a triangle flatter than this is a line


@dataclass(frozen=True)
class SurfaceModel:
    name: str
    x: float
    y: float
    loss: float


@dataclass(frozen=True)
class LossSurface:
    """Losses on a grid (`losses[row][column]` at `ys[row]`, `xs[column]`) and at the three models of the plane."""

    round: int
    where: str
    global_model: str
    models: tuple[SurfaceModel, ...]
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]

    def rows(self) -> list[Row]:
        about = {"round": self.round, "tested_on": self.where, "global_model": self.global_model}
        models = [about | {"kind": "model"} | asdict(model) for model in self.models]
        grid = [
            about | {"kind": "grid", "name": "", "x": x, "y": y, "loss": loss}
            for y, line in zip(self.ys, self.losses, strict=True)
            for x, loss in zip(self.xs, line, strict=True)
        ]
        return models + grid


class Plane:
    """The plane through three models, with orthonormal coordinates over the trainable tensors (Gram-Schmidt).

    The first model lies at (0, 0), the second on the positive x axis, the third above it. A point is the affine
    combination of the three whose trainable tensors lie there; the same coefficients combine float buffers
    (BatchNorm's statistics), with running variances kept at 0 or above; counters take the maximum.
    """

    def __init__(self, layout: Layout, origin: Tensor, first: Tensor, second: Tensor) -> None:
        self.layout, self.models = layout, (origin, first, second)
        self._origin = origin.double()
        self._sides = [model.double() - self._origin for model in (first, second)]
        self._counters = torch.stack([model[layout.floats :] for model in self.models]).amax(dim=0)
        across, up = (side[: layout.parameters] for side in self._sides)
        width = float(across.norm())
        shift = float(across @ up) / width if width else 0.0
        height = float((up - shift / width * across).norm()) if width else 0.0
        self.places = ((0.0, 0.0), (width, 0.0), (shift, height))

    @property
    def flat(self) -> bool:
        """Whether the three models lie on one line, so that there is no plane."""
        (_, _), (width, _), (shift, height) = self.places
        return height <= THIN * max(width, math.hypot(shift, height))

    def at(self, x: float, y: float) -> Tensor:
        (_, _), (width, _), (shift, height) = self.places
        second = y / height
        first = (x - second * shift) / width
        vector = (self._origin + first * self._sides[0] + second * self._sides[1]).to(self.models[0].dtype)
        for slot in self.layout.slots:
            if slot.role == BUFFER and slot.name.endswith("running_var"):
                vector[slot.place] = vector[slot.place].clamp(min=0)
        vector[self.layout.floats :] = self._counters
        return vector


def loss_surface(
    replay: Replay,
    round: int | None = None,
    silo_a: str | None = None,
    silo_b: str | None = None,
    where: str | None = None,
    steps: int = 21,
    margin: float = 0.25,
    against: str | None = None,
) -> LossSurface:
    """The loss on an unseen silo's test data over the plane through the global and two local models (FFT-GP's Fig. 5).

    The grid covers the three models and `margin` times their extent on every side; x and y are Euclidean distances
    between trainable tensors. See `Plane` for what happens to BatchNorm's statistics. By default: the last round kept,
    the first two silos that answered, the first unseen silo, and the global model `after` the round, or the one
    `sent` where that was not kept or lies on the line between the two (as the mean of two silos does).
    """
    number = _number(replay, round)
    if steps < 2:
        raise FairsiloError(f"steps is {steps}; a surface needs at least 2 a side")
    where = _tested_on(replay, where)
    local = _answered(replay, number)
    silos = _two_silos(list(local), silo_a, silo_b)
    which, plane = _plane(replay, number, [local[silo] for silo in silos], against)
    models = [
        SurfaceModel(name, *place, replay.loss(model, where, "test"))
        for name, place, model in zip((GLOBAL, *silos), plane.places, plane.models, strict=True)
    ]
    xs, ys = (_ticks([place[axis] for place in plane.places], steps, margin) for axis in (0, 1))
    losses = tuple(tuple(replay.loss(plane.at(x, y), where, "test") for x in xs) for y in ys)
    return LossSurface(number, where, which, tuple(models), xs, ys, losses)


def _tested_on(replay: Replay, where: str | None) -> str:
    known = (*replay.unseen, *replay.silos)
    if where is not None and where not in known:
        raise FairsiloError(f"no silo is named {where!r}{nearest(where, known)}")
    if where is None and not replay.unseen:
        raise FairsiloError("this run held out no domain; say at which silo the loss is to be measured")
    return replay.unseen[0] if where is None else where


def _two_silos(answered: Sequence[str], one: str | None, other: str | None) -> tuple[str, str]:
    for name in (one, other):
        if name is not None and name not in answered:
            raise FairsiloError(f"{name!r} has no local model in this round{nearest(name, answered)}")
    free = [name for name in answered if name not in (one, other)]
    chosen = [name if name is not None else free.pop(0) if free else None for name in (one, other)]
    if chosen[0] is None or chosen[1] is None or chosen[0] == chosen[1]:
        raise FairsiloError("a loss surface needs the local models of two silos")
    return chosen[0], chosen[1]


def _plane(replay: Replay, number: int, models: Sequence[Tensor], which: str | None) -> tuple[str, Plane]:
    name, reference = _last_global(replay, number, which)
    plane = Plane(replay.layout, reference, *models)
    if plane.flat and which is None:
        name, plane = SENT, Plane(replay.layout, replay.sent(number), *models)
    if plane.flat:
        raise FairsiloError(f"the global model ({name}) and the two local models lie on one line, not in a plane")
    return name, plane


def _ticks(values: Sequence[float], steps: int, margin: float) -> tuple[float, ...]:
    low, high = min(values), max(values)
    room = margin * (high - low)
    return tuple(np.linspace(low - room, high + room, steps).tolist())


# ----------------------------------------------------------------------------------------- consistency of updates
EDGES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of the histogram; a bin holds its lower edge, the last one both
ALL_TENSORS = "all"
_WINDOWS = (slice(10), slice(100), slice(-10, None))


@dataclass(frozen=True)
class Consistency:
    """How steadily one silo pushes each parameter the same way over some rounds.

    `shares` are shares of parameters per bin of `EDGES`. What signs drawn by coin would give stands beside, because
    over few rounds it is far above one half.
    """

    window: str
    silo: str
    tensor: str
    rounds: int
    mean: float
    mean_by_chance: float
    shares: tuple[float, ...]
    shares_by_chance: tuple[float, ...]


@dataclass(frozen=True)
class UpdateConsistency:
    found: tuple[Consistency, ...]

    def rows(self) -> list[Row]:
        return [
            {"window": item.window, "silo": item.silo, "tensor": item.tensor, "rounds_of_silo": item.rounds}
            | {"mean_consistency": item.mean, "mean_by_chance": item.mean_by_chance}
            | {"consistency_from": EDGES[place], "consistency_to": EDGES[place + 1]}
            | {"share_of_parameters": share, "share_by_chance": item.shares_by_chance[place]}
            for item in self.found
            for place, share in enumerate(item.shares)
        ]


def update_consistency(
    replay: Replay, tensor: str | None = None, rounds: Sequence[int] | None = None
) -> UpdateConsistency:
    """How consistently each silo raises or lowers each parameter (FedHEAL's Fig. 2 and equation 5).

    f = share of the rounds with w_i - W >= 0 (no change counts as a raise, as in the paper); consistency max(f, 1 - f).
    Windows: the first 10, the first 100 and the last 10 rounds kept, or `rounds`. `tensor` is a name, `all` for
    every tensor that comes back from the server, or by default the largest tensor of the network's body.
    """
    name, place = _stretch(replay.layout, tensor)
    windows = _windows(replay.rounds) if rounds is None else {_listed(replay, rounds): frozenset(rounds)}
    raised: dict[tuple[str, str], Tensor] = {}
    counted: dict[tuple[str, str], int] = {}
    for number in replay.rounds:
        inside = [window for window, numbers in windows.items() if number in numbers]
        if not inside:
            continue
        before = replay.sent(number)[place]
        for silo, model in _answered(replay, number).items():
            up = (model[place] >= before).int()
            for key in ((window, silo) for window in inside):
                raised[key] = raised[key] + up if key in raised else up
                counted[key] = counted.get(key, 0) + 1
    keys = [(window, silo) for window in windows for silo in replay.silos if (window, silo) in raised]
    return UpdateConsistency(tuple(_consistency(*key, name, raised[key], counted[key]) for key in keys))


def _stretch(layout: Layout, tensor: str | None) -> tuple[str, slice]:
    slots = {slot.name: slot for slot in layout.shared_slots()}
    if tensor == ALL_TENSORS:
        return ALL_TENSORS, slice(0, layout.shared)
    if not slots:
        raise FairsiloError("no tensor of this model comes back from the server")
    if tensor is None:
        found = _largest(list(slots.values()))
    elif tensor in slots:
        found = slots[tensor]
    else:
        raise FairsiloError(f"no shared tensor is named {tensor!r}{nearest(tensor, (*slots, ALL_TENSORS))}")
    return found.name, found.place


def _largest(slots: Sequence[Slot]) -> Slot:
    body = [slot for slot in slots if slot.group == "body"]
    return max(body or slots, key=lambda slot: slot.length)


def _windows(rounds: Sequence[int]) -> dict[str, frozenset[int]]:
    """Name -> rounds; a window that holds the same rounds as one before is left out."""
    found: dict[str, frozenset[int]] = {}
    for window in _WINDOWS:
        numbers = frozenset(rounds[window])
        word = "all" if len(numbers) == len(rounds) else "last" if window.start else "first"
        if numbers and numbers not in found.values():
            found[f"{word} {len(numbers)} rounds" if len(numbers) > 1 else "one round"] = numbers
    return found


def _listed(replay: Replay, rounds: Sequence[int]) -> str:
    for number in rounds:
        _number(replay, number)
    return f"rounds {min(rounds)} to {max(rounds)}" if rounds else "no round"


def _consistency(window: str, silo: str, tensor: str, raised: Tensor, rounds: int) -> Consistency:
    steady = torch.maximum(raised, rounds - raised)
    bins = torch.bincount(_bins(steady, rounds), minlength=len(EDGES) - 1)
    shares = tuple((bins.double() / len(raised)).tolist())
    mean = float(steady.double().mean()) / rounds
    mean_by_chance, by_chance = _by_chance(rounds)
    return Consistency(window, silo, tensor, rounds, mean, mean_by_chance, shares, by_chance)


def _bins(steady: Tensor, rounds: int) -> Tensor:
    """From counts in integers, so that 6 of 10 rounds is exactly 0.6."""
    return ((10 * steady.long() - 5 * rounds) // rounds).clamp(max=len(EDGES) - 2)


def _by_chance(rounds: int) -> tuple[float, tuple[float, ...]]:
    """Mean and shares where every sign is the toss of a coin."""
    heads = torch.arange(rounds + 1)
    chances = torch.tensor([math.comb(rounds, k) / 2**rounds for k in range(rounds + 1)], dtype=torch.float64)
    steady = torch.maximum(heads, rounds - heads)
    shares = torch.bincount(_bins(steady, rounds), weights=chances, minlength=len(EDGES) - 1)
    return float((steady * chances).sum()) / rounds, tuple(shares.tolist())


# ------------------------------------------------------------------------------------- attention between adapters
@dataclass(frozen=True)
class DomainAttention:
    """Mean attention that each silo's adapter gets from the test images of one domain."""

    domain: str
    unseen: bool
    images: int
    by_silo: dict[str, float]


@dataclass(frozen=True)
class Attention:
    found: tuple[DomainAttention, ...]

    def rows(self) -> list[Row]:
        return [
            {"domain": item.domain, "unseen": item.unseen, "images": item.images}
            | {"silo": silo, "mean_attention": mean}
            for item in self.found
            for silo, mean in item.by_silo.items()
        ]


def attention(replay: Replay) -> Attention:
    """Which silos' adapters answer for the images of each domain (FedAG's Fig. 6, there for single images).

    beta of the global model after the last round, the mean over all test images of a domain. The images of a silo's
    domain are attended to as an unseen one's would be, though there the silo's own adapter answers alone.
    """
    found = []
    for domain, unseen in replay.domains.items():
        weights = replay.attention(domain).double()
        found.append(DomainAttention(domain, unseen, len(weights), named(replay.silos, weights.mean(0))))
    return Attention(tuple(found))
