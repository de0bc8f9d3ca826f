"""What a trial is judged by: the validation samples of the silos that train, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairsilo.analysis.metrics import Row, mean, results, select_rounds
from fairsilo.errors import FairsiloError

BY = ("mean", "worst")


@dataclass(frozen=True)
class Judge:
    """Turns the rows of a run into one number.

    Attributes:
        about: Whose results the method is about: `global` or `personal`.
        selection: The rule that selects the round, as in a run.
        higher: Whether more of the metric is better.
        by: The mean over the silos, or the worst of them.
    """

    about: str = "global"
    selection: str = "last"
    higher: bool = True
    by: str = "mean"

    def __post_init__(self) -> None:
        if self.by not in BY:
            raise FairsiloError(f"by is {self.by!r}; it must be one of {', '.join(BY)}")
        if self.selection == "oracle":
            raise FairsiloError("evaluate.selection=oracle looks at test data, and nothing may be chosen by them")

    def __call__(self, rows: Sequence[Row]) -> float | None:
        """None where nothing was measured, or not a finite number."""
        seen = [row for row in rows if row["split"] == "validation" and not row["unseen"]]
        found = results(seen, select_rounds(seen, self.selection, self.higher), self.about, "validation")
        if not found:
            return None
        worst = min if self.higher else max
        score = mean(found.values()) if self.by == "mean" else worst(found.values())
        return score if math.isfinite(score) else None
