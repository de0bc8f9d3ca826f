"""The loss over the plane through the global and two local models (FFT-GP, Fig. 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from fairsilo.analysis.diagnostics.replay import (
    GLOBAL,
    SENT,
    Numbers,
    Replay,
    Row,
    answered,
    kept_round,
    last_global,
    mean_of,
    measured,
)
from fairsilo.core.vectors import BUFFER, Layout
from fairsilo.errors import FairsiloError, nearest

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

    def numbers(self) -> Numbers:
        """The loss of the global model, the mean of the two local ones, and its mean rise over the plane in sight."""
        shared, *local = (model.loss for model in self.models)
        rise = mean_of(loss - shared for line in self.losses for loss in line if math.isfinite(loss))
        return measured({"global": shared, "local": mean_of(local), "rise": rise})


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
    number = kept_round(replay, round)
    if steps < 2:
        raise FairsiloError(f"steps is {steps}; a surface needs at least 2 a side")
    where = _tested_on(replay, where)
    local = answered(replay, number)
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
    name, reference = last_global(replay, number, which)
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
