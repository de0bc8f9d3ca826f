"""The server's end of FLARE: one job is one attempt at a run, which goes on from the run folder's checkpoint."""

from __future__ import annotations

import datetime
import json
import queue
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fairsilo.core.messages import Failure
from fairsilo.deploy.attempts import FAILED, FEW, FINISHED, PAUSED, write_outcome, write_present
from fairsilo.deploy.flare.codec import PING, register
from fairsilo.deploy.flare.kits import members
from fairsilo.deploy.remote import Asked, PauseError
from fairsilo.deploy.serving import TooFewError, serve
from fairsilo.engine.events import Event
from fairsilo.errors import FairsiloError, QuorumError
from fairsilo.report.page import write_report
from fairsilo.tracking import Tracker
from fairsilo.tracking.registry import handed_over

PINGS, PATIENCE = 3, 5.0  # unanswered ones after which a site is lost; seconds between


class AbortedError(Exception):
    """FLARE ends the job."""


class FederationController(Controller):
    """Runs a run folder's rounds over the sites of the job.

    Args:
        run: The name of the run folder, below `runs` of the federation's folder.
    """

    def __init__(self, run: str) -> None:
        super().__init__(task_check_period=0.1)
        self.run_name = run
        self.lost: set[str] = set()

    def start_controller(self, fl_ctx: FLContext) -> None:
        register(Path(fl_ctx.get_workspace().get_root_dir()))

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to let go of."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        self.log_info(fl_ctx, f"a late answer of {client.name} to {task_name} is not counted")

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.CLIENT_DISCONNECTED:
            self.lost.add(fl_ctx.get_prop(FLContextKey.DISCONNECTED_CLIENT_NAME))

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """One attempt; its outcome is written down for whoever supervises the run."""
        torch.set_num_threads(1)
        folder = Path(fl_ctx.get_workspace().get_root_dir()).parent / "runs" / self.run_name
        channel = FlareChannel(self, fl_ctx, abort_signal, folder)

        def told(event: Event) -> None:
            if event.kind in ("note", "failed", "round"):
                self.log_info(fl_ctx, f"round {event.round}: {event.kind} {event.silo} {event.text}")
            told = {"kind": event.kind, "round": event.round, "silo": event.silo, "text": event.text}
            told |= {"time": datetime.datetime.now().isoformat(" ", "seconds")}
            with (folder / "events.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")

        try:
            serve(folder, channel, channel.sites, [told, *self._trackers(fl_ctx)], write_report)
            write_outcome(folder, FINISHED)
        except PauseError as problem:
            write_outcome(folder, PAUSED, str(problem))
        except (TooFewError, QuorumError) as problem:
            write_outcome(folder, FEW, str(problem))
        except FairsiloError as problem:
            write_outcome(folder, FAILED, str(problem))
            self.log_error(fl_ctx, str(problem))

    def _trackers(self, fl_ctx: FLContext) -> list[Tracker]:
        """Those that `fairsilo federation start` was given; none of them may keep a run from going on."""
        try:
            return handed_over()
        except Exception as problem:  # noqa: BLE001 - whatever is odd about them
            self.log_error(fl_ctx, f"the run is not tracked: {problem}")
            return []


class FlareChannel:
    """Steps as FLARE's tasks: sites fetch them, work on one at a time and hand the answer in."""

    def __init__(self, controller: FederationController, fl_ctx: FLContext, abort: Signal, folder: Path) -> None:
        self.controller, self.context, self.abort, self.folder = controller, fl_ctx, abort, folder
        self.engine: Any = fl_ctx.get_engine()
        self.sites: tuple[str, ...] = tuple(sorted(client.name for client in self.engine.get_clients()))
        self._note_present()

    def _drop_removed(self) -> None:
        """FLARE does not tell a job under way that the administrator removed a site."""
        self.controller.lost |= set(self.sites) - set(members(self.folder.parents[1]))

    def _note_present(self) -> None:
        self._noted = frozenset(self.controller.lost)
        write_present(self.folder, set(self.sites) - self._noted)

    def call(self, step: str, asked: Mapping[str, Asked], seconds: float | None) -> Iterator[tuple[str, object]]:
        arrived: queue.SimpleQueue[tuple[str, object]] = queue.SimpleQueue()
        tasks: dict[str, tuple[str, Task | None]] = {}
        self._drop_removed()
        for key, (site, content) in asked.items():
            if site not in self.sites or site in self.controller.lost:
                arrived.put((key, Failure("lost", "its site is not connected")))
                tasks[key] = (site, None)
                continue
            task = Task(step, Shareable(content), result_received_cb=partial(_received, arrived, key))
            tasks[key] = (site, task)
            self.controller.send(task=task, fl_ctx=self.context, targets=[site])
        end = None if seconds is None else time.monotonic() + seconds
        asked_at, missed = time.monotonic(), dict.fromkeys(self.sites, 0)
        try:
            while tasks:
                try:
                    found = [arrived.get(timeout=0.05)]
                except queue.Empty:
                    if self.abort.triggered:
                        raise AbortedError from None
                    if self._noted != self.controller.lost:
                        self._note_present()
                    now = time.monotonic()
                    if now - asked_at > PATIENCE:
                        self._drop_removed()
                        self._ping({site for site, _ in tasks.values()}, missed)
                        asked_at = now
                    yield from self._given_up(tasks, end is not None and now > end, seconds)
                    continue
                if tasks.pop(found[0][0], None) is not None:
                    yield found.pop()  # as large as a model: whoever takes it holds it alone
        finally:
            for _, task in tasks.values():
                if task is not None:
                    self.controller.cancel_task(task)

    def _given_up(
        self, tasks: dict[str, tuple[str, Task | None]], overdue: bool, seconds: float | None
    ) -> Iterator[tuple[str, object]]:
        for key, (site, task) in list(tasks.items()):
            if site in self.controller.lost or overdue:
                self.controller.cancel_task(task)
                del tasks[key]
                detail = f"no answer within {seconds:g} s" if overdue else "its site is not connected"
                yield key, Failure("timeout" if overdue else "lost", detail)

    def _ping(self, sites: set[str], missed: dict[str, int]) -> None:
        """FLARE does not tell a job that a site came back without it: ask the sites' job processes themselves."""
        targets = sorted(sites - self.controller.lost)
        if not targets:
            return
        found = self.engine.send_aux_request(
            targets=targets, topic=PING, request=Shareable(), timeout=3.0, fl_ctx=self.context
        )
        for site in targets:
            reply = found.get(site)
            alive = reply is not None and reply.get_return_code() == ReturnCode.OK
            missed[site] = 0 if alive else missed[site] + 1
            if missed[site] >= PINGS:
                self.controller.lost.add(site)


def _received(
    arrived: queue.SimpleQueue[tuple[str, object]], key: str, client_task: ClientTask, fl_ctx: FLContext
) -> None:
    result, client_task.result = client_task.result, None
    client_task.task.data = Shareable()  # the answer is here: what was asked need not be kept for sending it again
    ok = isinstance(result, Shareable) and result.get_return_code() == ReturnCode.OK
    arrived.put((key, dict(result) if ok else Failure("error", "its step failed; the site's own log says more")))
