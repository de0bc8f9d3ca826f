"""What a silo and the server know of the method they carry out: enough to call its hooks, and no rule of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fairsilo.core.attachments import Sends


class Named(Protocol):
    """A part, as far as memories are concerned."""

    @property
    def name(self) -> str: ...


class Hooks(Protocol):
    """A method, seen from the exchanges that call its hooks."""

    @property
    def name(self) -> str: ...

    @property
    def parts(self) -> Sequence[Any]: ...

    @property
    def individual_updates(self) -> bool: ...

    @property
    def declared(self) -> Sequence[Sends]: ...

    @property
    def personalises(self) -> bool: ...

    def hooks(self, hook: str) -> tuple[Callable[..., Any], ...]: ...

    def owners(self, hook: str) -> Sequence[Any]: ...

    def weighting(self, asked: str) -> str: ...
