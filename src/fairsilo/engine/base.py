"""What the loop asks of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from fairsilo.core.messages import Message, Reply
from fairsilo.core.silo import Memory


class Engine(Protocol):
    memory: dict[str, Memory]  # what each silo remembers, for checkpoints
    personal: dict[tuple[str, str], Tensor]  # (best or last, silo) -> its own model, waiting to be saved

    def ask(self, kind: str, round_: int, messages: dict[str, Message]) -> Iterator[Reply]:
        """Send each silo its message; yield the replies in name order."""
        ...

    def close(self) -> None: ...
