"""Methods from texts such as `fedprox(mu=0.1) | fedheal(tau=0.4).without(distance-weights)`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
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
    pieces = pieces_of(text)
    if settings and len(pieces) > 1:
        raise FairsiloError(f"settings by name go with one method, and {text!r} composes several: write them inside")
    first, *others = pieces
    composed = first.make(**settings)
    for piece in others:
        composed = composed | piece.make()
    return composed


_PIECE = re.compile(r"^(?P<name>[\w-]+|[\w.]+:\w+)(\((?P<settings>[^()]*)\))?(?P<without>(\.without\([^()]*\))*)$")


@dataclass(frozen=True)
class Piece:
    """One method of a composition, as it is written: `fedheal(tau=0.4).without(distance-weights)`."""

    text: str
    name: str
    settings: Mapping[str, Any]
    without: str

    def make(self, **more: Any) -> Method:
        """The method, with settings besides those that are written; the same one twice is refused."""
        twice = next((key for key in more if key in self.settings), None)
        if twice:
            raise FairsiloError(f"{twice} is given twice in {self.text!r}")
        chosen = {**more, **self.settings}
        made = foreign_method(self.name, chosen) if foreign(self.name) else entry(self.name).make(**chosen)
        listed = re.findall(r"\(([^()]*)\)", self.without)
        gone = [name.strip() for names in listed for name in names.split(",") if name.strip()]
        return made.without(*gone) if gone else made

    def having(self, values: Mapping[str, Any]) -> Piece:
        """With these settings written into it."""
        settings = {**self.settings, **values}
        inside = ", ".join(f"{key}={value}" for key, value in settings.items())
        return Piece(f"{self.name}({inside}){self.without}" if inside else self.text, self.name, settings, self.without)


def pieces_of(text: str) -> list[Piece]:
    """The methods that a text composes.

    Raises:
        FairsiloError: One of them is not written as methods are.
    """
    found = []
    for piece in map(str.strip, text.split("|")):
        match = _PIECE.match(piece)
        if not match:
            raise FairsiloError(
                f"{piece!r} is no method; write fedprox, fedprox(mu=0.1) or fedheal.without(consistency-mask)"
            )
        inside = settings_in(match["settings"] or "", piece)
        found.append(Piece(piece, match["name"], inside, match["without"]))
    return found


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
    with suppress(FairsiloError):
        if method(made.name).parts == made.parts:
            return made.name
    with suppress(FairsiloError):
        text = " | ".join(map(_part_text, made.parts))
        return text if method(text).parts == made.parts else None
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
