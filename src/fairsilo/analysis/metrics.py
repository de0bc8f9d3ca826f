"""From evaluation rows to the three answers: generalisation, personalisation, fairness. Knows no run folder.

A row is a dictionary with round, silo, domain, unseen, model (global, personal, or adapted: the global one after its
adaptation to an unseen silo), split, loss, metric (the one that is reported), samples; and, by name, all metrics of
the task (`metrics`), their standard errors from the test size (`errors`) and counts per class (`per_class`). Where
silos sit out, a row of an own model may say in which earlier round it was `made`.
Metrics are as the task measures them; tables and pages show shares (0 to 1) in percent, others as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairsilo.analysis.chance import Judge, evaluation_sets

Row = Mapping[str, Any]


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else math.nan


def deviation(values: Iterable[float], ddof: int = 0) -> float:
    """Standard deviation with `ddof` degrees of freedom taken off; 0 where too few values are left."""
    return math.sqrt(variance(values, ddof))


def variance(values: Iterable[float], ddof: int = 0) -> float:
    found = list(values)
    if len(found) <= ddof:
        return 0.0
    centre = mean(found)
    return math.fsum((value - centre) ** 2 for value in found) / (len(found) - ddof)


def tail_means(values: Iterable[float], share: float = 0.1, higher: bool = True) -> tuple[float, float]:
    """Means of the worst and of the best tenth (at least one value each); `higher` says which end is the best."""
    found = sorted(values, reverse=not higher)
    count = max(1, math.floor(share * len(found)))
    return mean(found[:count]), mean(found[-count:])


def select_rounds(rows: Sequence[Row], selection: str, higher: bool = True) -> list[int]:
    """The evaluated rounds a result is read from.

    `last`: the last; `last5`: the last five, averaged; `source-validation`: the best mean validation metric of the
    global model over the training silos; `oracle`: the best on the unseen silos' test data (never the default). The
    best metric is the highest or, unless `higher`, the lowest.
    """
    evaluated = sorted({row["round"] for row in rows})
    if not evaluated or selection == "last":
        return evaluated[-1:]
    if selection == "last5":
        return evaluated[-5:]
    judged = _judged(rows, selection)
    scores = {number: mean(row["metric"] for row in judged if row["round"] == number) for number in evaluated}
    usable = {number: score for number, score in scores.items() if not math.isnan(score)}
    sign = 1 if higher else -1
    return [max(usable, key=lambda number: (sign * usable[number], -number))] if usable else evaluated[-1:]


_JUDGES = {"source-validation": (False, "validation"), "oracle": (True, "test")}


def _judged(rows: Sequence[Row], selection: str) -> list[Row]:
    """The rows of the global model that a selection rule looks at."""
    return [row for row in rows if row["model"] == "global" and (row["unseen"], row["split"]) == _JUDGES[selection]]


def results(
    rows: Sequence[Row], rounds: Sequence[int], model: str, split: str, value: str = "metric"
) -> dict[str, float]:
    """Silo -> mean over the rounds. A silo that sat out a round counts with its latest result before it."""
    found: dict[str, list[float]] = {}
    history: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["model"] == model and row["split"] == split:
            history.setdefault(row["silo"], []).append((row["round"], row[value]))
    for silo, past in history.items():
        for number in rounds:
            known = [item for item in past if item[0] == number or (model == "personal" and item[0] < number)]
            if known:
                found.setdefault(silo, []).append(max(known)[1])
    return {silo: mean(values) for silo, values in found.items()}


def errors_of(rows: Sequence[Row], rounds: Sequence[int], model: str, metric: str) -> dict[str, float]:
    """Silo -> standard error of its test result; of a mean over rounds their mean, as the samples are the same."""
    known = [
        {**row, "error": row["errors"][metric]} for row in rows if (row.get("errors") or {}).get(metric) is not None
    ]
    return results(known, rounds, model, "test", "error")


def gaps(rows: Sequence[Row], number: int) -> dict[str, float]:
    """Generalisation gap per silo: validation loss of the global model minus that of the silo's own model."""
    shared = results(rows, [number], "global", "validation", "loss")
    own = results(rows, [number], "personal", "validation", "loss")
    return {silo: shared[silo] - own[silo] for silo in own if silo in shared}


def fairness(
    values: Mapping[str, float], domain_of: Mapping[str, str], ddof: int, higher: bool = True
) -> dict[str, float]:
    """How even a metric is over silos and over domains; `higher` says whether more of it is better."""
    if not values:
        return {}
    domains = sorted({domain_of[silo] for silo in values})
    by_domain = [mean(v for silo, v in values.items() if domain_of[silo] == domain) for domain in domains]
    worst, best = tail_means(values.values(), higher=higher)
    ends = sorted(values.values(), reverse=not higher)
    return {
        "mean": mean(values.values()),
        "mean_domains": mean(by_domain),
        "std_silos": deviation(values.values(), ddof),
        "std_domains": deviation(by_domain, ddof),
        "variance_silos": variance(values.values(), ddof),
        "worst": ends[0],
        "best": ends[-1],
        "worst_tenth": worst,
        "best_tenth": best,
    }


def summarise(
    rows: Sequence[Row],
    about: str = "global",
    selection: str = "last",
    ddof: int = 0,
    *,
    metric: str = "accuracy",
    higher: bool | None = None,
    share: bool | None = None,
    counts: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """The three answers of a run, with the rounds they were read from.

    Args:
        rows: What was measured, see above.
        about: Whose results a method is about: `global` or `personal`.
        selection: The rule that selects rounds, see `select_rounds`.
        ddof: Degrees of freedom taken off in standard deviations over silos and domains.
        higher: Whether more of the metric is better; None where that is not known: it is taken to be.
        metric: The name of the metric in the rows. Chance levels are known for `chance.SHARES`; intervals too, and for
            all metrics whose standard errors are in the rows.
        share: Whether the metric lies between 0 and 1, and is shown in percent; None where that is not known.
        counts: Silo -> samples of each class in its test data, where the rows do not say it.
    """
    if selection in _JUDGES and not _judged(rows, selection):
        selection = "last"  # there is nothing to select by, and the summary must not claim otherwise
    more = higher is not False
    rounds = select_rounds(rows, selection, more)
    domain_of = {row["silo"]: row["domain"] for row in rows}
    unseen = {row["silo"] for row in rows if row["unseen"]}
    shared = results(rows, rounds, "global", "test")
    personal = results(rows, rounds, "personal", "test")
    at_home = {silo: value for silo, value in shared.items() if silo not in unseen}
    plain = {silo: value for silo, value in shared.items() if silo in unseen}
    adapted = results(rows, rounds, "adapted", "test")
    outside = plain | adapted  # where a method adapts at test time, its answer is the adapted model
    number = rounds[-1] if rounds else 0
    gap = gaps(rows, number)
    recent = sorted({row["round"] for row in rows})[-5:]
    by_round = [results(rows, [n], "global", "test") | results(rows, [n], "adapted", "test") for n in recent]
    outside_recent = [mean(found[silo] for silo in outside if silo in found) for found in by_round]
    outside_recent = [value for value in outside_recent if not math.isnan(value)]
    samples = {row["silo"]: row["samples"] for row in rows if row["split"] == "test"}
    validated = {model: results(rows, rounds, model, "validation") for model in ("global", "personal")}
    judge = Judge(evaluation_sets(rows, metric, counts), domain_of, share is not False)
    errors = {model: errors_of(rows, rounds, model, metric) for model in ("global", "adapted", "personal")}

    def even(values: dict[str, float], of: dict[str, float]) -> dict[str, Any]:
        spread = fairness(values, domain_of, ddof, more)
        return spread | judge(values, of) | judge.apart(values, of, ddof) if values else {}

    unadapted = {silo: error for silo, error in errors["global"].items() if silo not in adapted}
    return {
        "metric": metric,
        "share": share,
        "higher_is_better": higher,
        "selection": selection,
        "rounds": rounds,
        "ddof": ddof,
        "about": about,
        "generalisation": {
            "mean": mean(outside.values()) if outside else None,
            "per_domain": outside,
            "unadapted": mean(plain.values()) if adapted and plain else None,
            "recent_std": deviation(outside_recent),
            "recent_rounds": len(outside_recent),
            **judge(outside, unadapted | errors["adapted"]),
        },
        "personalisation": {
            "mean": mean(personal.values()) if personal else None,
            "std_silos": deviation(personal.values(), ddof),
            **judge(personal, errors["personal"]),
        },
        "fairness": {
            "global": even(at_home, errors["global"]),
            "personal": even(personal, errors["personal"]),
            "gap_variance": variance(gap.values()) if gap else None,
        },
        "silos": [
            {
                "silo": silo,
                "domain": domain_of[silo],
                "unseen": silo in unseen,
                "samples": samples.get(silo),
                "global": shared.get(silo),
                "adapted": adapted.get(silo),
                "personal": personal.get(silo),
                "gap": gap.get(silo),
                "validation": {kind: found[silo] for kind, found in validated.items() if silo in found},
                **_judged_silo(silo, judge, {"global": shared, "adapted": adapted, "personal": personal}, errors),
            }
            for silo in sorted(domain_of, key=lambda name: (name in unseen, name))
        ],
    }


def _judged_silo(
    silo: str,
    judge: Judge,
    found: Mapping[str, Mapping[str, float]],
    errors: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """What guessing reaches at a silo, and by kind of model the interval of a result and whether it is at chance."""
    here = judge.sets.get(silo)
    by_model = {kind: judge({silo: values[silo]}, errors[kind]) for kind, values in found.items() if silo in values}
    return {
        "chance": {"majority": here.majority, "uniform": here.uniform} if here and here.level is not None else None,
        "intervals": {kind: one["interval"] for kind, one in by_model.items()},
        "at_chance": [kind for kind, one in by_model.items() if one["at_chance"]],
    }


CLUSTERED = "clustering_accuracy"  # besides, of methods that cluster silos: the share in the cluster of their domain
HEADLINES = ("generalisation", "personalisation", "fairness")


AT_HOME = "at_home"  # the mean that belongs to the spread: a spread is never shown without it
TAILS = ("worst_tenth", "best_tenth")  # over silos, as q-FFL and FFT-GP report them, with the mean and the variance
VARIANCE = "variance_silos"


def of_own_models(summary: Mapping[str, Any]) -> bool:
    """Whether fairness is that of the silos' own models, and not of the global one."""
    return bool(summary["about"] == "personal" and summary["fairness"]["personal"])


def judged_fairness(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """How even the model is that the results are about, over the silos that trained."""
    found: Mapping[str, Any] = summary["fairness"]["personal" if of_own_models(summary) else "global"]
    return found


def with_own_models(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """The methods whose fairness is that of the silos' own models, in the order of their runs."""
    return list(dict.fromkeys(cell["method"] for cell in cells if of_own_models(cell["summary"])))


def headline(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """The three numbers of a summary, and what stands beside the third: mean, worst and best tenth, variance.

    Fairness is the standard deviation over silos of the model that the results are about.
    """
    even = judged_fairness(summary)
    return {
        "generalisation": summary["generalisation"]["mean"],
        "personalisation": summary["personalisation"]["mean"],
        "fairness": even.get("std_silos"),
        AT_HOME: even.get("mean"),
        **{key: even.get(key) for key in (*TAILS, VARIANCE)},
    }


def at_chance(summary: Mapping[str, Any]) -> dict[str, bool]:
    """Which of the headlines is no better than guessing; a spread around such a mean says nothing about fairness."""
    found = {key: summary[key] for key in ("generalisation", "personalisation")} | {
        "fairness": judged_fairness(summary)
    }
    return {key: bool(one.get("at_chance")) for key, one in found.items()}


def by_held_out(cells: Sequence[Mapping[str, Any]], method: str, key: str) -> dict[str, float | None]:
    """A row of a paper's table: held-out domain -> mean over seeds of a method's headline, and the `mean` of these."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        if cell["method"] == method:
            value = headline(cell["summary"])[key]
            found.setdefault(cell["held_out"], []).extend([] if value is None else [value])
    means = {domain: mean(values) if values else None for domain, values in found.items()}
    known = [value for value in means.values() if value is not None]
    return means | {"mean": mean(known) if known else None}


def spread_by_held_out(cells: Sequence[Mapping[str, Any]], method: str, key: str) -> dict[str, float]:
    """Held-out domain -> sample standard deviation over seeds of a method's headline; those with several seeds."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        if cell["method"] == method and (value := headline(cell["summary"])[key]) is not None:
            found.setdefault(cell["held_out"], []).append(value)
    return {domain: deviation(values, 1) for domain, values in found.items() if len(values) > 1}


def guessed_by_held_out(cells: Sequence[Mapping[str, Any]], method: str, key: str) -> set[str]:
    """The held-out domains for which some run of a method is at chance."""
    return {cell["held_out"] for cell in cells if cell["method"] == method and at_chance(cell["summary"])[key]}
