"""Settings in brackets behind a name, as in `fedprox(mu=0.1)` and `efficientnet-lite0(bn_momentum=0.1)`."""

from __future__ import annotations

import ast
from typing import Any

from fairsilo.errors import FairsiloError


def settings_in(brackets: str, text: str) -> dict[str, Any]:
    """The settings that stand between brackets (`mu=0.1, epochs=2`).

    Args:
        brackets: What stands between them.
        text: The whole text, for the error.

    Raises:
        FairsiloError: Something between commas is not key=value, or a key comes twice.
    """
    found: dict[str, Any] = {}
    for pair in filter(None, map(str.strip, brackets.split(","))):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise FairsiloError(f"{pair!r} in {text!r} is no setting; write key=value")
        if key in found:
            raise FairsiloError(f"{key} is given twice in {text!r}; give it once")
        found[key] = _literal(value)
    return found


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        return text
