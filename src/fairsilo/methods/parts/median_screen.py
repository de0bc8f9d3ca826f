"""Screening by the median (after Yin et al., 2018). Differs from FedAvg by leaving out updates far from most others.

Against silos that are broken or hostile, and fewer than half. A silo whose data are unlike all others' looks the same
from here: `times` says how unlike it may be. Honest silos of uneven federations were up to 5.5 times as far as the
middle one; the default leaves room.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairsilo.core.attachments import EACH_UPDATE
from fairsilo.core.part import About, Part
from fairsilo.core.server import Server, Updates
from fairsilo.fields import setting
from fairsilo.methods.medians import from_middle, middle, stretches

LEAST = 3  # updates; of two, both are equally far from what lies between them
HELP = "largest distance from the median update, as a multiple of the median distance"


@dataclass(frozen=True)
class MedianScreen(Part):
    """Updates that are further from the coordinate-wise median than a multiple of the median distance do not count."""

    name = "median-screen"
    about = About(
        paper="Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018",
        formula="d_i = |D_i - median_j D_j|;  D_i counts where d_i <= times median_j d_j",
        sends=(EACH_UPDATE,),
    )
    needs = frozenset({"shared-tensors"})

    times: float = setting(10.0, HELP, low=1, rare="where one is far away")

    def collect(self, server: Server, updates: Updates) -> Updates:
        """A silo that is left out is not told, and goes on with what it keeps for itself."""
        for place, what in stretches(updates.layout):
            if len(updates) < LEAST:
                break
            distances = from_middle(updates.deltas[:, place])
            most = self.times * float(middle(distances))
            for silo, distance in zip(updates.silos, distances.tolist(), strict=True):
                if distance > most:
                    server.left_out[silo] = f"its {what} is {distance:.3g} from the median, and {most:.3g} is allowed"
            updates = updates.without(server.left_out)
        return updates
