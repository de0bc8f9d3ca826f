"""FAA, fairness-aware aggregation: the server half of FFT-GP. Differs from GA by solving for equal gaps.

Two probes a round give each silo's gap at the carried weights a and at GA's perturbation a' of them; the slope of gap
against weight then tells the weights at which, to first order, all gaps are equal. `every=n` does that in the last
round of every n and a plain GA step in the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fairsilo.core.attachments import EACH_UPDATE, Sends
from fairsilo.core.part import About
from fairsilo.core.round import candidate, probe
from fairsilo.core.server import Server, Updates, ordered
from fairsilo.fields import setting
from fairsilo.methods.gap_rules import adjust, equalise, step_at
from fairsilo.methods.gaps import GAPS, FollowsGaps, GapState

OUTSIDE = "where solved weights leave [0, 1]"


@dataclass(frozen=True)
class FairnessAware(FollowsGaps):
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

    every: int = setting(1, "FAA in the last of every n rounds, GA in the others", low=1)
    split: str = setting("validation", "samples that gaps are measured on", choices=("validation", "train"))
    flat: float | None = setting(None, "gap changes up to this are no slope; by default 1e-4 of the gap", low=0)
    limit: float | None = setting(
        0.5, "how far a weight may leave [0, 1] before GA's step is taken instead", low=0, rare=OUTSIDE
    )
    onto: str = setting("clip", "the way back onto the simplex", choices=("clip", "project"), rare=OUTSIDE)

    @property
    def measured_on(self) -> str:
        return self.split

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
            state.of(both), ordered(both, gaps), after, ordered(both, perturbed_gaps), self.flat, self.limit, self.onto
        )
        if found.status != "ok" or found.clipped:
            server.note(f"FAA: {'clipped to the simplex' if found.clipped else found.status.replace('_', ' ')}")
        state.move(both, lambda _: found.weights / found.weights.sum())

    def _gaps(self, server: Server, updates: Updates, state: GapState, names: list[str]) -> dict[str, float]:
        model = candidate(server, updates, state.of(list(updates.silos)))
        answers = probe(server, model, names, self.split)
        return {name: answers[name].loss - state.own[name] for name in names if name in answers}
