"""Rounds, evaluation, checkpoints, events: the same for every engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairsilo.config import EngineSettings, EvaluateSettings, participation_rule
from fairsilo.core import streams
from fairsilo.core.files import on_device
from fairsilo.core.messages import MODEL, Failure, Message, Number, Reply
from fairsilo.core.round import (
    close_round,
    conclude,
    open_adaptation,
    open_evaluation,
    open_personalisation,
    open_round,
    prepare,
)
from fairsilo.core.samples import Split
from fairsilo.core.screening import screened
from fairsilo.core.server import Server
from fairsilo.core.silo import Memory
from fairsilo.data.federation import Federation
from fairsilo.engine.base import Engine
from fairsilo.engine.host import Blueprint
from fairsilo.errors import QuorumError
from fairsilo.runs.folder import Store


@dataclass(frozen=True)
class Event:
    """Something a listener may show: `start`, `reply`, `opened`, `trained`, `closed`, `evaluated`, `round`, `end`."""

    kind: str
    round: int
    rounds: int
    silo: str = ""
    loss: float | None = None
    text: str = ""


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """The default listener."""


@dataclass
class History:
    """What a run found: evaluation rows and one record per round."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    vector: torch.Tensor = field(default_factory=lambda: torch.empty(0))  # the global model at the end


class Loop:
    """One run of one method on one federation."""

    def __init__(
        self,
        blueprint: Blueprint,
        federation: Federation,
        engine: Engine,
        *,
        evaluate: EvaluateSettings | None = None,
        settings: EngineSettings | None = None,
        store: Store | None = None,
        listener: Listener = silent,
        server_data: Split | None = None,
        synthetic: dict[str, Split] | None = None,
    ) -> None:
        self.blueprint = blueprint
        self.federation = federation
        self.engine = engine
        self.evaluate = evaluate or EvaluateSettings()
        self.settings = settings or EngineSettings()
        self.store = store
        self.listener = listener
        self.history = History()
        self._exchanges: list[dict[str, Any]] = []
        self._failures: list[dict[str, Any]] = []
        self.server = self._make_server(server_data, synthetic or {})

    def _make_server(self, data: Split | None, synthetic: dict[str, Split]) -> Server:
        plan = self.blueprint
        self.layout, vector = plan.start()  # of the silos' network, with what never leaves them
        layout, own = self.layout, plan.server_flat()
        facts = plan.check(self.federation, data is not None, bool(synthetic))
        return Server(
            method=plan.method,
            vector=own.read() if own else layout.to_wire(vector),
            layout=own.layout if own else layout.wire,
            silo_layout=layout.wire,
            names=self.federation.names,
            training=plan.training,
            rounds=plan.training.rounds,
            seed=plan.seed,
            exchange=self._exchange,
            domains=len({silo.domain for silo in self.federation.silos}),
            module=own,
            data=data,
            synthetic=synthetic,
            task=plan.task,
            sizes=facts.sizes,
            network=plan.flat,
        )

    # --------------------------------------------------------------------------------------------------- the run
    def run(self) -> History:
        """From the last checkpoint, or from the start, to the last round."""
        server, total = self.server, self.server.rounds
        done = self._restore()
        self._tell("start", done)
        if done == 0 and not server.memory.get("run", {}).get("prepared"):
            prepare(server)
            # kept in the checkpoint, so that the first round's record is the same after a kill
            server.memory["run"] = {
                "prepared": True,
                "exchanges": self._exchanges,
                "failures": self._failures,
            }
            self._save(0)
        for number in range(done + 1, total + 1):
            self._round(number)
        if not server.memory["run"].get("concluded"):
            conclude(server)
            server.memory["run"]["concluded"] = True
        if self.store:
            self.store.write_model(("global",), server.vector, server.layout)
        self.history.vector = server.vector
        self._tell("end", total)
        return self.history

    def _round(self, number: int) -> None:
        server, begun = self.server, time.perf_counter()
        server.round = number
        server.facts, server.notes, server.weights = {}, [], {}
        before = server.memory["run"] if number == 1 else {}
        self._exchanges, self._failures = list(before.get("exchanges", ())), list(before.get("failures", ()))
        last = number == server.rounds
        evaluated = last or number % self.evaluate.every == 0
        participants = self._participants(number)
        # a silo that sits out the last round keeps the model it had before
        save = bool(self.store) and (last or server.training.participation != "all")
        asks: dict[str, Number] = {"evaluate": evaluated, "save": save, "best": bool(self.store)}
        later = server.method.personalises  # then silos make their own models after the round, from its result
        messages = open_round(server, participants, {} if later else asks)
        sent = server.vector
        self._tell("opened", number)
        losses: dict[str, float] = {}
        rows: list[dict[str, Any]] = []
        changes: dict[str, Tensor] = {}
        replies = self._watched(self._exchange("train", messages), losses, rows, changes)
        quorum = max(1, math.ceil(server.training.quorum * len(participants) - 1e-9))
        counted = close_round(server, replies, quorum)
        self._tell("closed", number)
        if len(counted) < quorum:
            raise QuorumError(self._below_quorum(number, len(counted), len(participants), quorum))
        if evaluated:
            rows += self._measured("personal", "personalise", self._personalisation(asks) if later else {})
            rows += self._measured("global", "evaluate", self._evaluation())
            rows += self._measured("adapted", "adapt", self._adaptation())
            self._tell("evaluated", number)
        record = {
            "round": number,
            "participants": participants,
            "counted": counted,
            "weights": server.weights,
            "train_loss": losses,
            "exchanges": self._exchanges,
            "failures": self._failures,
            "notes": server.notes,
            "seconds": time.perf_counter() - begun,
        }
        self.history.rows += rows
        self.history.rounds.append(record)
        if self.store:
            self.store.append("metrics", rows)
            self.store.append("rounds", [record])
            self._save_personal()
            if self.evaluate.keep_local:
                self.store.write_local(number, sent, changes)
        if last or number % self.settings.checkpoint_every == 0:
            self._save(number)
        self._tell("round", number, text="; ".join(server.notes))

    def _participants(self, number: int) -> list[str]:
        """Who is asked this round, in name order."""
        names = list(self.server.names)
        rule, value = participation_rule(self.server.training.participation)
        if rule == "all":
            return names
        count = int(value) if rule == "count" else max(1, round(value * len(names)))
        count = min(count, len(names))
        stream = streams.generator(self.server.seed, number, "participants")
        if self.server.training.sampling == "size":
            sizes = torch.tensor([float(len(self.federation[name].train)) for name in names])
            chosen = torch.multinomial(sizes, count, generator=stream)
        else:
            chosen = torch.randperm(len(names), generator=stream)[:count]
        return [names[index] for index in sorted(chosen.tolist())]

    # --------------------------------------------------------------------------------------------------- exchanges
    def _exchange(self, kind: str, messages: dict[str, Message]) -> Iterator[Reply]:
        """Ask the engine; count exchanges, bytes and seconds; screen replies; log who failed."""
        begun = time.perf_counter()
        record: dict[str, Any] = {"kind": kind, "asked": len(messages), "answered": 0, "bytes_down": 0, "bytes_up": 0}
        record["bytes_down"] = sum(message.bytes for message in messages.values())
        replies = self.engine.ask(kind, self.server.round, messages)
        for reply in screened(kind, messages, replies, self.server):
            answer = reply.answer
            if isinstance(answer, Failure):
                self._failures.append(
                    {"silo": reply.silo, "exchange": kind, "kind": answer.kind, "detail": answer.detail}
                )
                self._tell("failed", self.server.round, reply.silo, text=f"{answer.kind}: {answer.detail}")
            else:
                record["answered"] += 1
                record["bytes_up"] += answer.bytes
                loss = answer.numbers.get("loss")
                self._tell("reply", self.server.round, reply.silo, float(loss) if loss is not None else None, kind)
            del answer
            yield reply
            del reply
        self._exchanges.append({**record, "seconds": time.perf_counter() - begun})
        if kind == "train":
            self._tell("trained", self.server.round)

    def _watched(
        self,
        replies: Iterator[Reply],
        losses: dict[str, float],
        rows: list[dict[str, Any]],
        changes: dict[str, Tensor],
    ) -> Iterator[Reply]:
        """Note training losses, the results of the silos' own models and, where they are kept, updates as they pass."""
        for reply in replies:
            if isinstance(reply.answer, Message):
                if self.evaluate.keep_local:
                    changes[reply.silo] = reply.answer.tensors[MODEL].clone()
                losses[reply.silo] = float(reply.answer.numbers["loss"])
                rows += self._rows(reply.silo, "personal", reply.answer)
            yield reply
            del reply

    def _measured(self, model: str, kind: str, messages: dict[str, Message]) -> list[dict[str, Any]]:
        """What silos find of a model in an exchange of this kind."""
        found = []
        for reply in self._exchange(kind, messages) if messages else ():
            if isinstance(reply.answer, Message):
                found += self._rows(reply.silo, model, reply.answer)
        return found

    def _evaluation(self) -> dict[str, Message]:
        """The global model to every silo, trained or not, and to the unseen ones."""
        if not self.server.layout.size:  # nothing is shared, so there is no global model to measure
            return {}
        return open_evaluation(self.server, self.federation.names, self.federation.unseen_names)

    def _personalisation(self, asks: dict[str, Number]) -> dict[str, Message]:
        return open_personalisation(self.server, self.federation.names, asks)

    def _adaptation(self) -> dict[str, Message]:
        owner = self.server.method.owners("adapt")
        if not owner or ("adapts-once" in owner[0].does and self.server.round < self.server.rounds):
            return {}
        return open_adaptation(self.server, self.federation.unseen_names)

    def _rows(self, name: str, model: str, answer: Message) -> list[dict[str, Any]]:
        found = []
        for split in ("validation", "test"):
            key = f"{model}.{split}"
            if f"{key}.loss" in answer.numbers:
                found.append(
                    {
                        "round": self.server.round,
                        "silo": name,
                        "domain": self.federation[name].domain,
                        "unseen": name in self.federation.unseen_names,
                        "model": model,
                        "split": split,
                        "loss": answer.numbers[f"{key}.loss"],
                        "metric": answer.numbers[f"{key}.metric"],
                        "samples": answer.numbers[f"{key}.samples"],
                    }
                )
        return found

    # ------------------------------------------------------------------------------------------------- checkpoints
    def _save(self, number: int) -> None:
        if self.store:
            server = {"vector": self.server.vector, "memory": self.server.memory}
            self.store.write_checkpoint(number, server, self.engine.memory)
            self._tell("saved", number)

    def _save_personal(self) -> None:
        """Silos' own models as the answers of this round brought them: the last, or the best so far."""
        assert self.store is not None
        for (which, name), vector in self.engine.personal.items():
            self.store.write_model(("personal", which, name), vector, self.layout)
        self.engine.personal.clear()

    def _restore(self) -> int:
        """Take up the last checkpoint; returns the number of rounds it holds."""
        saved = self.store.read_checkpoint() if self.store else None
        if saved is None or self.store is None:
            return 0
        number, server, silos = saved
        device = self.server.vector.device
        self.server.vector = server["vector"].to(device)
        self.server.memory = Memory(on_device(server["memory"], device))
        self.engine.memory = {name: Memory(on_device(memory, device)) for name, memory in silos.items()}
        self.history.rows = self.store.cut("metrics", number)
        self.history.rounds = self.store.cut("rounds", number)
        return number

    def _below_quorum(self, number: int, counted: int, asked: int, quorum: int) -> str:
        first = self._failures[0] if self._failures else None
        reason = f" First failure: {first['silo']}, {first['kind']}: {first['detail']}." if first else ""
        resume = " The checkpoint of the round before can be resumed." if self.store else ""
        return (
            f"round {number} stopped: {counted} of {asked} silos gave a usable update, and the quorum is {quorum}."
            f"{reason}{resume}"
        )

    def _tell(self, kind: str, number: int, silo: str = "", loss: float | None = None, text: str = "") -> None:
        self.listener(Event(kind, number, self.server.rounds, silo, loss, text))
