"""How sure a result is that was measured on so many samples, whether guessing would have reached it, and how far apart
silos would seem to be that are equally good.

All follow from the test sets: their size, class counts, and how much their samples differ. They say nothing about what
another seed would give.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

CONFIDENCE = 0.95
GUESSED = "≈ chance"  # stands behind a result that is no better than guessing
SHARES = ("accuracy", "balanced-accuracy")  # shares of samples: their intervals are Wilson's, and guessing is known
_Z, _Z_ONE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), NormalDist().inv_cdf(CONFIDENCE)


@dataclass(frozen=True)
class EvaluationSet:
    """A silo's test data as far as a result depends on them.

    Attributes:
        domain: Where the data come from. Silos of one domain are usually tested on the same samples; where they are
            not, the silo's own name stands here.
        size: Samples; for balanced accuracy as many as would give its variance if they were drawn evenly.
        majority: What a model reaches that always names the most frequent class; None where counts are unknown.
        uniform: What a model reaches that guesses every class equally often; None where counts are unknown.
    """

    domain: str
    size: float
    majority: float | None = None
    uniform: float | None = None

    @property
    def level(self) -> float | None:
        """The better of the two guesses."""
        return None if self.majority is None or self.uniform is None else max(self.majority, self.uniform)


def evaluation_set(domain: str, samples: int, counts: Sequence[float] | None, metric: str) -> EvaluationSet:
    """From the samples of each class (as many entries as classes), where they are known."""
    if not counts or sum(counts) <= 0:
        return EvaluationSet(domain, samples)
    present = [count for count in counts if count > 0]
    if metric == "balanced-accuracy":
        # Var = sum over present classes of p (1 - p) / (K^2 n_k), as of a share of K^2 / sum(1 / n_k) samples
        size = len(present) ** 2 / math.fsum(1 / count for count in present)
        return EvaluationSet(domain, size, 1 / len(present), 1 / len(counts))
    return EvaluationSet(domain, sum(counts), max(counts) / sum(counts), 1 / len(counts))


def evaluation_sets(
    rows: Iterable[Mapping[str, Any]],
    metric: str,
    counts: Mapping[str, Sequence[float]] | None = None,
    split: str = "test",
) -> dict[str, EvaluationSet]:
    """Silo -> its test data, from the rows that were measured on them; nothing for metrics that are no shares.

    Class counts come from the rows (`per_class.samples`), else from `counts` by silo. Of another `split` every silo has
    samples of its own, also where silos are of one domain.
    """
    if metric not in SHARES:
        return {}
    found = {}
    for row in rows:
        if row["split"] == split:
            known = (row.get("per_class") or {}).get("samples") or (counts or {}).get(row["silo"])
            source = row["domain"] if split == "test" else row["silo"]
            found[row["silo"]] = evaluation_set(source, row["samples"], known, metric)
    return found


def wilson(share: float, samples: float) -> tuple[float, float]:
    """Wilson's score interval of a share of so many samples."""
    scale = 1 + _Z**2 / samples
    centre = (share + _Z**2 / (2 * samples)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / samples + _Z**2 / (4 * samples**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def pooled_size(sets: Sequence[EvaluationSet]) -> float:
    """Of how many samples the mean over silos is a share, with its variance.

    The mean has the variance p (1 - p) sum_d w_d^2 / n_d, where w_d is the share of the silos that are of domain d and
    n_d the size of its test set. Silos of one domain count as tested on the same samples, the largest set among them.
    """
    sizes: dict[str, list[float]] = {}
    for one in sets:
        sizes.setdefault(one.domain, []).append(one.size)
    return 1 / math.fsum((len(found) / len(sets)) ** 2 / max(found) for found in sizes.values())


def pooled_error(errors: Mapping[str, float], domain_of: Mapping[str, str]) -> float:
    """The standard error of the mean over silos, from their own: sqrt(sum_d (w_d s_d)^2).

    With one silo in each domain that is the root of the sum of squares over their number. As in `pooled_size`, silos of
    one domain count as tested on the same samples: s_d is the mean of their errors.
    """
    found: dict[str, list[float]] = {}
    for silo, error in errors.items():
        found.setdefault(domain_of[silo], []).append(error)
    return math.sqrt(math.fsum(math.fsum(some) ** 2 for some in found.values())) / len(errors)


def apart_if_equal(
    values: Mapping[str, float], domain_of: Mapping[str, str], errors: Mapping[str, float], ddof: int
) -> dict[str, Any]:
    """How far apart equally good silos would seem to be (`std_if_equal`), and whether these are further `apart`.

    Where K silos, m_d of them of domain d, are equally good, and s_d is the error that domain d's test set makes, the
    sum of squares around their mean is a quadratic form Q in the errors, with A_dd = m_d - m_d^2 / K and
    A_de = -m_d m_e / K. Its mean is sum_d A_dd s_d^2, and its distribution about that of chi^2 with
    mean(Q)^2 / sum_de (A_de s_d s_e)^2 degrees of freedom (Satterthwaite). Silos are further apart where their sum of
    squares is above the 95 % point.

    Args:
        values: Silo -> result.
        domain_of: Silo -> domain; silos of one domain count as tested on the same samples.
        errors: Domain -> standard error of a result there, if all silos were equally good.
        ddof: Degrees of freedom taken off in the variance.
    """
    members, count = Counter(domain_of[silo] for silo in values), len(values)
    own = {d: (m - m**2 / count) * errors[d] ** 2 for d, m in members.items()}
    crossed = {d: m**2 * errors[d] ** 2 / count for d, m in members.items()}
    expected = math.fsum(own.values())
    if count <= ddof or expected <= 0 or not math.isfinite(expected):
        return {"std_if_equal": None, "apart": None}
    centre = math.fsum(values.values()) / count
    seen = math.fsum((value - centre) ** 2 for value in values.values())
    between = math.fsum(crossed.values()) ** 2 - math.fsum(one**2 for one in crossed.values())  # of two domains each
    degrees = expected**2 / (math.fsum(one**2 for one in own.values()) + between)
    bend = 2 / (9 * degrees)  # Wilson and Hilferty: the cube root of chi^2 / degrees is about normal
    limit = expected * (1 - bend + _Z_ONE * math.sqrt(bend)) ** 3
    return {
        "std_if_equal": math.sqrt(expected / (count - ddof)),
        "apart": seen > limit if math.isfinite(seen) else None,
    }


def normal(value: float, error: float, share: bool) -> tuple[float, float]:
    """The normal interval around a value, within 0 and 1 where it is a share."""
    low, high = value - _Z * error, value + _Z * error
    return (max(0.0, low), min(1.0, high)) if share else (low, high)


@dataclass(frozen=True)
class Judge:
    """What is known about the test data behind the results of a run.

    Attributes:
        sets: Silo -> its test data, of metrics that are shares of samples (`evaluation_sets`).
        domain_of: Silo -> domain.
        share: Whether the metric lies between 0 and 1.
    """

    sets: Mapping[str, EvaluationSet]
    domain_of: Mapping[str, str] = field(default_factory=dict)
    share: bool = True

    def __call__(self, values: Mapping[str, float], errors: Mapping[str, float]) -> dict[str, Any]:
        """As `judged`; of metrics that are no shares of samples, the interval comes from the errors of the silos.

        There is none where the error of some silo is unknown, or where all samples agree: a few samples that are all
        right are no certainty.
        """
        found = judged(values, self.sets)
        if found["interval"] is None and values and not self.sets and values.keys() <= errors.keys():
            error = pooled_error({silo: errors[silo] for silo in values}, self.domain_of)
            centre = math.fsum(values.values()) / len(values)
            if error > 0 and math.isfinite(centre):
                found["interval"] = list(normal(centre, error, self.share))
        return found

    def apart(self, values: Mapping[str, float], errors: Mapping[str, float], ddof: int) -> dict[str, Any]:
        """`apart_if_equal` of silos, from the sizes of their test sets, or else from the errors of their results."""
        centre, found = math.fsum(values.values()) / len(values), dict[str, list[float]]()
        if self.sets and 0 <= centre <= 1 and all(silo in self.sets and self.sets[silo].size > 0 for silo in values):
            source = {silo: self.sets[silo].domain for silo in values}
            for silo, domain in source.items():
                found.setdefault(domain, []).append(self.sets[silo].size)
            known = {domain: math.sqrt(centre * (1 - centre) / max(sizes)) for domain, sizes in found.items()}
        elif not self.sets and values.keys() <= errors.keys():
            source = {silo: self.domain_of[silo] for silo in values}
            for silo, domain in source.items():
                found.setdefault(domain, []).append(errors[silo])
            known = {domain: math.fsum(some) / len(some) for domain, some in found.items()}
        else:
            return {"std_if_equal": None, "apart": None}
        return apart_if_equal(values, source, known, ddof)


def judged(values: Mapping[str, float], sets: Mapping[str, EvaluationSet]) -> dict[str, Any]:
    """Interval and chance level of the mean over silos, and whether it is at chance.

    A result is at chance where the lower end of its interval is not above the chance level, which is the mean over
    the silos of the better of two guesses: always the most frequent class, or every class equally often.
    """
    known = {silo: sets[silo] for silo in values if silo in sets and sets[silo].size > 0}
    centre = math.fsum(values.values()) / len(values) if values else math.nan
    if not values or len(known) < len(values) or not 0 <= centre <= 1:
        return {"interval": None, "chance": None, "at_chance": None}
    low, high = wilson(centre, pooled_size(list(known.values())))
    levels = [one.level for one in known.values()]
    level = math.fsum(value or 0.0 for value in levels) / len(levels) if None not in levels else None
    return {"interval": [low, high], "chance": level, "at_chance": None if level is None else low <= level}
