"""Methods from texts such as `fedprox(mu=0.1) | fedheal(tau=0.4).without(distance-weights)`."""

from __future__ import annotations

import ast
import re
from typing import Any

from fairsilo.core.method import Method
from fairsilo.errors import FairsiloError
from fairsilo.methods.catalogue import entry


def method(text: str, **settings: Any) -> Method:
    """A method from a text such as `fedprox(mu=0.1) | fedheal(tau=0.4).without(distance-weights)`.

    Settings given by name go to a single method: `method("fedprox", mu=0.1)`.
    """
    pieces = [piece.strip() for piece in text.split("|")]
    if settings and len(pieces) > 1:
        raise FairsiloError(f"settings by name go with one method, and {text!r} composes several: write them inside")
    composed = _one(pieces[0], settings)
    for piece in pieces[1:]:
        composed = composed | _one(piece, {})
    return composed


_PIECE = re.compile(r"^(?P<name>[\w-]+)(\((?P<settings>[^()]*)\))?(?P<without>(\.without\([^()]*\))*)$")


def _one(text: str, settings: dict[str, Any]) -> Method:
    match = _PIECE.match(text)
    if not match:
        raise FairsiloError(
            f"{text!r} is no method; write fedprox, fedprox(mu=0.1) or fedheal.without(consistency-mask)"
        )
    inside = dict(settings)
    for pair in filter(None, map(str.strip, (match["settings"] or "").split(","))):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise FairsiloError(f"{pair!r} in {text!r} is no setting; write key=value")
        if key in inside:
            raise FairsiloError(f"{key} is given twice in {text!r}")
        inside[key] = _literal(value)
    made = entry(match["name"]).make(**inside)
    listed = re.findall(r"\(([^()]*)\)", match["without"])
    gone = [name.strip() for names in listed for name in names.split(",") if name.strip()]
    return made.without(*gone) if gone else made


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        return text
