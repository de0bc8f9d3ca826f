"""Methods from texts such as `fedprox(mu=0.1) | fedheal(tau=0.4).without(distance-weights)`."""

from __future__ import annotations

import dataclasses
import re
from contextlib import suppress
from typing import Any

from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.errors import FairsiloError
from fairsilo.methods.catalogue import entry
from fairsilo.methods.others import entry_of, foreign, foreign_method
from fairsilo.methods.pieces import Piece, pieces_of


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
    composed = made(first, **settings)
    for piece in others:
        composed = composed | made(piece)
    return composed


def described(text: str) -> list[dict[str, Any]]:
    """What is said of each method that a text composes: what it has by default, whatever the text sets.

    Raises:
        FairsiloError: There is no such method.
    """
    method(text)
    return [entry_of(piece.name).describe() for piece in pieces_of(text)]


def made(piece: Piece, **more: Any) -> Method:
    """The method of a piece, with settings besides those that are written; the same one twice is refused."""
    twice = next((key for key in more if key in piece.settings), None)
    if twice:
        raise FairsiloError(f"{twice} is given twice in {piece.text!r}; give it once")
    chosen = {**more, **piece.settings}
    found = foreign_method(piece.name, chosen) if foreign(piece.name) else entry(piece.name).make(**chosen)
    listed = re.findall(r"\(([^()]*)\)", piece.without)
    gone = [name.strip() for names in listed for name in names.split(",") if name.strip()]
    return found.without(*gone) if gone else found


def text_of(given: Method) -> str | None:
    """A text that gives the same method anywhere; None where one of its parts has no name outside this program."""
    with suppress(FairsiloError):
        if method(given.name).parts == given.parts:
            return given.name
    with suppress(FairsiloError):
        text = " | ".join(map(_part_text, given.parts))
        return text if method(text).parts == given.parts else None
    return None


def _part_text(part: Part) -> str:
    kind = type(part)
    if kind.__module__ == "__main__":
        raise FairsiloError(
            f"{kind.__qualname__} is a part of a script, which has another name elsewhere; "
            "move it into a file of its own and import it"
        )
    changed = [
        f"{item.name}={getattr(part, item.name)}"
        for item in dataclasses.fields(part)
        if getattr(part, item.name) != item.default
    ]
    return f"{kind.__module__}:{kind.__qualname__}" + (f"({', '.join(changed)})" if changed else "")
