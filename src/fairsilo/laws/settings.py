"""The law of settings: each one, set to another value, changes a number or is refused."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.laws import tiny
from fairsilo.laws.trial import LawError, NotApplicableError, Trial

# a setting shows in one of these: a short run; a longer one, past warm-ups, of silos that disagree and sit out in turn
EASY = dataclasses.replace(tiny.TRAINING, batch_size=6, lr=0.05)
HARD = dataclasses.replace(EASY, rounds=8, participation="2")
SITUATIONS = ((EASY, tiny.federation), (HARD, tiny.at_odds))


def settings_count(trial: Trial) -> None:
    trial.needs_a_plain_run()
    names = dict.fromkeys(item.name for part in trial.method.parts for item in dataclasses.fields(part))
    if not names:
        raise NotApplicableError("it has no settings")
    plain: dict[int, Any] = {}
    idle = {}
    for name in names:
        if any(_fields(part)[name].metadata.get("rare") for part in trial.method.parts if name in _fields(part)):
            continue
        tried = other_values(trial.method, name)
        if tried and not any(_shows(trial, name, value, plain) for value in tried):
            idle[name] = tried
    if idle:
        listed = "; ".join(f"{name}={', '.join(map(str, values))}" for name, values in idle.items())
        raise LawError(f"no number of a run differs, and none is refused, with {listed}")


def _shows(trial: Trial, name: str, value: Any, plain: dict[int, Any]) -> bool:
    """Whether a value changes something in one of the situations, or is refused."""
    for number, (training, people) in enumerate(SITUATIONS):
        if trial.method.pools and training.participation != "all":
            continue
        try:
            if number not in plain:
                plain[number] = trial.numbers(training, people=people())
            if trial.numbers(training, with_setting(trial.method, name, value), people=people()) != plain[number]:
                return True
        except StoppedError:
            return True  # a value at which training diverges changes something
        except FairsiloError:
            return True
    return False


def with_setting(method: Method, name: str, value: Any) -> Method:
    """The method with another value of a setting, in every part that has it."""
    parts = [dataclasses.replace(part, **{name: value}) if name in _fields(part) else part for part in method.parts]
    return Method(tuple(parts), method.name)


def _fields(part: Part) -> dict[str, dataclasses.Field[Any]]:
    return {item.name: item for item in dataclasses.fields(part)}


def other_values(method: Method, name: str) -> list[Any]:
    """Values of a setting that lie in its range, other than the one it has; none for a free text."""
    part = next(part for part in method.parts if name in _fields(part))
    item, now = _fields(part)[name], getattr(part, name)
    kinds = _kinds(get_type_hints(type(part))[name])
    choices = item.metadata.get("choices")
    found: list[Any] = [] if now is None or type(None) not in kinds else [None]
    if choices:
        found += list(choices)
    if bool in kinds:
        found += [True, False]
    if int in kinds:
        found += [now + 1, 2 * now, now - 1, 10 * now] if isinstance(now, int) else [1, 2, 4]
    if float in kinds:
        found += [now / 2, 2 * now, 10 * now, now + 0.1] if isinstance(now, float) else []
        found += [0.1, 0.5, 1.0, 0.0, 1e3]
    values = [value for value in found if value != now and _in_range(value, item.metadata)]
    return list(dict.fromkeys(values))


def _kinds(hint: Any) -> tuple[Any, ...]:
    return tuple(getattr(hint, "__args__", None) or (hint,)) if not isinstance(hint, type) else (hint,)


def _in_range(value: Any, metadata: Any) -> bool:
    if value is None or isinstance(value, bool | str):
        return True
    low, high = metadata.get("low"), metadata.get("high")
    if low is not None and (value <= low if metadata.get("open_low") else value < low):
        return False
    return high is None or bool(value <= high)
