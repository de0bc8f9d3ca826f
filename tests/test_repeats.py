"""How many runs are said to stand behind the numbers of a comparison."""

from __future__ import annotations

import pytest

from fairsilo.report.repeats import Count, repeats
from fairsilo.report.tables import means


def runs(text: str) -> dict[str, object]:
    """Runs as `method domain seed`, of methods a and b, the first of which the other is compared with."""
    cells = [dict(zip(("method", "held_out", "seed"), one.split(), strict=True)) for one in text.split(", ")]
    return {"methods": ["a", "b"], "cells": cells}


@pytest.mark.parametrize(
    ("there", "said", "paired"),
    [
        ("a x 0, b x 0", "one run", False),
        ("a x 0, b x 1", "one run", False),
        ("a x 0, a x 1, b x 0, b x 1", "mean ± std over 2 seeds", True),
        ("a x 0, a x 1, b x 0", "mean ± std over up to 2 seeds", False),
        ("a x 0, a x 1, b x 1, b x 2", "mean ± std over 2 seeds", False),  # with one in common
        ("a x 0, a y 0, b x 0, b y 0", "mean over 2 held-out domains, one seed", False),
        ("a x 0, a y 0, b x 0", "mean over up to 2 held-out domains, one seed", False),
        ("a x 0, b y 0", "one run", False),
        ("a x 0, a x 1, a y 0, b x 0, b x 1, b y 0", "mean over 2 held-out domains, up to 2 seeds", False),
        (
            "a x 0, a x 1, a y 0, a y 1, b x 0, b x 1, b y 0",
            "mean over 2 held-out domains ± std over up to 2 seeds",
            False,
        ),
        (
            "a x 0, a x 1, a y 0, a y 1, b x 0, b x 1",
            "mean over up to 2 held-out domains ± std over 2 seeds",
            True,
        ),
        ("a x 0, a x 1", "mean ± std over 2 seeds", False),  # of the other method none counts
    ],
)
def test_a_title_says_what_means_are_over(there: str, said: str, paired: bool) -> None:
    assert means(runs(there)) == said
    assert repeats(runs(there)).paired == paired


def test_a_count_is_that_of_each_number_or_the_most() -> None:
    assert (Count.of([3, 3]).words("run"), Count.of([1, 3]).words("run")) == ("3 runs", "up to 3 runs")
    assert Count.of([]) == Count(0, True)
