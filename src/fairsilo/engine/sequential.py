"""Silos one after the other in this process: the simplest engine, and the one to debug with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from fairsilo.core.messages import Exchange, Reply
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.host import Host
from fairsilo.engine.simulation import Simulation


class Sequential(Simulation):
    """Holds one network, whatever the number of silos."""

    def __init__(
        self, blueprint: Blueprint, federation: Federation, strict: bool = False, folder: Path | None = None
    ) -> None:
        super().__init__(blueprint, (*federation.names, *federation.unseen_names), folder)
        self.host = Host(blueprint, federation, strict)

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        """Replies in name order, each silo starting when the one before it was taken."""
        for name in exchange.silos:
            begun = time.perf_counter()
            request = exchange.request(name)
            answer = self.host.answer(name, request, self.stores[name].memory)
            self.accept(name, request, answer)
            reply = Reply(name, answer.message, time.perf_counter() - begun, exchange.number)
            del answer  # only the caller decides how long an update lives
            yield reply
            del reply
