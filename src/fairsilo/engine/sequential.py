"""Silos one after the other in this process: the simplest engine, and the one to debug with."""

from __future__ import annotations

import time
from collections.abc import Iterator

from torch import Tensor

from fairsilo.core.messages import Message, Reply, Request
from fairsilo.core.silo import Memory
from fairsilo.data.federation import Federation
from fairsilo.engine.host import Blueprint, Host


class Sequential:
    """Holds one network, whatever the number of silos."""

    def __init__(self, blueprint: Blueprint, federation: Federation, strict: bool = False) -> None:
        self.host = Host(blueprint, federation, strict)
        self.memory: dict[str, Memory] = {}
        self.personal: dict[tuple[str, str], Tensor] = {}

    def ask(self, kind: str, round_: int, messages: dict[str, Message]) -> Iterator[Reply]:
        """Replies in name order, each silo starting when the one before it was taken."""
        for name in sorted(messages):
            begun = time.perf_counter()
            answer = self.host.answer(name, Request(kind, round_, messages[name]), self.memory.get(name, Memory()))
            if answer.memory:
                self.memory[name] = answer.memory
            self.personal |= {(which, name): vector for which, vector in (answer.saved or {}).items()}
            reply = Reply(name, answer.message, time.perf_counter() - begun)
            del answer  # only the caller decides how long an update lives
            yield reply
            del reply

    def close(self) -> None:
        """Nothing to let go of."""
