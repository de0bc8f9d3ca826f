"""Silos in worker processes, one thread each: the same numbers as `sequential`, on all cores.

Data lie in shared memory; models and memories travel through it. Workers keep nothing between requests (what a silo
remembers comes with the request and goes back with the answer), so that a worker that dies takes only the answer it
was working on with it: the silo is counted as lost for this exchange and a new worker takes the place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor

from fairsilo.core.messages import Failure, Message, Reply, Request
from fairsilo.core.silo import Memory
from fairsilo.data.federation import Federation
from fairsilo.engine.host import Answer, Blueprint, Host

_READY = "ready"


class Worker:
    """One child process and the pipe to it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads in an unknown state
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_serve, args=(far,), daemon=True)
        self.process.start()
        far.close()
        self.plan: object = None  # what it was last set up with
        self.silo: str | None = None
        self.begun = 0.0
        self.ready = False  # it has started: only then does a silo's clock run

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Pool:
    """Worker processes that serve one run after another: starting them costs seconds, setting them up does not."""

    def __init__(self, count: int) -> None:
        self.workers = [Worker() for _ in range(count)]

    def replace(self, worker: Worker) -> Worker:
        worker.end()
        fresh = Worker()
        self.workers[self.workers.index(worker)] = fresh
        return fresh

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.workers = []


class Processes:
    """Hands silos to whichever worker is free; yields the answers in name order all the same."""

    def __init__(
        self,
        blueprint: Blueprint,
        federation: Federation,
        pool: Pool,
        *,
        timeout: float | None = None,
        strict: bool = False,
    ) -> None:
        federation.share_memory()
        self.plan = (blueprint, federation, strict)
        self.pool = pool
        self.timeout = timeout
        self.strict = strict
        self.memory: dict[str, Memory] = {}
        self.personal: dict[tuple[str, str], Tensor] = {}

    def ask(self, kind: str, round_: int, messages: dict[str, Message]) -> Iterator[Reply]:
        names = sorted(messages)
        waiting, ready = deque(names), dict[str, Reply]()
        try:
            for name in names:
                while name not in ready:
                    self._hand_out(kind, round_, messages, waiting, ready)
                    self._take_in(ready)
                yield ready.pop(name)
        finally:
            for worker in [worker for worker in self.pool.workers if worker.silo is not None]:
                self.pool.replace(worker)  # the caller gave up: what is under way must not answer the next question

    def _hand_out(
        self,
        kind: str,
        round_: int,
        messages: dict[str, Message],
        waiting: deque[str],
        ready: dict[str, Reply],
    ) -> None:
        for worker in list(self.pool.workers):
            if worker.silo is not None or not waiting:
                continue
            name = waiting.popleft()
            worker.silo, worker.begun = name, time.perf_counter()
            setup = None if worker.plan is self.plan else self.plan
            request = Request(kind, round_, messages[name])
            try:
                worker.pipe.send((setup, name, request, self.memory.get(name, Memory())))
                worker.plan = self.plan
            except (BrokenPipeError, ConnectionResetError):
                self._lost(worker, ready)

    def _take_in(self, ready: dict[str, Reply]) -> None:
        busy = {worker.pipe: worker for worker in self.pool.workers if worker.silo is not None}
        if not busy:
            return
        for pipe in wait(list(busy), self._patience(busy.values())):
            assert isinstance(pipe, Connection)
            self._receive(busy[pipe], ready)
        now = time.perf_counter()
        for worker in busy.values():
            overdue = self.timeout and worker.ready and now - worker.begun > self.timeout
            if overdue and worker.silo is not None:
                detail = f"no answer within {self.timeout:g} s"
                ready[worker.silo] = Reply(worker.silo, Failure("timeout", detail), now - worker.begun)
                self.pool.replace(worker)

    def _patience(self, busy: Iterable[Worker]) -> float | None:
        """Seconds until the first answer under way is overdue."""
        if not self.timeout:
            return None
        begun = [worker.begun for worker in busy if worker.ready]
        return max(0.0, min(begun) + self.timeout - time.perf_counter()) + 0.01 if begun else None

    def _receive(self, worker: Worker, ready: dict[str, Reply]) -> None:
        try:
            received = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._lost(worker, ready)
            return
        if received == _READY:
            worker.ready, worker.begun = True, time.perf_counter()
            return
        answer: Answer = _owned(received)
        name = str(worker.silo)
        if answer.memory:
            self.memory[name] = answer.memory
        self.personal |= {(which, name): vector for which, vector in (answer.saved or {}).items()}
        if self.strict and isinstance(answer.message, Failure):
            worker.silo = None
            raise RuntimeError(f"silo {name}: {answer.message.detail}")
        ready[name] = Reply(name, answer.message, time.perf_counter() - worker.begun)
        worker.silo = None

    def _lost(self, worker: Worker, ready: dict[str, Reply]) -> None:
        name = str(worker.silo)
        worker.process.join()
        detail = f"its process ended with exit code {worker.process.exitcode}"
        ready[name] = Reply(name, Failure("lost", detail), time.perf_counter() - worker.begun)
        self.pool.replace(worker)

    def close(self) -> None:
        """The pool belongs to the caller."""


def _serve(pipe: Connection) -> None:
    """The worker: set up when asked, answer requests, end when the pipe closes."""
    host: Host | None = None
    pipe.send(_READY)
    while True:
        try:
            setup, name, request, memory = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if setup is not None:
            blueprint, federation, _ = setup
            torch.set_num_threads(blueprint.threads)
            host = Host(blueprint, federation)
        assert host is not None
        pipe.send(host.answer(name, request, _owned(memory)))


def _owned(value: Any) -> Any:
    """Tensors copied out of shared memory, which is scarce, into ordinary memory."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Message):
        return Message({key: tensor.clone() for key, tensor in value.tensors.items()}, value.numbers)
    if isinstance(value, Memory):
        return Memory({key: _owned(item) for key, item in value.items()})
    if isinstance(value, Answer):
        return Answer(*(_owned(item) for item in value))
    if isinstance(value, dict):
        return {key: _owned(item) for key, item in value.items()}
    return value
