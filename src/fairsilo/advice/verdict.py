"""What pilots allow to say: which method to take, what it wins, and what no pilot told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairsilo.analysis.metrics import HEADLINES, headline, mean
from fairsilo.analysis.paired import Cells, Compared, from_pairs, together
from fairsilo.errors import FairsiloError

GOALS = {"generalise": "generalisation", "personalise": "personalisation", "fair": "fairness"}
LOCAL = "local"  # the method by which silos train alone
Found = Mapping[str, Mapping[str, Compared]]


@dataclass(frozen=True)
class Verdict:
    """A recommendation and what it rests on.

    Attributes:
        recommended: The method; the plain one where no other is better for sure.
        wins: The answers, as the headlines are called, in which it is better for sure.
        loses: Those in which it is worse for sure, or which it has no number for where the plain one has.
        others: Answer -> the best of the methods that win it, where the recommended one does not.
        compared: Answer -> method -> the paired difference to the plain one, corrected for all of them.
        personal: Whether silos that train alone are better off at home, for sure, than with the plain method's shared
            model. Then what they get from the others must be models of their own.
        own: By how much silos' own models are better at home than the shared one, with the plain method.
        alone: By how much models of silos alone are, where `local` was tried.
    """

    recommended: str
    wins: tuple[str, ...]
    loses: tuple[str, ...]
    others: Mapping[str, str]
    compared: Found
    personal: bool
    own: Compared | None
    alone: Compared | None


def check_goal(goal: str) -> None:
    if goal not in ("all", *GOALS):
        raise FairsiloError(f"the goal is {goal!r}; it must be one of all, {', '.join(GOALS)}")


def verdict(methods: Sequence[str], cells: Cells, goal: str = "all", higher: bool = True) -> Verdict:
    """From the pilots' runs.

    A method is recommended that is better than the first one for sure in some answer that counts and worse for sure in
    none; of several the one that wins most answers, then the one ahead by most. Where there is none and silos alone are
    better off at home than with the shared model, it is the one with the best models of silos' own, of the first and
    of those that are about such models and worse for sure in nothing. Otherwise it is the first.

    Args:
        methods: Those that were tried; the first is the plain one.
        cells: Their runs, as a comparison has them.
        goal: `all`, or the one answer that counts.
        higher: Whether more of the metric is better.
    """
    found = together(methods, cells)
    counts = HEADLINES if goal == "all" else (GOALS[goal],)
    wins = {name: tuple(key for key in HEADLINES if _sure(found, key, name, higher) > 0) for name in methods[1:]}
    loses = {name: _losses(found, cells, methods[0], name, higher) for name in methods[1:]}

    def ahead(name: str) -> tuple[int, float]:
        won = [key for key in wins[name] if key in counts]
        return len(won), sum(abs(found[key][name].difference.mean) for key in won)

    fit = [name for name in methods[1:] if ahead(name)[0] and not any(key in counts for key in loses[name])]
    own, alone = at_home(cells, methods[0], methods[0]), at_home(cells, LOCAL, methods[0])
    personal = alone is not None and alone.sure and (alone.difference.mean > 0) == higher
    if not fit and personal and GOALS["personalise"] in counts:
        own_models = [one for one in methods[1:] if _own_models(cells, one)]
        fit = [methods[0], *(one for one in own_models if not any(key in counts for key in loses[one]))]
        best = max(fit, key=lambda name: _mean_at_home(cells, name, higher))
    else:
        best = max(fit, key=ahead, default=methods[0])
    rest = {
        key: [name for name in methods[1:] if key in wins[name]] for key in HEADLINES if key not in wins.get(best, ())
    }
    others = {
        key: max(names, key=lambda name: abs(found[key][name].difference.mean)) for key, names in rest.items() if names
    }
    return Verdict(best, wins.get(best, ()), loses.get(best, ()), others, found, personal, own, alone)


def _sure(found: Found, key: str, name: str, higher: bool) -> int:
    """1: better for sure, -1: worse for sure, 0: not told apart. Of a spread less is better."""
    one = found.get(key, {}).get(name)
    if one is None or not one.sure:
        return 0
    good = one.difference.mean < 0 if key == "fairness" or not higher else one.difference.mean > 0
    return 1 if good else -1


def _losses(found: Found, cells: Cells, first: str, name: str, higher: bool) -> tuple[str, ...]:
    return tuple(
        key
        for key in HEADLINES
        if _sure(found, key, name, higher) < 0 or (_has(cells, first, key) and not _has(cells, name, key))
    )


def _has(cells: Cells, name: str, key: str) -> bool:
    """Whether a method has a number there at all; without a shared model there is none outside."""
    return any(headline(cell["summary"])[key] is not None for cell in cells if cell["method"] == name)


def _own_models(cells: Cells, name: str) -> bool:
    """Whether a method's results are about silos' own models."""
    return any(cell["summary"]["about"] == "personal" for cell in cells if cell["method"] == name)


def _mean_at_home(cells: Cells, name: str, higher: bool) -> float:
    values = [headline(cell["summary"])["personalisation"] for cell in cells if cell["method"] == name]
    return (1 if higher else -1) * mean(value for value in values if value is not None)


def at_home(cells: Cells, method: str, first: str) -> Compared | None:
    """Silos' own models of a method minus the shared model of the first one, on silos' own data, run by run."""
    runs = {(cell["method"], cell["held_out"], cell["seed"]): cell["summary"] for cell in cells}
    pairs: dict[str, list[float]] = {}
    for (name, domain, seed), summary in runs.items():
        shared = runs.get((first, domain, seed), {}).get("fairness", {}).get("global", {}).get("mean")
        own = headline(summary)["personalisation"]
        if name == method and own is not None and shared is not None:
            pairs.setdefault(domain, []).append(own - shared)
    return from_pairs(pairs)
