"""What `Silo` and `Server` need of a method: protocols, so that neither imports `Method` or `Part`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fairsilo.core.attachments import Sends


class Named(Protocol):
    """A part, as the key of a memory."""

    @property
    def name(self) -> str: ...


class Hooks(Protocol):
    """What the code that calls hooks needs of a method."""

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
