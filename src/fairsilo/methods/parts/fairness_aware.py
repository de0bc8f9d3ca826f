"""FAA, fairness-aware aggregation: the server half of FFT-GP. Differs from GA by solving for equal gaps.

Two probes a round give each silo's gap at the carried weights a and at GA's perturbation a' of them; the slope of gap
against weight then tells the weights at which, to first order, all gaps are equal. `every=n` does that in the last
round of every n and a plain GA step in the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairsilo.config import setting
from fairsilo.core.attachments import EACH_UPDATE, Sends
from fairsilo.core.messages import Message
from fairsilo.core.part import About, Part
from fairsilo.core.round import candidate, probe
from fairsilo.core.server import Server, Updates, ordered
from fairsilo.core.silo import Silo
from fairsilo.methods.parts.generalization_adjustment import (
    GAPS,
    WARMUP,
    GapState,
    adjust,
    check_warmup,
    measure_received,
    report_losses,
    step_at,
)
from fairsilo.methods.simplex import clip_renormalise, project


@dataclass(frozen=True)
class FairnessAware(Part):
    """K_i = (a'_i - a_i)/(G_i - G'_i); G* = sum K_i G_i / sum K_i; a*_i = a_i + K_i (G_i - G*)."""

    name = "fairness-aware"
    about = About(
        paper="Zhang et al., Fairness-guided federated training for generalization and personalization, FITEE 2024",
        formula="K_i = (a'_i - a_i)/(G_i - G'_i);  G* = sum_i K_i G_i / sum_i K_i;  a_i <- a_i + K_i (G_i - G*)",
        sends=(
            *GAPS,
            Sends("loss", "the losses of two candidate models on its validation data", exchange="probe"),
            EACH_UPDATE,
        ),
        keeps=("aggregation weights at the server",),
    )
    needs = frozenset({"validation"})
    does = frozenset({"decides-weights"})

    every: int = setting(1, "FAA in the last of every n rounds, GA in the others", low=1)
    step_size: float = setting(0.2, "of the perturbation by GA", low=0)
    schedule: str = setting("released", "of the step size over rounds", choices=("released", "linear", "constant"))
    centred: bool = setting(False, "the perturbation by GA subtracts the mean gap first, as the GA paper prints it")
    split: str = setting("validation", "samples that gaps are measured on", choices=("validation", "train"))
    flat: float | None = setting(None, "gap changes up to this are no slope; by default 1e-4 of the gap", low=0)
    limit: float | None = setting(0.5, "how far a weight may leave [0, 1] before GA's step is taken instead", low=0)
    onto: str = setting("clip", "the way back onto the simplex", choices=("clip", "project"))
    warmup: str = setting("auto", WARMUP)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_warmup(self.name, self.warmup)

    def begin(self, silo: Silo) -> None:
        measure_received(silo, self.split)

    def finish(self, silo: Silo, update: Message) -> None:
        report_losses(silo, update, self.split)

    def weights(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        state = GapState(server, updates, server.memory.of(self), "loss")
        movable = state.movable(self.warmup)
        if (server.round - 1) % self.every != 0:  # the gap of a GA round is known, and acted on, one round later
            state.adjust(movable, self.step_size, self.schedule, self.centred)
        if movable and server.round % self.every == 0:
            self._equalise(server, updates, state, movable)
        return state.close()

    def _equalise(self, server: Server, updates: Updates, state: GapState, names: list[str]) -> None:
        """Probe at a, probe at a', solve; over those who answered both, everybody else's weight unchanged."""
        carried = dict(state.carried)
        gaps = self._gaps(server, updates, state, names)
        first = list(gaps)
        if not first:
            return
        step = step_at(self.step_size, self.schedule, server.round - 1, server.rounds)
        state.move(first, lambda a: adjust(a, ordered(first, gaps), step, centred=self.centred))
        perturbed = dict(state.carried)
        perturbed_gaps = self._gaps(server, updates, state, first)
        both = list(perturbed_gaps)
        state.carried = carried
        if not both or ordered(both, carried).sum() == 0:
            return
        after = ordered(both, perturbed) / ordered(both, carried).sum()
        found = equalise(
            state.of(both),
            ordered(both, gaps),
            after,
            ordered(both, perturbed_gaps),
            self.flat,
            self.limit,
            self.onto,
        )
        if found.status != "ok" or found.clipped:
            server.note(f"FAA: {'clipped to the simplex' if found.clipped else found.status.replace('_', ' ')}")
        state.move(both, lambda _: found.weights / found.weights.sum())

    def _gaps(self, server: Server, updates: Updates, state: GapState, names: list[str]) -> dict[str, float]:
        model = candidate(server, updates, state.of(list(updates.silos)))
        answers = probe(server, model, names, self.split)
        return {name: answers[name].loss - state.own[name] for name in names if name in answers}


@dataclass(frozen=True)
class Equalised:
    """`status` is ok, fallback_to_perturbed (no usable slope) or beyond_limit (GA's step taken instead)."""

    weights: Tensor
    status: str
    clipped: bool
    slopes: Tensor
    gap: float
    unclipped: Tensor


def equalise(
    weights: Tensor,
    gaps: Tensor,
    perturbed: Tensor,
    perturbed_gaps: Tensor,
    flat: float | None = None,
    limit: float | None = 0.5,
    onto: str = "clip",
) -> Equalised:
    """Equations 9 to 11 with guards: a flat or wrong-way slope freezes its silo, no slope at all means GA's step."""
    change = gaps - perturbed_gaps
    least = 1e-4 * gaps.abs().clamp(min=1e-3) if flat is None else torch.full_like(gaps, flat)
    usable = change.abs() > least
    slopes = torch.where(usable, (perturbed - weights) / torch.where(usable, change, 1), 0).clamp(min=0)
    total = slopes.sum()
    if not total > 0:
        return Equalised(perturbed, "fallback_to_perturbed", False, slopes, float("nan"), weights)
    common = (slopes * gaps).sum() / total
    solved = weights + slopes * (gaps - common)
    if limit is not None and bool(((solved < -limit) | (solved > 1 + limit)).any()):
        return Equalised(perturbed, "beyond_limit", False, slopes, float(common), solved)
    inside = bool(((solved >= 0) & (solved <= 1)).all())
    landed = project(solved) if onto == "project" else clip_renormalise(solved, weights)
    return Equalised(landed, "ok", not inside, slopes, float(common), solved)
