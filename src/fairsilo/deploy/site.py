"""A site: reads its samples, answers what the server asks, keeps what its silos remember. The server sees none of it.

What goes wrong here is told to the server by one word of `REASONS`; the sentence, which may quote a path or a label,
stays in the site's own log.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fairsilo import __version__
from fairsilo.core.disk import numbers
from fairsilo.core.messages import Failure
from fairsilo.core.samples import SiloData
from fairsilo.core.screening import DIVERGED
from fairsilo.data.federation import member_of
from fairsilo.data.groups import told_of
from fairsilo.deploy import wire
from fairsilo.deploy.brief import Brief
from fairsilo.deploy.reading import read_silo
from fairsilo.deploy.settings import EVALUATES, SiteSettings
from fairsilo.deploy.vault import Credentials, SiteVault
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.host import Host
from fairsilo.engine.silo_store import SiloStore
from fairsilo.errors import FairsiloError
from fairsilo.methods.pieces import references
from fairsilo.models.described import names_code
from fairsilo.tasks.registry import names_code as task_names_code
from fairsilo.tasks.registry import task_of

log = logging.getLogger("fairsilo.site")

VERSION, DATA, CODE, POLICY, DEVICE, MODEL = "version", "data", "code", "policy", "device", "model"
STATE, FORM, ERROR = "state", "form", "error"
REASONS = {
    VERSION: "it has another version of fairsilo",
    DATA: "it cannot read its data as the run wants them",
    CODE: "the run names code of a package that it does not trust",
    POLICY: "the run's method lacks what it requires",
    DEVICE: "it does not find the GPU that it is set to use",
    MODEL: "the run's plan cannot be built there",
    STATE: "what its silos kept does not fit the run's checkpoint",
    FORM: "it could not make sense of what it was asked",
    DIVERGED: "its local training diverged",
    ERROR: "its step failed",
}
FAILED = "failed"  # the key of the one word
VAULT = ".vault"  # the folder of what silos settled and wrote down, beside those of its runs
PATIENCE = 60.0  # seconds for which a process that is being replaced may still hold the state


class RefusalError(Exception):
    """Why a site does not do what it is asked: a word for the server, and a sentence for itself."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Site:
    """Answers the server's steps, one at a time, each as often as it is asked.

    Args:
        settings: What `site.yaml` says.
        credentials: The site's certificate, with which it signs what other sites must believe.
    """

    def __init__(self, settings: SiteSettings, credentials: Credentials | None = None) -> None:
        self.settings, self.credentials = settings, credentials
        self.state = Path(settings.machine.state)
        self.data: dict[str, SiloData] = {}
        self.stores: dict[str, SiloStore] = {}
        self.host: Host | None = None
        self._read: Brief | None = None
        self._begun: tuple[str, str] | None = None  # run and plan
        self._lock: FileLock | None = None
        self._switches = ExitStack()  # of the run's arithmetic
        self._steps: dict[str, Callable[[object], wire.Payload]] = {
            "join": self.join,
            "begin": self.begin,
            "ask": self.ask,
            "commit": self.commit,
            "restore": self.restore,
        }

    def answer(self, step: str, content: object) -> wire.Payload:
        """What goes back to the server, whatever happens here."""
        try:
            if step not in self._steps:
                raise RefusalError(FORM, f"there is no step {step!r}")
            return self._steps[step](content)
        except RefusalError as problem:
            log.error("%s: %s", step, problem)
            return wire.noted({FAILED: problem.reason})
        except wire.WireError as problem:
            log.error("%s: %s", step, problem)
            return wire.noted({FAILED: FORM})
        except Exception:
            log.exception("%s", step)
            return wire.noted({FAILED: ERROR})

    # ----------------------------------------------------------------------------------------------------- before a run
    def join(self, content: object) -> wire.Payload:
        """Read the samples; say how many there are, of what shape, and of which classes."""
        try:
            told = wire.note_in(content)
            version, brief = str(told["version"]), Brief.from_dict(told)
        except (KeyError, TypeError) as problem:
            raise RefusalError(FORM, f"the brief lacks {problem}") from problem
        if version != __version__:
            raise RefusalError(VERSION, f"the server has fairsilo {version}, and this site {__version__}")
        if self._read != brief:
            try:
                allowed = self.settings.machine.groups or ()
                found = {one.name: read_silo(one, brief, allowed) for one in self.settings.silos}
            except (FairsiloError, OSError) as problem:
                raise RefusalError(DATA, str(problem)) from problem
            self.data, self._read, self.host = {name: data for name, (data, _) in found.items()}, brief, None
            self._tasks = {name: task for name, (_, task) in found.items()}
        return wire.noted({"version": __version__, "silos": [self._said(name) for name in self.data]})

    def _said(self, name: str) -> dict[str, Any]:
        """All that is said of a silo before a run."""
        assert self._read is not None
        silo, task_name = self.data[name], self._tasks[name]
        member = member_of(silo, task_of(task_name, len(self._read.classes)))
        sample = silo.train if len(silo.train) else silo.test
        role = next(one.role for one in self.settings.silos if one.name == name)
        return {
            **dataclasses.asdict(member),
            "evaluates": role == EVALUATES,
            "task": task_name,
            "shape": list(sample.shape),
            "dtype": str(sample.dtype).removeprefix("torch."),
            "target": list(sample.targets.shape[1:]),
            "target_dtype": str(sample.targets.dtype).removeprefix("torch."),
            "groups": told_of(silo.test, self._read.groups),
        }

    def begin(self, content: object) -> wire.Payload:
        """Build the networks of a run and open what its silos kept of it."""
        told = wire.note_in(content)
        run, text = str(told.get("run", "")), str(told.get("plan", ""))
        if not run.isalnum():
            raise RefusalError(FORM, "the run has no name of letters and digits")
        if self._read is None:
            raise RefusalError(FORM, "begin came before join")
        if self._begun != (run, text) or self.host is None:
            self._refuse_code(text)
            machine, device = self.settings.machine, self._device()
            try:
                plan = Blueprint.from_text(text)
                self._refuse_unprotected(plan)
                plan = dataclasses.replace(plan, device=device, threads=machine.threads)
                self._switches.close()
                self._switches.enter_context(plan.arithmetic.set())
                vaults = {name: SiteVault(self.state / VAULT, run, name, self.credentials) for name in self.data}
                self.host = Host(plan, self.data, vaults=vaults)
            except (FairsiloError, ValueError, TypeError, KeyError) as problem:
                raise RefusalError(MODEL, str(problem)) from problem
            self._open(run, told.get("fresh") is True, device)
            self._begun = (run, text)
        return wire.noted({})

    def _refuse_unprotected(self, plan: Blueprint) -> None:
        """The server decides what a run is; a site decides what it takes no part without."""
        there = {part.name for part in plan.method.parts}
        missing = [name for name in self.settings.machine.require or () if name not in there]
        if missing:
            raise RefusalError(POLICY, f"{plan.method.name} is without {', '.join(missing)}, which site.yaml requires")

    def _device(self) -> str:
        try:
            return self.settings.machine.place
        except FairsiloError as problem:
            raise RefusalError(DEVICE, str(problem)) from problem

    def _refuse_code(self, text: str) -> None:
        """Code is imported only from packages that the site's own file trusts."""
        try:
            told: Mapping[str, Any] = json.loads(text)
            named = references(str(told["method"]))
            named += [str(told["model"])] if names_code(str(told["model"])) else []
            named += [str(told["task"][0])] if task_names_code(str(told["task"][0])) else []
        except (ValueError, KeyError, IndexError, TypeError) as problem:
            raise RefusalError(FORM, f"the plan is none: {problem}") from problem
        foreign = [
            name
            for name in named
            if name.partition(":")[0].partition(".")[0] not in (self.settings.machine.trust or ())
        ]
        if foreign:
            raise RefusalError(
                CODE, f"the run names {', '.join(foreign)}; to allow it, add the package to trust in site.yaml"
            )

    def _open(self, run: str, fresh: bool, device: str) -> None:
        """What silos kept of a run, for this process alone; nothing where the server has nothing of it either."""
        folder = self.state / run
        folder.mkdir(parents=True, exist_ok=True)
        self.close()
        lock = FileLock(folder / ".lock", timeout=PATIENCE)
        try:
            lock.acquire()
        except Timeout as problem:
            raise RefusalError(STATE, f"another process works with {folder}") from problem
        self._lock = lock
        for name in self.data if fresh else ():
            shutil.rmtree(folder / name, ignore_errors=True)
        self.stores = {name: SiloStore(folder / name, device) for name in self.data}

    # ----------------------------------------------------------------------------------------------------- in a round
    def ask(self, content: object) -> wire.Payload:
        """A silo's answer; one that was given before is given again."""
        silo, request = wire.asked(content)
        if self.host is None or silo not in self.stores:
            raise RefusalError(FORM, "a silo was asked that is not here, or before a run began")
        if isinstance(content, Mapping) and "note" in content:
            self._end(wire.note_in(content))
        store = self.stores[silo]
        known = store.given(request)
        if known is None:
            answer = self.host.answer(silo, request, store.memory)
            if isinstance(answer.message, Failure):
                reason = DIVERGED if answer.message.kind == DIVERGED else ERROR
                raise RefusalError(reason, answer.message.detail)
            store.accept(request, answer)
            known = answer.message
        return wire.answered(silo, request, known)

    def commit(self, content: object) -> wire.Payload:
        """Keep the state after a round, and the silos' own models, which stay here."""
        if self.host is None:
            raise RefusalError(FORM, "a round ended before a run began")
        self._end(wire.note_in(content))
        return wire.noted({})

    def _end(self, told: Mapping[str, Any]) -> None:
        """The ends of rounds, oldest first: what did not count is forgotten, the rest is kept."""
        assert self.host is not None
        ends = told.get("ends")
        for end in ends if isinstance(ends, list) else []:
            round_, left_out = end.get("round"), end.get("left_out")
            if type(round_) is not int or round_ < 0 or not isinstance(left_out, dict):
                raise RefusalError(FORM, "a round's end is none")
            for name, store in self.stores.items():
                assert store.folder is not None
                if max(numbers(store.folder, "round"), default=-1) >= round_:
                    continue  # heard before
                since = left_out.get(name)
                if type(since) is int:
                    store.discard(since)
                store.commit(round_, self.host.model.layout)

    def restore(self, content: object) -> wire.Payload:
        """Take up what was kept after a round; a silo that was away then goes on from the last round it was there."""
        round_ = self._round_in(content)
        taken = {}
        for name, store in self.stores.items():
            assert store.folder is not None
            kept = numbers(store.folder, "round")
            known = [number for number in kept if number <= round_]
            if kept and not known:
                raise RefusalError(STATE, f"{name} kept the rounds {kept}, and the run goes on from {round_}")
            taken[name] = known[-1] if known else 0
            store.restore(taken[name])
            store.drop_after(taken[name])
        return wire.noted({"rounds": taken})

    def _round_in(self, content: object) -> int:
        round_ = wire.note_in(content).get("round")
        if type(round_) is not int or round_ < 0 or self.host is None:
            raise RefusalError(FORM, "there is no such round, or no run has begun")
        return round_

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
