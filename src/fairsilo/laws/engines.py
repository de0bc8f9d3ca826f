"""Engines around an engine: one that serves silos in another order, that spoils replies, that watches memories."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fairsilo.core.attachments import Sends
from fairsilo.core.messages import MODEL, Exchange, Failure, Message, Number, Reply, digest
from fairsilo.core.screening import DIVERGED
from fairsilo.core.silo import Memory
from fairsilo.engine.base import Engine


class Wrapped:
    """Passes everything on; derived classes change what they are about."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        yield from self.engine.ask(exchange)

    def commit(self, round_: int) -> Callable[[], None] | None:
        return self.engine.commit(round_)

    def restore(self, round_: int) -> None:
        self.engine.restore(round_)

    def close(self) -> None:
        self.engine.close()


class Backwards(Wrapped):
    """Serves silos one by one in the other order, and answers in name order as every engine does."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.served: list[tuple[str, str]] = []

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        replies: list[Reply] = []
        for name in reversed(exchange.silos):
            replies += self.engine.ask(dataclasses.replace(exchange, messages={name: exchange.messages[name]}))
            self.served.append((exchange.kind, name))
        yield from sorted(replies, key=lambda reply: reply.silo)


# fault of a whole update -> the kind of failure that it is counted as
FAULTS = {
    "nan": DIVERGED,
    "short": "malformed",
    "raises": "error",
    "infinite number": DIVERGED,
    "samples": "malformed",
    "no model": "malformed",
}


class Tampered(Wrapped):
    """Spoils the update of some silos in one round."""

    def __init__(self, engine: Engine, fault: str, round_: int = 2, silos: tuple[str, ...] = ("b",)) -> None:
        super().__init__(engine)
        self.fault, self.round, self.silos = fault, round_, silos

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        for reply in self.engine.ask(exchange):
            if exchange.kind == "train" and exchange.round == self.round and reply.silo in self.silos:
                reply = self._spoilt(reply)
            yield reply

    def _spoilt(self, reply: Reply) -> Reply:
        if self.fault == "raises":
            return Reply(reply.silo, Failure("error", "ValueError: no data today"), number=reply.number)
        assert isinstance(reply.answer, Message)
        if self.fault == "nan":
            reply.answer.tensors[MODEL][3] = float("nan")
        elif self.fault == "infinite number":
            reply.answer.numbers["loss"] = float("inf")
        elif self.fault == "samples":
            reply.answer.numbers["samples"] = 0
        elif self.fault == "no model":
            del reply.answer.tensors[MODEL]
        else:
            reply.answer.tensors[MODEL] = reply.answer.tensors[MODEL][:-1]
        return reply


Case = tuple[str, str, Sends, str]  # exchange, silo, attachment, fault
FLAWS = ("drop", "reshape", "retype", "poison")  # of one attachment


class Spoiling(Wrapped):
    """Spoils one attachment of one silo's reply, another one in every round."""

    def __init__(self, engine: Engine, cases: dict[int, Case]) -> None:
        super().__init__(engine)
        self.cases = cases

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        for reply in self.engine.ask(exchange):
            case = self.cases.get(exchange.round)
            if case and (exchange.kind, reply.silo) == case[:2] and isinstance(reply.answer, Message):
                spoil(reply.answer, *case[2:])
            yield reply


def spoil(answer: Message, one: Sends, flaw: str) -> None:
    """Drop, reshape, retype or poison one attachment of a reply."""
    if one.name not in (answer.numbers if one.is_number else answer.tensors):
        return  # the other question of a part that asks two
    if one.is_number:
        _spoil_number(answer, one.name, flaw)
    elif flaw == "drop":
        del answer.tensors[one.name]
    elif flaw == "reshape":
        answer.tensors[one.name] = answer.tensors[one.name][None]
    elif flaw == "retype":
        answer.tensors[one.name] = answer.tensors[one.name].to(torch.int64)
    else:
        spoilt = answer.tensors[one.name].clone()
        spoilt.view(-1)[-1] = float("nan")
        answer.tensors[one.name] = spoilt


def _spoil_number(answer: Message, name: str, flaw: str) -> None:
    value: Number = answer.numbers.pop(name)
    if flaw == "reshape":
        answer.tensors[name] = torch.tensor([float(value)] * 2)
    elif flaw != "drop":
        answer.numbers[name] = str(value) if flaw == "retype" else float("nan")


class Watching(Wrapped):
    """Notes what silos send, and whose memory was changed in place instead of replaced."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.sent: set[tuple[str, str]] = set()  # exchange, name of an attachment
        self.changed: list[tuple[str, str]] = []  # exchange, part

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        before = {name: self._marks(self.stores[name].memory) for name in exchange.silos}
        held = {name: self.stores[name].memory for name in exchange.silos}
        for reply in self.engine.ask(exchange):
            if isinstance(reply.answer, Message):
                self.sent |= {(exchange.kind, key) for key in (*reply.answer.tensors, *reply.answer.numbers)}
            after = self._marks(held[reply.silo])
            self.changed += [(exchange.kind, part) for part, mark in before[reply.silo].items() if after[part] != mark]
            yield reply

    @staticmethod
    def _marks(memory: Memory) -> dict[str, str]:
        return {part: digest(entries) for part, entries in memory.items()}
