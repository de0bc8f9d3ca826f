"""Fields of dataclasses that carry their own help and range. Imports no torch.

Settings of runs, parts, networks and augmentations are all made of them, so that the command line, the documentation
and the checks are derived from one place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_type_hints

from fairsilo.errors import FairsiloError


@dataclass(frozen=True)
class Span:
    """The values that `fairsilo tune` searches: between two bounds, or one of several.

    Attributes:
        low: The least value.
        high: The largest value.
        log: Whether all decades between them are equally likely, instead of all values.
        whole: Whether only whole numbers count.
        among: The values, where they are listed.
        relative: Whether the bounds are multiples of the value that a setting has.
    """

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    among: tuple[Any, ...] = ()
    relative: bool = False

    def at(self, value: Any) -> Span | None:
        """With bounds of its own; None where they are multiples of nothing: what is off stays off."""
        if not self.relative:
            return self
        return (
            dataclasses.replace(self, low=value * self.low, high=value * self.high, relative=False) if value else None
        )

    def draw(self, share: float) -> Any:
        """The value that lies this share (0 to 1) of the way through."""
        if self.among:
            return self.among[min(int(share * len(self.among)), len(self.among) - 1)]
        if self.whole and not self.log:
            return int(self.low) + min(int(share * (self.high - self.low + 1)), int(self.high - self.low))
        value = self.low * (self.high / self.low) ** share if self.log else self.low + share * (self.high - self.low)
        return round(value) if self.whole else min(max(value, self.low), self.high)

    def __contains__(self, value: Any) -> bool:
        return value in self.among if self.among else self.low <= value <= self.high

    def __str__(self) -> str:
        if self.among:
            return ", ".join(map(str, self.among))
        if self.relative:
            return f"{self.low:g} to {self.high:g} times the default"
        return f"{self.low:g} to {self.high:g}" + (" by decades" if self.log else "")


def between(low: float, high: float) -> Span:
    """All values between two bounds, equally likely."""
    return Span(low, high)


def decades(low: float, high: float) -> Span:
    """All values between two bounds, each decade equally likely."""
    return Span(low, high, log=True)


def around(factor: float) -> Span:
    """By decades, from the default over this factor to the default times this factor."""
    return Span(1 / factor, factor, log=True, relative=True)


def among(*values: Any) -> Span:
    """One of these."""
    return Span(among=values)


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[str] | None = None,
    open_low: bool = False,
    rare: str = "",
    search: Span | None = None,
) -> Any:
    """A dataclass field with its help and range.

    Args:
        default: Its value where none is given.
        help: What it does, in a phrase.
        low: Its least value.
        high: Its largest value.
        choices: The only values it may have.
        open_low: Whether the least value itself is excluded.
        rare: When it acts, where that is seldom: the laws' short runs then need not show it.
        search: Where `fairsilo tune` looks for a better value. Only for what acts before a silo's own models are
            measured on its validation samples: there is nothing else to choose by.
    """
    metadata: dict[str, Any] = {"help": help, "low": low, "high": high, "open_low": open_low, "rare": rare}
    metadata["search"] = search
    metadata["choices"] = tuple(choices) if choices is not None else None
    return field(default=default, metadata=metadata)


def range_text(metadata: Mapping[str, Any]) -> str:
    """The allowed values in words, empty where anything goes."""
    if metadata.get("choices"):
        return "one of " + ", ".join(map(str, metadata["choices"]))
    low, high = metadata.get("low"), metadata.get("high")
    above = "above" if metadata.get("open_low") else "at least"
    if low is not None and high is not None:
        return f"{above} {low:g} and at most {high:g}" if metadata.get("open_low") else f"{low:g} to {high:g}"
    if low is not None:
        return f"{above} {low:g}"
    return f"at most {high:g}" if high is not None else ""


@cache
def hints_of(owner: type) -> Mapping[str, Any]:
    """The type of every field of a dataclass; they are texts in its file, and are looked up once."""
    return get_type_hints(owner)


def check_fields(owner: Any, label: str = "") -> None:
    """Convert and check every field of a dataclass made with `setting`; raise one sentence on the first bad one."""
    kind: Any = type(owner)
    hints = hints_of(kind)
    for item in dataclasses.fields(owner):
        if dataclasses.is_dataclass(hints[item.name]):
            continue
        name = f"{label}{item.name}"
        value = convert(getattr(owner, item.name), hints[item.name], name)
        object.__setattr__(owner, item.name, value)
        if not item.metadata or value is None:
            continue
        choices = item.metadata.get("choices")
        low, high = item.metadata.get("low"), item.metadata.get("high")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        below = number and low is not None and (value <= low if item.metadata.get("open_low") else value < low)
        above = number and high is not None and value > high
        if (choices and isinstance(value, str) and value not in choices) or below or above:
            raise FairsiloError(f"{name} is {value!r}; it must be {range_text(item.metadata)}")


def convert(value: Any, hint: Any, name: str) -> Any:
    """A value as it came from YAML or the command line, as the field's type; a sentence where it cannot be."""
    allowed = getattr(hint, "__args__", None) if not isinstance(hint, type) else None
    kinds = tuple(allowed) if allowed else (hint,)
    plain = tuple(getattr(kind, "__origin__", kind) for kind in kinds)
    if value is None and type(None) in plain:
        return None
    if isinstance(value, bool) and bool in plain:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, int) and int in plain:
            return value
        if isinstance(value, float) and int in plain and float not in plain and value.is_integer():
            return int(value)
        if float in plain and abs(value) < 1e300:
            return float(value)
    if isinstance(value, str) and float in plain and str not in plain:
        with contextlib.suppress(ValueError):  # YAML reads 1e-3 as text
            if math.isfinite(float(value)):
                return float(value)
    if isinstance(value, str) and str in plain:
        return value
    if isinstance(value, int | float) and str in plain and float not in plain and int not in plain:
        return str(value)
    if isinstance(value, list | tuple) and (list in plain or tuple in plain):
        return tuple(value)
    if isinstance(value, Mapping) and dict in plain:
        return dict(value)
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", tuple: "a list"}
    expected = " or ".join(words.get(kind, getattr(kind, "__name__", "nothing")) for kind in plain)
    raise FairsiloError(f"{name} is {value!r}; it must be {expected.replace('NoneType', 'nothing')}")
