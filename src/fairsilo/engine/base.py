"""What the loop asks of an engine, and of whoever keeps a run's records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from fairsilo.core.messages import Exchange, Reply
from fairsilo.core.vectors import Layout


class Engine(Protocol):
    """Where silos run. An engine moves messages; it knows no hook and no rule of a method."""

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        """Send each silo its message; yield the replies in name order."""
        ...

    def commit(self, round_: int) -> Callable[[], None] | None:
        """Every silo keeps its state after this round. The server's checkpoint of the round follows.

        Where the state is in memory for the moment, what is returned writes it, while the next round may go on.
        """
        ...

    def restore(self, round_: int) -> None:
        """Every silo takes up the state that it kept after this round."""
        ...

    def close(self) -> None:
        """Let go of processes, connections and files."""
        ...


class Records(Protocol):
    """What a loop writes down; the run folder does."""

    def append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None: ...

    def cut(self, name: str, last_round: int) -> list[dict[str, Any]]: ...

    def write_model(self, name: Sequence[str], vector: Tensor, layout: Layout) -> None: ...

    def write_local(self, round_: int, sent: Tensor, changes: Mapping[str, Tensor]) -> None: ...

    def write_checkpoint(self, round_: int, server: Mapping[str, Any]) -> None: ...

    def write_now(self, state: Mapping[str, Any] | None) -> None: ...

    def read_checkpoint(self) -> tuple[int, dict[str, Any]] | None: ...
