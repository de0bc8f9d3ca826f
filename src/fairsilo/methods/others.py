"""Methods of other packages: by the name of an entry point, or as `package:name`.

What is named may be a part's class, a part, a method, a catalogue entry, or a function that returns one of these.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.errors import FairsiloError
from fairsilo.methods.catalogue import CATALOGUE, Entry, entry
from fairsilo.methods.names import GROUP
from fairsilo.plugins import found_by, is_reference, registered


def foreign(name: str) -> bool:
    """Whether a name is that of another package's method."""
    return is_reference(name) or (name not in CATALOGUE and name in registered(GROUP))


def foreign_method(name: str, settings: dict[str, Any]) -> Method:
    """The method that a name of another package's stands for, with these settings."""
    found = found_by(GROUP, name, "method")
    text = ", ".join(f"{key}={value}" for key, value in settings.items())
    return dataclasses.replace(_made(name, found, settings), name=f"{name}({text})" if text else name)


def foreign_entries() -> dict[str, Entry]:
    """What installed packages offer, as a catalogue lists it; of one that cannot be imported, why."""
    found = {}
    for name in (name for name in registered(GROUP) if foreign(name)):
        try:
            found[name] = entry_of(name)
        except FairsiloError as problem:
            found[name] = Entry(name, name, str(problem))
    return found


def all_entries() -> dict[str, Entry]:
    """The catalogue, and what installed packages offer besides."""
    return CATALOGUE | foreign_entries()


def entry_of(name: str) -> Entry:
    """What describes a method of the catalogue, or of another package."""
    return _entry(name, found_by(GROUP, name, "method")) if foreign(name) else entry(name)


def _made(name: str, found: Any, settings: dict[str, Any]) -> Method:
    if isinstance(found, Entry) or _is_part(found):
        return _entry(name, found).make(**settings)
    if not isinstance(found, Method | Part) and callable(found):
        return _made(name, found(**settings), {})
    if settings:
        raise FairsiloError(f"{name} is a method with its settings made already; change {next(iter(settings))} there")
    if isinstance(found, Part):
        return Method((found,), name)
    if isinstance(found, Method):
        return found
    raise FairsiloError(
        f"{name} is a {type(found).__name__}; a method is a Part, a Method, or a function that makes one"
    )


def _is_part(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Part)


def _entry(name: str, found: Any) -> Entry:
    if isinstance(found, Entry):
        return dataclasses.replace(found, name=name)
    idea = (inspect.getdoc(found) or "").split("\n")[0]
    if _is_part(found):
        return Entry(name, found.__name__, idea, (found,))
    parts = _made(name, found, {}).parts  # their settings are made already
    chosen = {item.name: getattr(part, item.name) for part in parts for item in dataclasses.fields(part)}
    return Entry(name, name, idea, tuple(map(type, parts)), settings=chosen)
