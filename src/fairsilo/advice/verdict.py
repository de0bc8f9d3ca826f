"""What pilots allow to say: which method to take, what it wins, and what no pilot told apart.

Pilots of one seed are no independent looks, whatever domain is held out: differences are tested over seeds
(`analysis/paired.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairsilo.analysis.metrics import AT_HOME, HEADLINES, at_chance, headline
from fairsilo.analysis.paired import Cells, Compared, compared, corrected_together, from_pairs, pairs_of
from fairsilo.errors import FairsiloError

GOALS = {"generalise": "generalisation", "personalise": "personalisation", "fair": "fairness"}
LOCAL = "local"  # the method by which silos train alone
Found = Mapping[str, Mapping[str, Compared]]


@dataclass(frozen=True)
class Verdict:
    """A recommendation and what it rests on.

    Attributes:
        learned: The methods that are better than guessing in some answer that counts; without any nothing can be said.
        recommended: The method; the plain one where no other is better for sure. None where the plain one did not learn
            and no method that did is better for sure.
        guessed: Answer -> the methods that are no better than guessing there, in most of their runs.
        wins: The answers, as the headlines are called, in which it is better for sure.
        loses: Those in which it is worse for sure, or has no number, or is no better than guessing, where the plain
            one is not so.
        others: Answer -> the best of the methods that win it, where the recommended one does not.
        worse: Answer -> the methods that are worse for sure.
        compared: Answer -> method -> the paired difference to the plain one, corrected for all that count.
        counts: The answers that count.
        personal: Whether silos that train alone are better off at home, for sure, than with the plain method's shared
            model, and own models of the recommended method are too. Then models of their own are the answer.
        own: By how much the plain method's own models are better at home than its shared one; not corrected.
        alone: By how much models of silos alone are, where `local` was tried; corrected with the others.
    """

    learned: tuple[str, ...]
    recommended: str | None
    guessed: Mapping[str, tuple[str, ...]]
    wins: tuple[str, ...]
    loses: tuple[str, ...]
    others: Mapping[str, str]
    worse: Mapping[str, tuple[str, ...]]
    compared: Found
    counts: tuple[str, ...]
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

    An answer that is no better than guessing wins nothing, and a method that has no other is not recommended.

    Args:
        methods: Those that were tried; the first is the plain one.
        cells: Their runs, as a comparison has them.
        goal: `all`, or the one answer that counts.
        higher: Whether more of the metric is better.
    """
    first, others_ = methods[0], methods[1:]
    counts = tuple(HEADLINES) if goal == "all" else (GOALS[goal],)
    found, alone = _compared(methods, cells, counts)
    guessed = {key: tuple(name for name in methods if _guesses(cells, name, key)) for key in HEADLINES}
    learned = tuple(
        name for name in methods if any(_has(cells, name, key) and name not in guessed[key] for key in counts)
    )

    def sign(name: str, key: str) -> int:
        told = _sign(found.get(key, {}).get(name), key, higher)
        return told if name not in guessed[key] or (told < 0 and first not in guessed[key]) else 0

    def losses(name: str) -> tuple[str, ...]:
        worse = _losses(cells, first, name, signs[name], higher)
        guesses = [key for key in HEADLINES if name in guessed[key] and first not in guessed[key]]
        return tuple(key for key in HEADLINES if key in (*worse, *guesses))

    signs = {name: {key: sign(name, key) for key in HEADLINES} for name in others_}
    wins = {name: tuple(key for key in HEADLINES if signs[name][key] > 0) for name in others_}
    loses = {name: losses(name) for name in others_}

    def ahead(name: str) -> tuple[int, float]:
        won = [key for key in wins[name] if key in counts]
        return len(won), sum(abs(found[key][name].difference.mean) for key in won)

    fit = [name for name in others_ if ahead(name)[0] and not any(key in counts for key in loses[name])]
    usual = first if first in learned else None
    best, personal = max(fit, key=ahead, default=usual), False
    guess_at_home = guessed["personalisation"]
    better_alone = _sign(alone, AT_HOME, higher) > 0 and LOCAL not in guess_at_home
    if not fit and better_alone and GOALS["personalise"] in counts:
        about_own = [one for one in others_ if _about_own(cells, one) and not any(key in counts for key in loses[one])]
        learned_own = [name for name in (first, *about_own) if name not in guess_at_home]
        own = corrected_together(
            {name: one for name in learned_own if (one := at_home(cells, name, first)) is not None}
        )
        chosen = max(own, key=lambda name: (1 if higher else -1) * own[name].difference.mean, default=first)
        personal = _sign(own.get(chosen), AT_HOME, higher) > 0
        best = chosen if personal else usual
    won, lost = (one.get(best or "", ()) for one in (wins, loses))
    rest = {key: [name for name in others_ if key in wins[name]] for key in HEADLINES if key not in won}
    return Verdict(
        learned,
        best,
        guessed,
        won,
        lost,
        {
            key: max(names, key=lambda name: abs(found[key][name].difference.mean))
            for key, names in rest.items()
            if names
        },
        {key: tuple(name for name in others_ if signs[name][key] < 0) for key in HEADLINES},
        found,
        counts,
        personal,
        at_home(cells, first, first),
        alone,
    )


def _compared(methods: Sequence[str], cells: Cells, counts: Sequence[str]) -> tuple[Found, Compared | None]:
    """All comparisons with the first method, and silos alone with its shared model.

    What counts is corrected together (Holm); so is what does not count.
    """
    looked: dict[tuple[str, str], Compared] = {}
    for key in HEADLINES:
        for name in methods[1:]:
            one = compared(cells, name, methods[0], key)
            if one is not None:
                looked[key, name] = one
    alone = at_home(cells, LOCAL, methods[0])
    if alone is not None:
        looked[AT_HOME, LOCAL] = alone
    told: dict[str, dict[str, Compared]] = {}
    for counting in (True, False):
        family = [place for place in looked if (place[0] in (*counts, AT_HOME)) == counting]
        for (key, name), one in corrected_together({place: looked[place] for place in family}).items():
            told.setdefault(key, {})[name] = one
    return {key: told[key] for key in HEADLINES if key in told}, told.get(AT_HOME, {}).get(LOCAL)


def _sign(one: Compared | None, key: str, higher: bool) -> int:
    """1: better for sure, -1: worse for sure, 0: not told apart. Of a spread less is better."""
    if one is None or not one.sure:
        return 0
    good = one.difference.mean < 0 if key == "fairness" or not higher else one.difference.mean > 0
    return 1 if good else -1


def _losses(cells: Cells, first: str, name: str, signs: Mapping[str, int], higher: bool) -> tuple[str, ...]:
    """Where a method is worse, or has no number; evenness that is paid for with a worse mean is no gain in fairness."""
    paid = _sign(compared(cells, name, first, AT_HOME), AT_HOME, higher) < 0
    return tuple(
        key
        for key in HEADLINES
        if signs[key] < 0 or (key == "fairness" and paid) or (_has(cells, first, key) and not _has(cells, name, key))
    )


def _has(cells: Cells, name: str, key: str) -> bool:
    """Whether a method has a number there at all; without a shared model there is none outside."""
    return any(headline(cell["summary"])[key] is not None for cell in cells if cell["method"] == name)


def _guesses(cells: Cells, name: str, key: str) -> bool:
    """Whether an answer is no better than guessing in most of the runs that have a number there."""
    marks = [
        at_chance(cell["summary"])[key]
        for cell in cells
        if cell["method"] == name and headline(cell["summary"])[key] is not None
    ]
    return 2 * sum(marks) > len(marks)


def _about_own(cells: Cells, name: str) -> bool:
    """Whether a method's results are about silos' own models."""
    return any(cell["summary"]["about"] == "personal" for cell in cells if cell["method"] == name)


def at_home(cells: Cells, method: str, first: str) -> Compared | None:
    """Silos' own models of a method minus the shared model of the first one, on silos' own data."""
    pairs = pairs_of(
        cells,
        method,
        first,
        lambda summary: headline(summary)["personalisation"],
        lambda summary: summary["fairness"]["global"].get("mean"),
    )
    return from_pairs(pairs)
