"""How papers divide their data, as settings; and settings that go by domain or group, such as `mnist=3, usps=7`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fairsilo.errors import FairsiloError

# What papers do with their data, as settings.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "fedheal-digits": {"held_out": "-", "silos_per_domain": 5, "share": "0.01", "validation": 0.0},
    "fedheal-office": {
        "held_out": "-",
        "silos_per_domain": 5,
        "share": "0.1",
        "validation": 0.0,
        "test": 0.2,
        "split": "order",
    },
    "fedgcr": {"held_out": "-", "dif": 10.0},
    "domainbed-80-20": {"test": 0.2},
    "domainbed-90-10": {"test": 0.1},
    "leaf": {"held_out": "-", "domains": ("31",), "test": 0.1, "validation": 1 / 9},
    "grace-prostate": {"test": 0.2, "validation": 0.2},
}


def shares_of(given: Any) -> dict[str, float]:
    """`data.share` by domain: a share up to 1, or a number of samples."""
    rule = "it must be a share of at most 1 or a number of samples, or name each domain once with one: mnist=0.01"
    return by_name(
        given, f"data.share is {given!r}; {rule}", lambda one: 0 < one <= 1 or (one < math.inf and one == int(one) > 1)
    )


def counts_of(given: Any) -> dict[str, float]:
    """`data.silos_per_domain` by domain."""
    rule = "it must be a number of silos, or name each domain once with one: mnist=3, usps=7"
    return by_name(
        given, f"data.silos_per_domain is {given!r}; {rule}", lambda one: one < math.inf and one == int(one) > 0
    )


def names_of(given: Any) -> tuple[str, ...]:
    """Each name once, from a list or a text such as `sex, age`."""
    listed = given.split(",") if isinstance(given, str) else () if given is None else given
    if not isinstance(listed, Iterable):
        raise FairsiloError(f"evaluate.groups is {given!r}; it must be names of columns, such as sex, age")
    return tuple(dict.fromkeys(filter(None, (str(name).strip() for name in listed))))


def by_name(given: Any, sentence: str, allowed: Callable[[float], bool], lone: bool = True) -> dict[str, float]:
    """Name -> number, from a mapping or a text such as `a=1, b=2`; a number alone is under the empty name."""
    pairs: list[tuple[str, Any]] = []
    if isinstance(given, Mapping):
        pairs = [(str(name).strip() or "?", number) for name, number in given.items()]
    elif isinstance(given, str):
        for piece in filter(None, map(str.strip, given.split(","))):
            name, equals, number = piece.rpartition("=")
            pairs.append((name.strip() or ("?" if equals else ""), number.strip()))
    elif given is not None:
        pairs = [("", given)]
    found: dict[str, float] = {}
    for name, number in pairs:
        value = math.nan
        with contextlib.suppress(TypeError, ValueError):
            value = float(number)
        if name == "?" or (not name and (not lone or len(pairs) > 1)) or name in found or not allowed(value):
            raise FairsiloError(sentence)
        found[name] = value
    return found


def as_text(numbers: Mapping[str, float]) -> str:
    """What `by_name` reads again."""
    return ", ".join(f"{name}={number:.12g}" if name else f"{number:.12g}" for name, number in numbers.items())


def lr_factors(groups: Mapping[str, Any] | str | None) -> dict[str, float]:
    """Name -> factor, from a mapping or from a text such as `prompts=10, head=0.1`."""
    rule = "it must name each group once with a factor of at least 0, such as prompts=10, head=0.1"
    return by_name(groups, f"train.lr_groups is {groups!r}; {rule}", lambda value: 0 <= value < math.inf, lone=False)


def class_weights(given: Mapping[str, Any] | str | None) -> dict[str, float]:
    """Class -> weight, from a mapping or from a text such as `melanoma=4, naevus=0.5`."""
    rule = "it must be inverse, or name each class once with a weight of at least 0, such as melanoma=4, naevus=0.5"
    return by_name(given, f"task.class_weights is {given!r}; {rule}", lambda one: 0 <= one < math.inf, lone=False)


def participation_rule(text: str) -> tuple[str, float]:
    """('all', 1), ('fraction', 0.5) or ('count', 10)."""
    if text == "all":
        return "all", 1.0
    value = -1.0
    with contextlib.suppress(ValueError):
        value = float(text)
    whole = text.isdigit()
    if not whole and 0 < value <= 1:
        return "fraction", value
    if whole and value >= 1:
        return "count", value
    raise FairsiloError(f"train.participation is {text!r}; it must be 'all', a share such as 0.5 or a count such as 10")
