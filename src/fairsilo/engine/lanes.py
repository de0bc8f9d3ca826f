"""Silos in threads on one GPU, each lane with a network of its own: several train at once.

A lane's kernels are on a stream of its own, and its steps are CUDA graphs: recorded when the second of a kind is made,
then replayed with one call for all of a step's kernels (`core/recording.py`). Data of all silos are on the device.
Nothing about the numbers depends on which lane a silo gets.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.messages import Exchange, Message, Reply, Request
from fairsilo.core.method import Method
from fairsilo.core.recording import Recorded, Recordings
from fairsilo.core.silo import Memory
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.host import Answer, Host
from fairsilo.engine.scheduling import Expected, order
from fairsilo.engine.simulation import Simulation
from fairsilo.errors import FairsiloError, reason_of

LANES = 4  # silos at once: with more, Python's own work in the threads is what counts (benchmarks/README.md)
STRIDE = 8  # steps from one mark on a lane's stream to the next; a lane is two marks ahead of the GPU at most
OWN = "fairsilo"  # the package whose parts the law of recordings tries


class Graphs(Recordings):
    """Steps as CUDA graphs; what cannot be captured is made as it is."""

    capturing = threading.Lock()  # two at once would allocate into each other's memory

    def __init__(self) -> None:
        super().__init__()
        self.pool = torch.cuda.graph_pool_handle()
        self.replayed = 0
        self.marks: deque[torch.cuda.Event] = deque()

    def clear(self) -> None:
        super().clear()
        self._let_go()

    def forget(self) -> None:
        super().forget()
        self._let_go()

    def _let_go(self) -> None:
        """A pool of memory ends with the last graph that was recorded to it."""
        self.pool = torch.cuda.graph_pool_handle()

    def record(self, step: Callable[[], Tensor]) -> Recorded | None:
        graph = torch.cuda.CUDAGraph()
        with self.capturing:
            try:
                with _no_collection():
                    result = self._capture(graph, step)
            except Exception as problem:
                self._let_go()  # the pool still counts as recorded to
                self.failed(problem)
                if not isinstance(problem, RuntimeError):
                    raise
                return None
        graph.replay()
        return Recorded(result, partial(self._replay, graph), step)

    def _replay(self, graph: torch.cuda.CUDAGraph) -> None:
        """A thread whose stream is full, or that waits for its end, turns a core for nothing; at a mark it sleeps."""
        graph.replay()
        self.replayed += 1
        if self.replayed % STRIDE == 0:
            self.marks.append(_mark())
            if len(self.marks) > 2:
                self.marks.popleft().synchronize()

    def _capture(self, graph: torch.cuda.CUDAGraph, step: Callable[[], Tensor]) -> Tensor:
        torch.cuda.current_stream().synchronize()
        graph.capture_begin(pool=self.pool, capture_error_mode="relaxed")
        try:
            result = step()
        except BaseException:
            with suppress(RuntimeError):  # that the capture failed, which the first exception says better
                graph.capture_end()
            raise
        graph.capture_end()
        return result


def _mark() -> torch.cuda.Event:
    """Here on the current stream; who waits for it sleeps."""
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage may hold tensors and graphs, whose end a capture does not survive."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


Since = torch.cuda.Event | None  # when all that the server sent was there
Promised: TypeAlias = "Future[tuple[Answer, float]]"  # an answer, and the seconds that it took


class Lane:
    """One network, the stream its kernels are on (on a CPU, for tests, there is none), and the thread that serves it.

    It is always the same thread: the libraries of a GPU set themselves up for each, which a capture does not survive.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.thread = ThreadPoolExecutor(1, "lane")
        device = host.model.parameters.device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def answer(self, name: str, request: Request, memory: Memory, since: Since) -> tuple[Answer, float]:
        """A silo's answer, complete on the device, and the seconds it took."""
        begun = time.perf_counter()
        # a backward pass stays in this thread: lanes would share the one that torch has for a GPU, and cuDNN's handle
        # there with the stream of a lane that captures
        with torch.autograd.set_multithreading_enabled(False):
            return self._answer(name, request, memory, since), time.perf_counter() - begun

    def _answer(self, name: str, request: Request, memory: Memory, since: Since) -> Answer:
        if self.stream is None or since is None:
            return self.host.answer(name, request, memory)
        home = torch.cuda.default_stream(self.stream.device)
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(since)
            answer = self.host.answer(name, request, memory)
            for tensor in _tensors(list(answer)):
                if tensor.is_cuda:
                    tensor.record_stream(home)  # the server reads it there, and may let go of it before that is done
            _mark().synchronize()
        return answer


class Lanes(Simulation):
    """Hands silos to whichever lane is free; yields the answers in name order.

    Args:
        plan: What every silo must know; on a GPU.
        federation: Data and names.
        count: How many silos are trained at once.
        strict: Stop at the first silo that fails.
        folder: Of the run.
        say: Told once of what is slower than it could be.
        recordings: How steps are recorded on this device.
    """

    def __init__(
        self,
        plan: Blueprint,
        federation: Federation,
        count: int,
        *,
        strict: bool = False,
        folder: Path | None = None,
        say: Callable[[str], object] = str,
        recordings: Callable[[], Recordings] = Graphs,
    ) -> None:
        super().__init__(plan, (*federation.names, *federation.unseen_names), folder)
        said: set[str] = set()

        def once(text: str) -> None:
            if text not in said:
                said.add(text)
                say(text)

        self.say = once
        self.recorders: list[Recordings] = []
        first = Host(plan, federation, strict)
        hosts = [first, *(Host(plan, first.data, strict) for _ in range(count - 1))]
        why = why_made(plan.method)
        if why:
            once(f"steps are made one by one, not recorded: {why}")
        for host in hosts:
            host.measured = first.measured
            if not why:
                host.recorder = recorder = recordings()
                recorder.failed = self._failed
                self.recorders.append(recorder)
        for name in (*federation.names, *federation.unseen_names):
            _ = first.data[name]  # on the device before threads ask for it
        self.lanes = [Lane(host) for host in hosts]
        self.draws: dict[str, bool] = {}  # kind of exchange -> whether silos draw from torch's own generators
        everybody = (*federation.silos, *federation.unseen)
        self.expected = Expected({silo.name: len(silo.train) or len(silo.test) for silo in everybody})
        self.captured = 0

    def ask(self, exchange: Exchange) -> Iterator[Reply]:
        """Answers in name order. Silos that draw from torch's own generators, which threads share, go one by one."""
        since = torch.cuda.current_stream().record_event() if self.lanes[0].stream else None
        kind, silos = exchange.kind, list(exchange.silos)
        while silos and (len(self.lanes) == 1 or self.draws.get(kind, True)):
            yield self._reply(exchange, silos[0], self._watched(exchange, silos[0], since))
            del silos[0]
        if not silos:
            self._let_go()
            return
        before = _states()
        answers: dict[str, Promised] = {name: Future() for name in silos}
        hurry = order(silos, self.expected.of(kind, silos), len(self.lanes))
        waiting = deque((name, answers[name]) for name in hurry)
        under_way = [lane.thread.submit(self._serve, lane, exchange, since, waiting) for lane in self.lanes]
        try:
            for name in silos:
                with streams.lent():
                    found = answers.pop(name).result()
                reply = self._reply(exchange, name, found)
                mine = _states()
                yield reply
                del found, reply
                if _states() != mine:  # the caller drew
                    before = _states()
        finally:
            waiting.clear()  # where the caller gave up
            with streams.lent():
                for one in under_way:
                    one.result()
            self._let_go()
        if _states() != before:
            raise FairsiloError(
                f"silos drew from torch's own random numbers in an exchange of kind {kind} where the first had not; "
                "set engine.lanes=1"
            )

    def _let_go(self) -> None:
        """A step that was recorded has memory of its own: what it took when it was first made is for others."""
        captured = sum(recorder.captured for recorder in self.recorders)
        if captured > self.captured:
            self.captured = captured
            torch.cuda.empty_cache()

    def _serve(self, lane: Lane, exchange: Exchange, since: Since, waiting: deque[tuple[str, Promised]]) -> None:
        """In a lane's own thread: answer for one silo after another while some wait."""
        lane.host.ambient = lambda *_: nullcontext()
        while True:
            try:
                name, promised = waiting.popleft()
            except IndexError:
                return
            try:
                found = lane.answer(name, exchange.request(name), self.stores[name].memory, since)
            except BaseException as problem:  # noqa: BLE001 - raised where the answer is taken
                promised.set_exception(problem)
            else:
                promised.set_result(found)

    def _reply(self, exchange: Exchange, name: str, found: tuple[Answer, float]) -> Reply:
        answer, seconds = found
        self.accept(name, exchange.request(name), answer)
        self.expected.note(exchange.kind, name, seconds)
        return Reply(name, answer.message, seconds, exchange.number)

    def _watched(self, exchange: Exchange, name: str, since: Since) -> tuple[Answer, float]:
        """An answer by itself, from which it is learned whether silos draw."""
        lane, drew = self.lanes[0], [False]

        @contextmanager
        def watching(seed: int, *purpose: object) -> Iterator[None]:
            with streams.ambient(seed, *purpose):
                before = _states()
                yield
                drew[0] = _states() != before

        lane.host.ambient = watching
        request, memory = exchange.request(name), self.stores[name].memory
        with streams.lent():
            found = lane.thread.submit(lane.answer, name, request, memory, since).result()
        if isinstance(found[0].message, Message):  # one that failed tells nothing
            self.draws[exchange.kind] = self.draws.get(exchange.kind, False) or drew[0]
        if drew[0] and len(self.lanes) > 1:
            why = "they draw from torch's own generators (as dropout does)"
            self.say(f"silos {exchange.kind} one after the other: {why}")
        return found

    def _failed(self, problem: Exception) -> None:
        """After a capture that failed torch's generators still count as part of it: they get states of their own, which
        graphs that were captured before do not know."""
        self.say(f"some steps are made one by one: a GPU cannot record them ({reason_of(problem).splitlines()[0]})")
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        for recorder in self.recorders:
            recorder.forget()
        for one in torch.cuda.default_generators:
            one.graphsafe_set_state(one.clone_state())

    def close(self) -> None:
        for lane in self.lanes:
            lane.thread.shutdown()
        for recorder in self.recorders:
            recorder.clear()  # graphs hold memory of the GPU


def why_made(method: Method) -> str:
    """Why the steps of a method cannot be recorded; empty where they can."""
    for part in method.parts:
        if "made-steps" in part.does:
            return f"those of {part.name} cannot be"
        if type(part).__module__.partition(".")[0] != OWN and not part.recordable:
            return f"{part.name} does not say that they can be (`recordable`)"
    return ""


def _states() -> list[Any]:
    """Where torch's own generators are."""
    with streams.alone:
        gpus = [(one.initial_seed(), one.get_offset()) for one in torch.cuda.default_generators]
        return [bytes(torch.get_rng_state().numpy()), *gpus]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Message):
        yield from value.tensors.values()
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
