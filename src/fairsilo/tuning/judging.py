"""What a trial is judged by: the validation samples of the silos that train, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairsilo.analysis.chance import evaluation_sets, judged
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
        metric: Its name, which says whether guessing is known to reach something.
    """

    about: str = "global"
    selection: str = "last"
    higher: bool = True
    by: str = "mean"
    metric: str = ""

    def __post_init__(self) -> None:
        if self.by not in BY:
            raise FairsiloError(f"by is {self.by!r}; it must be one of {', '.join(BY)}")
        if self.selection == "oracle":
            raise FairsiloError("evaluate.selection=oracle looks at test data, and nothing may be chosen by them")

    def __call__(self, rows: Sequence[Row]) -> float | None:
        """None where nothing was measured, or not a finite number."""
        found = self._counting(rows)
        score = mean(found.values())
        return score if math.isfinite(score) else None

    def at_chance(self, rows: Sequence[Row]) -> bool | None:
        """Whether the score is no better than guessing; None where nobody knows what guessing reaches."""
        sets = evaluation_sets(_seen(rows), self.metric, split="validation")
        told: bool | None = judged(self._counting(rows), sets)["at_chance"]
        return told

    def _counting(self, rows: Sequence[Row]) -> dict[str, float]:
        """Silo -> its result, of the silos whose mean the score is: of all, or of the worst alone."""
        seen = _seen(rows)
        found = results(seen, select_rounds(seen, self.selection, self.higher), self.about, "validation")
        if self.by == "mean" or not found:
            return found
        worst = (min if self.higher else max)(found, key=lambda silo: found[silo])
        return {worst: found[worst]}


def _seen(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["split"] == "validation" and not row["unseen"]]
