"""Methods from texts such as `fedprox(mu=0.1) | fedheal(tau=0.4).without(distance-weights)`."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from fairsilo.core.calls import settings_in
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.errors import FairsiloError
from fairsilo.methods.catalogue import entry
from fairsilo.methods.others import foreign, foreign_method
from fairsilo.models.registry import names_code
from fairsilo.plugins import is_reference


def method(text: str, **settings: Any) -> Method:
    """A method from a text such as `fedprox(mu=0.1) | fedheal(tau=0.4).without(distance-weights)`.

    Args:
        text: Names of the catalogue, of entry points, or `package:name`, with settings in brackets; `|` composes,
            `.without(part)` leaves a part out.
        **settings: Settings of a single method: `method("fedprox", mu=0.1)`.

    Returns:
        The method, to be given to `run` or composed further.

    Raises:
        FairsiloError: A name or setting that does not exist, a value out of range, or parts that do not go together.

    Example:
        >>> import fairsilo
        >>> fairsilo.method("fedprox", mu=0.1).parts[0].mu
        0.1
        >>> ablation = fairsilo.method("fedprox(mu=0.1) | fedheal").without("distance-weights")
        >>> [part.name for part in ablation.parts]
        ['proximal', 'consistency-mask']
    """
    pieces = [piece.strip() for piece in text.split("|")]
    if settings and len(pieces) > 1:
        raise FairsiloError(f"settings by name go with one method, and {text!r} composes several: write them inside")
    composed = _one(pieces[0], settings)
    for piece in pieces[1:]:
        composed = composed | _one(piece, {})
    return composed


_PIECE = re.compile(r"^(?P<name>[\w-]+|[\w.]+:\w+)(\((?P<settings>[^()]*)\))?(?P<without>(\.without\([^()]*\))*)$")


def _one(text: str, settings: dict[str, Any]) -> Method:
    match = _PIECE.match(text)
    if not match:
        raise FairsiloError(
            f"{text!r} is no method; write fedprox, fedprox(mu=0.1) or fedheal.without(consistency-mask)"
        )
    inside = settings_in(match["settings"] or "", text, settings)
    name = match["name"]
    made = foreign_method(name, inside) if foreign(name) else entry(name).make(**inside)
    listed = re.findall(r"\(([^()]*)\)", match["without"])
    gone = [name.strip() for names in listed for name in names.split(",") if name.strip()]
    return made.without(*gone) if gone else made


def references(text: str) -> list[str]:
    """The `package:name` references in a method's text: what it would import, its settings included."""
    names, values = [], []
    for piece in map(str.strip, text.split("|")):
        match = _PIECE.match(piece)
        names.append(match["name"] if match else piece.partition("(")[0])
        values += [value.strip() for _, value in re.findall(r"(\w+)\s*=\s*([^,()]+)", piece)]
    found = [name for name in names if is_reference(name)]
    return list(dict.fromkeys([*found, *filter(names_code, values)]))


def text_of(made: Method) -> str | None:
    """A text that gives the same method anywhere; None where one of its parts has no name outside this program."""
    for text in (made.name, " | ".join(map(_part_text, made.parts))):
        try:
            if method(text).parts == made.parts:
                return text
        except FairsiloError:
            continue
    return None


def _part_text(part: Part) -> str:
    kind = type(part)
    if kind.__module__ == "__main__":
        raise FairsiloError(f"{kind.__qualname__} is a part of a script, which has another name elsewhere")
    changed = [
        f"{item.name}={getattr(part, item.name)}"
        for item in dataclasses.fields(part)
        if getattr(part, item.name) != item.default
    ]
    return f"{kind.__module__}:{kind.__qualname__}" + (f"({', '.join(changed)})" if changed else "")
