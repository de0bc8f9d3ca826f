"""Rounds, evaluation, checkpoints, events: the same for every engine."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fairsilo.config import EngineSettings, EvaluateSettings
from fairsilo.core import streams
from fairsilo.core.files import on_device
from fairsilo.core.groups import asking
from fairsilo.core.measuring import read_measure, row_of
from fairsilo.core.messages import MODEL, SHOWN, Exchange, Failure, Message, Number, Reply
from fairsilo.core.roster import Roster
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
from fairsilo.core.screening import DIVERGED, screened, steadier
from fairsilo.core.server import Server
from fairsilo.core.silo import Memory
from fairsilo.engine.base import Engine, Records
from fairsilo.engine.behind import Behind
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.events import Callback, Event, RoundResults, guarded, means_of, silent
from fairsilo.engine.grouping import Groups, Pool
from fairsilo.engine.now import Now
from fairsilo.errors import FairsiloError, QuorumError
from fairsilo.protocols import participation_rule

STANDING = "standing"  # the server's memory of results of own models that stand until an evaluation, by silo


@dataclass
class History:
    """What a run found: evaluation rows and one record per round."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)  # evaluation rows by group, where they are asked for
    vector: torch.Tensor = field(default_factory=lambda: torch.empty(0))  # the global model at the end


class Loop:
    """One run of one method on one federation."""

    def __init__(
        self,
        blueprint: Blueprint,
        roster: Roster,
        engine: Engine,
        *,
        evaluate: EvaluateSettings | None = None,
        settings: EngineSettings | None = None,
        records: Records | None = None,
        listener: Callback = silent,
        server_data: Split | None = None,
        synthetic: dict[str, Split] | None = None,
        run_id: str = "",
        groups: Groups | None = None,
    ) -> None:
        self.blueprint = blueprint
        self.run_id = run_id
        self._number = 0  # of the next exchange of the round
        self._behind = Behind()
        self._saving: int | None = None  # the round whose checkpoint is being written
        self.roster = roster
        self.engine = engine
        self.evaluate = evaluate or EvaluateSettings()
        self.settings = settings or EngineSettings()
        self.records = records
        self._now = Now(records.write_now) if records else None
        self.listener = guarded(listener)
        self.history = History()
        self._exchanges: list[dict[str, Any]] = []
        self._failures: list[dict[str, Any]] = []
        self.server = self._make_server(server_data, synthetic or {})
        if self.evaluate.keep_local and self.server.method.hooks("unmask"):
            raise FairsiloError("evaluate.keep_local keeps silos' updates, which travel under masks here; leave it out")
        groups = groups or Groups()
        self.pool = Pool(self.server, roster, groups.columns)
        self.by_group = asking(groups.columns)
        self.server.sizes = {**self.server.sizes, "tally": groups.tally}

    def _make_server(self, data: Split | None, synthetic: dict[str, Split]) -> Server:
        plan = self.blueprint
        layout, vector = plan.start()
        own = plan.server_flat()
        facts = plan.check(self.roster, data is not None, bool(synthetic))
        return Server(
            method=plan.method,
            vector=own.read() if own else layout.to_wire(vector),
            layout=own.layout if own else layout.wire,
            silo_layout=layout.wire,
            names=self.roster.names,
            training=plan.training,
            rounds=plan.training.rounds,
            seed=plan.seed,
            exchange=self._exchange,
            domains=len(self.roster.domains),
            own_model=own,
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
        try:
            for number in range(done + 1, total + 1):
                self._round(number)
        finally:
            self._behind.wait()
        self._settle()
        if self.records:
            self.records.write_model(("global",), server.vector, server.layout)
        self.history.vector = server.vector
        self._tell("end", total)
        return self.history

    def _round(self, number: int) -> None:
        server, begun = self.server, time.perf_counter()
        server.round, self._number = number, 0
        server.facts, server.notes, server.left_out, server.weights = {}, [], {}, {}
        before = server.memory["run"] if number == 1 else {}
        self._exchanges, self._failures = list(before.get("exchanges", ())), list(before.get("failures", ()))
        last = number == server.rounds
        evaluated = self._is_evaluated(number)
        participants = self._participants(number)
        # a silo that sits out the last round keeps the model it had before
        save = bool(self.records) and (last or server.training.participation != "all")
        asks: dict[str, Number] = {"evaluate": evaluated, "save": save, "best": bool(self.records)}
        later = server.method.personalises  # then silos make their own models after the round, from its result
        asks |= self.by_group if evaluated else {}
        messages = open_round(server, participants, {} if later else asks)
        if not later and not evaluated:
            for name in self._standing(number, participants) & messages.keys():
                messages[name].numbers |= {"evaluate": True} | self.by_group
        sent = server.vector
        self._tell("opened", number)
        losses: dict[str, float] = {}
        rows: list[dict[str, Any]] = []
        changes: dict[str, Tensor] = {}
        shown: dict[str, dict[str, Number]] = {}
        replies = self._watched(self._exchange("train", messages), losses, rows, changes, shown)
        quorum = max(1, math.ceil(server.training.quorum * len(participants) - 1e-9))
        counted = close_round(server, replies, quorum)
        self._tell("closed", number)
        if len(counted) < quorum:
            raise QuorumError(self._below_quorum(number, len(counted), len(participants), quorum))
        for silo, why in server.left_out.items():
            self._failed(silo, "train", Failure("screened", why))
        counted = [silo for silo in counted if silo not in server.left_out]
        if last:
            conclude(server)  # before the evaluation: results are about the model that is saved
        rows = self._put_by(rows, evaluated)
        if evaluated:
            rows += self._measured("personal", "personalise", self._personalisation(asks) if later else {})
            rows += self._measured("global", "evaluate", self._evaluation())
            rows += self._measured("adapted", "adapt", self._adaptation())
        grouped = self.pool.rows() if evaluated else []
        # a copy: what a listener does with it must not reach the records
        results = RoundResults(*deepcopy((losses, server.weights, tuple(rows), means_of(rows))))
        if evaluated:
            self._tell("evaluated", number, results=results)
        record = {
            "round": number,
            "participants": participants,
            "counted": counted,
            "weights": server.weights,
            "train_loss": losses,
            "shown": shown,
            "exchanges": self._exchanges,
            "failures": self._failures,
            "notes": server.notes,
            "seconds": time.perf_counter() - begun,
        }
        self.history.rows += rows
        self.history.rounds.append(record)
        self.history.groups += grouped
        if self.records:
            self.records.append("metrics", rows)
            if grouped:
                self.records.append("groups", grouped)
            self.records.append("rounds", [record])
            if self.evaluate.keep_local:
                self.records.write_local(number, sent, changes)
        if last or number % self.settings.checkpoint_every == 0:
            self._save(number)
        self._tell("round", number, text="; ".join(server.notes), results=results)

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
            sizes = torch.tensor([float(self.roster[name].train) for name in names])
            chosen = torch.multinomial(sizes, count, generator=stream)
        else:
            chosen = torch.randperm(len(names), generator=stream)[:count]
        return [names[index] for index in sorted(chosen.tolist())]

    def _is_evaluated(self, number: int) -> bool:
        return number == self.server.rounds or number % self.evaluate.every == 0

    def _standing(self, number: int, participants: list[str]) -> set[str]:
        """Who is not asked again before the next evaluation: what such a silo has after this round is its own model
        then, and is measured now, since only the silo has it. One that fails now has no result at that evaluation."""
        if self.server.training.participation == "all":
            return set()
        coming = next(one for one in range(number, self.server.rounds + 1) if self._is_evaluated(one))
        return set(participants).difference(*(self._participants(one) for one in range(number + 1, coming + 1)))

    def _put_by(self, rows: list[dict[str, Any]], evaluated: bool) -> list[dict[str, Any]]:
        """Rows of own models that stand until an evaluation wait for it in the checkpoint; with it they come out, and
        say in which round the model was `made`."""
        memory = self.server.memory
        waiting = memory.get(STANDING, {})
        if not evaluated:
            if rows:
                fresh = {name: [row for row in rows if row["silo"] == name] for name in {row["silo"] for row in rows}}
                memory[STANDING] = waiting | fresh
            return []
        here = {row["silo"] for row in rows}
        found = [
            {**row, "round": self.server.round, "made": row["round"]}
            for name in sorted(waiting)
            if name not in here
            for row in waiting[name]
        ]
        memory.pop(STANDING, None)
        return [*found, *rows]

    # --------------------------------------------------------------------------------------------------- exchanges
    def _exchange(self, kind: str, messages: dict[str, Message]) -> Iterator[Reply]:
        """Ask the engine; count exchanges, bytes and seconds; screen replies; log who failed."""
        begun = time.perf_counter()
        record: dict[str, Any] = {"kind": kind, "asked": len(messages), "answered": 0, "bytes_down": 0, "bytes_up": 0}
        record["bytes_down"] = sum(message.bytes for message in messages.values())
        exchange = Exchange(kind, self.server.round, messages, self._number, self.run_id)
        self._number += 1
        self._tell("asked", self.server.round, text=kind, silos=tuple(messages))
        for reply in screened(kind, messages, _expected(exchange, self.engine.ask(exchange)), self.server):
            answer = reply.answer
            if isinstance(answer, Failure):
                self._failed(reply.silo, kind, answer)
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

    def _failed(self, silo: str, kind: str, failure: Failure) -> None:
        self._failures.append({"silo": silo, "exchange": kind, "kind": failure.kind, "detail": failure.detail})
        self._tell("failed", self.server.round, silo, text=f"{failure.kind}: {failure.detail}")

    def _watched(
        self,
        replies: Iterator[Reply],
        losses: dict[str, float],
        rows: list[dict[str, Any]],
        changes: dict[str, Tensor],
        shown: dict[str, dict[str, Number]],
    ) -> Iterator[Reply]:
        """Note training losses, numbers to be shown, the results of the silos' own models and, where they are kept,
        updates as they pass."""
        for reply in replies:
            if isinstance(reply.answer, Message):
                if self.evaluate.keep_local:
                    changes[reply.silo] = reply.answer.tensors[MODEL].clone()
                losses[reply.silo] = float(reply.answer.numbers["loss"])
                for key in (key for key in reply.answer.numbers if SHOWN in key):
                    shown.setdefault(key.replace(SHOWN, "."), {})[reply.silo] = reply.answer.numbers[key]
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
        return open_evaluation(self.server, self.roster.names, self.roster.unseen_names, self.by_group)

    def _personalisation(self, asks: dict[str, Number]) -> dict[str, Message]:
        return open_personalisation(self.server, self.roster.names, asks)

    def _adaptation(self) -> dict[str, Message]:
        owner = self.server.method.owners("adapt")
        if not owner or ("adapts-once" in owner[0].does and self.server.round < self.server.rounds):
            return {}
        return open_adaptation(self.server, self.roster.unseen_names, self.by_group)

    def _rows(self, name: str, model: str, answer: Message) -> list[dict[str, Any]]:
        self.pool.take(name, model, answer)
        found = []
        for split in ("validation", "test"):
            key = f"{model}.{split}"
            if f"{key}.loss" in answer.numbers:
                found.append(
                    {
                        "round": self.server.round,
                        "silo": name,
                        "domain": self.roster[name].domain,
                        "unseen": name in self.roster.unseen_names,
                        "model": model,
                        "split": split,
                        **row_of(read_measure(answer, key)),
                    }
                )
        return found

    # ------------------------------------------------------------------------------------------------- checkpoints
    def _save(self, number: int) -> None:
        """Silos first: a server's checkpoint stands for a state of which everything is on the disk.

        Where all of it is in memory it is written while the next round goes on.
        """
        self._settle()
        write = self.engine.commit(number)
        records = self.records
        if records is None:
            return
        server = {"vector": self.server.vector, "memory": self.server.memory.copy()}

        def save() -> None:
            if write is not None:
                write()
            records.write_checkpoint(number, server)

        self._saving = number
        if write is None or number == 0:
            save()
            self._settle()
        else:
            self._behind.begin(save)

    def _settle(self) -> None:
        """Wait for the checkpoint that is being written."""
        self._behind.wait()
        number, self._saving = self._saving, None
        if number is not None:
            self._tell("saved", number)

    def _restore(self) -> int:
        """Take up the last checkpoint; returns the number of rounds it holds."""
        saved = self.records.read_checkpoint() if self.records else None
        if saved is None or self.records is None:
            return 0
        number, server = saved
        device = self.server.vector.device
        self.server.vector = server["vector"].to(device)
        self.server.memory = Memory(on_device(server["memory"], device))
        self.engine.restore(number)
        self.history.rows = self.records.cut("metrics", number)
        self.history.rounds = self.records.cut("rounds", number)
        self.history.groups = self.records.cut("groups", number) if self.by_group else []
        return number

    def _below_quorum(self, number: int, counted: int, asked: int, quorum: int) -> str:
        said = [
            f"round {number} stopped: {counted} of {asked} silos gave a usable update, and the quorum is {quorum}",
            *self._reasons(),
        ]
        kinds = {one["kind"] for one in self._failures}
        if self.records and number > 1 and kinds != {DIVERGED}:  # what diverged would diverge again
            said.append("The checkpoint of the round before can be resumed")
        return ". ".join(said) + "."

    def _reasons(self) -> Iterator[str]:
        """Why silos gave no usable update: where training diverged, what helps against that; else the first failure."""
        diverged = [one["silo"] for one in self._failures if one["kind"] == DIVERGED]
        other = next((one for one in self._failures if one["kind"] != DIVERGED), None)
        if diverged:
            places = ", ".join(dict.fromkeys(diverged))
            cure = steadier(self.server.training)
            yield f"Training diverged at {places}: the loss or the model is no longer finite; {cure}"
        if other:
            yield f"First {'other ' if diverged else ''}failure: {other['silo']}, {other['kind']}: {other['detail']}"

    def _tell(
        self,
        kind: str,
        number: int,
        silo: str = "",
        loss: float | None = None,
        text: str = "",
        results: RoundResults | None = None,
        silos: tuple[str, ...] = (),
    ) -> None:
        event = Event(kind, number, self.server.rounds, silo, loss, text, results, silos=silos)
        if self._now:
            self._now(event)
        self.listener(event)


def _expected(exchange: Exchange, replies: Iterator[Reply]) -> Iterator[Reply]:
    """The first reply of each silo that was asked, to this exchange; whatever else arrives is not an answer."""
    open_ = set(exchange.silos)
    for reply in replies:
        if reply.silo in open_ and reply.number == exchange.number:
            open_.remove(reply.silo)
            yield reply
        del reply  # an update is as large as the model
