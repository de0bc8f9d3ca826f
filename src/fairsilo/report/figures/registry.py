"""All figures, by the name that the command line knows them by. A new figure is a file, a caption and a line here."""

from __future__ import annotations

from fairsilo.report.figures import (
    a_distance,
    attention,
    gap_variance,
    loss_surface,
    t_sne,
    update_consistency,
    weight_gap,
)
from fairsilo.report.figures.drawing import Diagram

FIGURES: dict[str, Diagram] = {
    "gap-variance": gap_variance.FIGURE,
    "weight-gap": weight_gap.FIGURE,
    "a-distance": a_distance.FIGURE,
    "t-sne": t_sne.FIGURE,
    "loss-surface": loss_surface.FIGURE,
    "update-consistency": update_consistency.FIGURE,
    "attention": attention.FIGURE,
}
