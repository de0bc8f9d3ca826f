"""How methods are written: the names and settings in their texts, without the methods themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairsilo.core.calls import settings_in
from fairsilo.errors import FairsiloError
from fairsilo.models.described import names_code
from fairsilo.plugins import is_reference

_PIECE = re.compile(r"^(?P<name>[\w-]+|[\w.]+:\w+)(\((?P<settings>[^()]*)\))?(?P<without>(\.without\([^()]*\))*)$")


@dataclass(frozen=True)
class Piece:
    """One method of a composition, as it is written: `fedheal(tau=0.4).without(distance-weights)`."""

    text: str
    name: str
    settings: Mapping[str, Any]
    without: str

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
