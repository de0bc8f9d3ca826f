"""Silos in worker processes, one thread each: the same numbers as `sequential`, on all cores.

Data lie in shared memory; models and memories travel through it. Workers keep nothing between requests (what a silo
remembers comes with the request and goes back with the answer), so that a worker that dies takes only the answer it
was working on with it: the silo is counted as lost for this exchange and a new worker takes the place.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import time
import types
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor

from fairsilo.core.messages import Exchange, Failure, Message, Reply
from fairsilo.core.silo import Memory
from fairsilo.data.federation import Federation
from fairsilo.engine.allocator import keep_freed_blocks
from fairsilo.engine.blueprint import Blueprint, UnnamedError
from fairsilo.engine.host import Answer, Host
from fairsilo.engine.scheduling import Expected, order
from fairsilo.engine.simulation import Simulation
from fairsilo.errors import FairsiloError, reason_of

_READY = "ready"
_PATIENCE = 2.0  # seconds for a worker to read the message it is at


class CannotTravelError(FairsiloError):
    """Something in a plan cannot be sent to another process."""


class Worker:
    """One child process and the pipe to it."""

    def __init__(self, threads: int = 1) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads in an unknown state
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_serve, args=(far,), daemon=True)
        resource_tracker.ensure_running()  # the first start of a worker starts it, and would unblock the signal again
        # Ctrl-C never reaches a worker, not even while it imports torch: what is blocked here is blocked in the child
        with _without_main(), _deaf_to(signal.SIGINT), _at_threads(threads):
            self.process.start()
        far.close()
        self.setup: object = None  # what it was last set up with
        self.silo: str | None = None
        self.begun = 0.0
        self.ready = False  # started and set up: only then does a silo's clock run

    def end(self) -> None:
        """In the middle of its work, but not of a message: tensors are fetched from this process while one is read,
        and a thread of Python's prints a traceback here when the reader is gone."""
        self.process.terminate()
        self.pipe.close()
        self.process.join(_PATIENCE)
        self.process.kill()
        self.process.join()


class Pool:
    """Worker processes that serve one run after another: starting them costs seconds, setting them up does not."""

    def __init__(self, count: int, threads: int = 1) -> None:
        self.threads = threads
        self.workers = [Worker(threads) for _ in range(count)]

    def replace(self, worker: Worker) -> Worker:
        worker.end()
        fresh = Worker(self.threads)
        self.workers[self.workers.index(worker)] = fresh
        return fresh

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.workers = []


class Processes(Simulation):
    """Hands silos to whichever worker is free, the longest first where that saves time; yields the answers in name
    order all the same."""

    def __init__(
        self,
        blueprint: Blueprint,
        federation: Federation,
        pool: Pool,
        *,
        timeout: float | None = None,
        strict: bool = False,
        folder: Path | None = None,
    ) -> None:
        super().__init__(blueprint, (*federation.names, *federation.unseen_names), folder)
        federation.share_memory()
        self.setup = (packed(blueprint), federation)
        self.pool = pool
        self.timeout = timeout
        self.strict = strict
        everybody = (*federation.silos, *federation.unseen)
        self.expected = Expected({silo.name: len(silo.train) or len(silo.test) for silo in everybody})

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        times = self.expected.of(exchange.kind, exchange.silos)
        waiting, ready = deque(order(exchange.silos, times, len(self.pool.workers))), dict[str, Reply]()
        try:
            for name in exchange.silos:
                while name not in ready:
                    self._hand_out(exchange, waiting, ready)
                    self._take_in(exchange, ready)
                yield ready.pop(name)
        finally:
            for worker in [worker for worker in self.pool.workers if worker.silo is not None]:
                self.pool.replace(worker)  # the caller gave up: what is under way must not answer the next question

    def _hand_out(self, exchange: Exchange, waiting: deque[str], ready: dict[str, Reply]) -> None:
        for worker in list(self.pool.workers):
            if worker.silo is not None or not waiting:
                continue
            name = waiting.popleft()
            worker.silo, worker.begun = name, time.perf_counter()
            setup = None if worker.setup is self.setup else self.setup
            worker.ready = worker.ready and setup is None
            try:
                worker.pipe.send((setup, name, exchange.request(name), self.stores[name].memory))
                worker.setup = self.setup
            except (BrokenPipeError, ConnectionResetError):
                self._lost(worker, exchange, ready)

    def _take_in(self, exchange: Exchange, ready: dict[str, Reply]) -> None:
        busy = {worker.pipe: worker for worker in self.pool.workers if worker.silo is not None}
        if not busy:
            return
        for pipe in wait(list(busy), self._patience(busy.values())):
            assert isinstance(pipe, Connection)
            self._receive(busy[pipe], exchange, ready)
        now = time.perf_counter()
        for worker in busy.values():
            overdue = self.timeout and worker.ready and now - worker.begun > self.timeout
            if overdue and worker.silo is not None:
                detail = f"no answer within {self.timeout:g} s"
                failure = Failure("timeout", detail)
                ready[worker.silo] = Reply(worker.silo, failure, now - worker.begun, exchange.number)
                self.pool.replace(worker)

    def _patience(self, busy: Iterable[Worker]) -> float | None:
        """Seconds until the first answer under way is overdue."""
        if not self.timeout:
            return None
        begun = [worker.begun for worker in busy if worker.ready]
        return max(0.0, min(begun) + self.timeout - time.perf_counter()) + 0.01 if begun else None

    def _receive(self, worker: Worker, exchange: Exchange, ready: dict[str, Reply]) -> None:
        try:
            received = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._lost(worker, exchange, ready)
            return
        if received == _READY:
            worker.ready, worker.begun = True, time.perf_counter()
            return
        answer: Answer = _owned(received)
        name = str(worker.silo)
        self.accept(name, exchange.request(name), answer)
        if self.strict and isinstance(answer.message, Failure):
            worker.silo = None
            raise RuntimeError(f"silo {name}: {answer.message.detail}")
        seconds = time.perf_counter() - worker.begun
        self.expected.note(exchange.kind, name, seconds)
        ready[name] = Reply(name, answer.message, seconds, exchange.number)
        worker.silo = None

    def _lost(self, worker: Worker, exchange: Exchange, ready: dict[str, Reply]) -> None:
        name = str(worker.silo)
        worker.process.join()
        failure = Failure("lost", f"its process ended with exit code {worker.process.exitcode}")
        ready[name] = Reply(name, failure, time.perf_counter() - worker.begun, exchange.number)
        self.pool.replace(worker)

    def close(self) -> None:
        """The pool belongs to the caller."""


# -------------------------------------------------------------------------------------------------------- the plan
def packed(plan: Blueprint) -> str | bytes:
    """The plan as text where everything in it has a name, else its objects, also those of a script or a notebook.

    Raises:
        CannotTravelError: Something in it cannot leave this process.
    """
    try:
        return plan.as_text()
    except UnnamedError:
        pass
    try:
        return _pickler().dumps(plan)  # type: ignore[no-any-return]
    except Exception as problem:  # a user's object may raise anything when it is asked to be copied
        raise CannotTravelError(str(problem)) from problem


def _unpacked(plan: str | bytes) -> Blueprint:
    if isinstance(plan, str):
        return Blueprint.from_text(plan)
    return _pickler().loads(plan)  # type: ignore[no-any-return]


def _pickler() -> Any:
    """cloudpickle, which takes functions and classes of `__main__` along; else what Python brings."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return pickle


# ------------------------------------------------------------------------------------------------------ the worker
@contextmanager
def _without_main() -> Iterator[None]:
    """Start a process that does not run the caller's script again.

    Python's way of starting a worker imports the main script in it, which trains once more unless the script guards
    against it. Nothing in a worker needs the script: what the plan needs of it travels with the plan.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _deaf_to(number: signal.Signals) -> Iterator[None]:
    """A signal waits until this is over, where the system can do that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _at_threads(count: int) -> Iterator[None]:
    """Start a process whose libraries find the number of threads in its environment: oneDNN's kernels for ARM look
    there, and not at what torch is told later."""
    name = "OMP_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = str(count)
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _serve(pipe: Connection) -> None:
    """The worker: set up when asked, answer requests, end when the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where the signal could not be blocked before
    # Python calls this here only in the thread that lends an answer's tensors, when an interrupted parent leaves them
    sys.excepthook = lambda *_: None
    keep_freed_blocks()
    with suppress(EOFError, ConnectionError):
        _answer(pipe)


def _answer(pipe: Connection) -> NoReturn:
    host: Host | None = None
    arithmetic = ExitStack()  # as the plan has it
    pipe.send(_READY)
    while True:
        with _deaf_to(signal.SIGTERM):
            setup, name, request, memory = pipe.recv()
        try:
            if setup is not None:
                host = None
                plan = _unpacked(setup[0])
                torch.set_num_threads(plan.threads)
                arithmetic.close()
                arithmetic.enter_context(plan.arithmetic.set())
                host = Host(plan, setup[1])
                pipe.send(_READY)
        except Exception as problem:  # noqa: BLE001 - whatever a user's model raises is this silo's failure
            pipe.send(Answer(Failure("error", reason_of(problem))))
            continue
        if host is None:
            pipe.send(Answer(Failure("error", "the worker could not be set up")))
            continue
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
