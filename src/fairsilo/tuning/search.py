"""The search over methods and held-out domains: the same number of trials for everybody."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fairsilo import config
from fairsilo.analysis.chance import GUESSED
from fairsilo.config import Experiment
from fairsilo.core.task import Metric
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.events import Callback, Event, Guarded, guarded, silent
from fairsilo.engine.features import Shelf
from fairsilo.errors import FairsiloError
from fairsilo.runs.compare import check_names, checked_row, domains_of, prepared
from fairsilo.runs.comparison import Tuned, method_in, row_of
from fairsilo.runs.engines import engines
from fairsilo.runs.folder import RunFolder, slug
from fairsilo.runs.lock import locked
from fairsilo.runs.setup import Objects, dataset_of, plan_of, resolved
from fairsilo.tuning.judging import Judge
from fairsilo.tuning.space import Asked, Space
from fairsilo.tuning.studies import SAMPLERS, Place, Study, optuna
from fairsilo.tuning.trials import Ended, Job, as_facts, attempt, attempt_alone, training_only

RESULT, CHOSEN = "tuning.json", "tuned.yaml"
SEEDS_AFTER = 3  # seeds that the comparison afterwards has, none of which was searched with
DEATHS = 2  # of a trial's process, each time after which it is begun again
WATCHED = 3  # a run may be given up after this fraction of its rounds


@dataclass(frozen=True)
class Options:
    """How it is searched.

    Attributes:
        trials: For each method and held-out domain.
        budget: Seconds after which no trial is begun; None: no bound.
        search: Setting -> range, where it is not the declared one.
        sampler: `tpe`, which learns from the trials before, or `random`.
        prune: Whether runs that fall behind are given up.
        by: The mean over the silos, or the worst of them.
        jobs: Trials side by side, each in a process.
    """

    trials: int = 20
    budget: float | None = None
    search: Asked = dataclasses.field(default_factory=dict)
    sampler: str = "tpe"
    prune: bool = True
    by: str = "mean"
    jobs: int = 1

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise FairsiloError(f"sampler is {self.sampler!r}; it must be one of {', '.join(SAMPLERS)}")
        if self.trials < 1 or self.jobs < 1:
            raise FairsiloError("trials and jobs must be at least 1")


@dataclass(frozen=True)
class Tuning:
    """What a search found.

    Attributes:
        folder: Where the trials, `tuning.json` and `tuned.yaml` are.
        methods: As they were named.
        found: Held-out domain -> method -> trials, what was searched, the chosen `row` and its score, and as `usual`
            the score of the first trial, in which nothing was changed; None where a range leaves the usual value out.
            `at_chance` says of the chosen trial, and of each one, whether it is no better than guessing; None where
            nobody knows what guessing reaches.
        counted: Held-out domain -> trials that every method had; those that only some had do not count.
        settings: Of the runs: what every trial had in common, by group.
        metric: Of the scores: name, share, higher_is_better.

    Example:
        `tuning.tuned["photo"]["fedprox"]` is the row that `compare` takes for FedProx where `photo` is held out.
    """

    folder: Path
    methods: tuple[str, ...]
    found: Mapping[str, Mapping[str, Any]]
    counted: Mapping[str, int]
    settings: Mapping[str, Any]
    metric: Mapping[str, Any]

    @property
    def tuned(self) -> Tuned:
        """Held-out domain -> method -> the row with the settings found, as `compare(..., tuned=...)` takes it."""
        return {domain: {name: one["row"] for name, one in rows.items()} for domain, rows in self.found.items()}

    def as_dict(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        return json.loads(json.dumps({**content, "folder": str(self.folder)}))  # type: ignore[no-any-return]


def tune(
    names: Sequence[str],
    base: Experiment,
    objects: Objects,
    options: Options,
    *,
    held_out: str | Sequence[str] | None = None,
    out: Path | None = None,
    listener: Callback = silent,
) -> Tuning:
    """Search settings for every method, with the same number of trials, by the training silos' validation data alone.

    Raises:
        FairsiloError: A method has no text, there is nothing to judge by, or the budget ended before the first trials.
    """
    check_names(names, objects)
    for name in names:
        if method_in(name) in objects.methods:
            raise FairsiloError(
                f"{name} has no name outside this program; give the method as package:name to search it"
            )
    optuna()
    dataset = None if objects.federation else dataset_of(base.data)
    domains = domains_of(base, held_out, dataset, objects)
    folder = out or Path("runs") / slug("tune-" + "-".join(names))[:80]
    told = guarded(listener)  # one for all domains: who raised is not called again

    def search_of(domain: str) -> _Search:
        federation, here = prepared(base, names, domain, dataset, objects)
        return _Search(folder, here, federation, objects, options, told)

    for domain in domains:
        search_of(domain).check(names)  # nothing is written where something cannot be searched
    folder.mkdir(parents=True, exist_ok=True)
    ends = None if options.budget is None else time.monotonic() + options.budget
    found, counted = {}, {}
    with locked(folder):
        _keep_settings(folder, base, options, options.trials * len(names) * len(domains))
        for place, domain in enumerate(domains):
            search = search_of(domain)
            left = None if ends is None else ends - (ends - time.monotonic()) * (1 - 1 / (len(domains) - place))
            found[search.domain], counted[search.domain] = search.run(names, left)
        here = search.here
        settings = config.as_dict(dataclasses.replace(here, data=dataclasses.replace(here.data, held_out=None)))
        tuning = Tuning(folder, tuple(names), found, counted, settings, search.metric(names[0]).as_dict())
        RunFolder(folder).write_json(RESULT, tuning.as_dict())
        RunFolder(folder).write_text(CHOSEN, chosen_text(tuning, base))
    return tuning


def chosen_text(tuning: Tuning, base: Experiment) -> str:
    """A file for `fairsilo compare`: the methods with what was chosen, and seeds that were not searched with."""
    settings = config.as_dict(base)
    content = {
        "methods": list(tuning.methods),
        "held_out_domains": list(tuning.found),
        "seeds": [base.seed + number for number in range(1, SEEDS_AFTER + 1)],
        "tuned": {domain: dict(rows) for domain, rows in tuning.tuned.items()},
        **{key: value for key, value in settings.items() if key not in ("method", "baseline", "seed")},
    }
    del content["data"]["held_out"]  # held_out_domains says it
    said = ", ".join(f"{count} trials each with {domain} held out" for domain, count in tuning.counted.items())
    return f"# Chosen by the training silos' validation data: {said}.\n" + yaml.safe_dump(content, sort_keys=False)


def _keep_settings(folder: Path, base: Experiment, options: Options, trials: int) -> None:
    """A folder holds one search: the same settings may go on with more trials, others need another folder."""
    asked = {name: str(span or "-") for name, span in options.search.items()}
    kept = {"settings": config.as_dict(base), "search": asked, "sampler": options.sampler, "by": options.by}
    kept = json.loads(json.dumps(kept))
    before = RunFolder(folder).read_json("asked.json") if (folder / "asked.json").exists() else kept
    if {**before, "trials": trials} != {**kept, "trials": trials}:
        raise FairsiloError(f"{folder} holds a search with other settings; choose another folder with --out")
    RunFolder(folder).write_json("asked.json", {**kept, "trials": trials})  # for whoever watches


@dataclass
class _Search:
    """The search with one domain held out."""

    folder: Path
    here: Experiment
    federation: Federation
    objects: Objects
    options: Options
    listener: Guarded

    def run(self, names: Sequence[str], ends: float | None) -> tuple[dict[str, Any], int]:
        """Trials until every method has its number, or until the time is over."""
        studies = {name: self._study(name) for name in names}
        self._fill(studies, ends)
        ended = {name: study.ended() for name, study in studies.items()}
        count = min(len(trials) for trials in ended.values())
        if not count:
            raise FairsiloError("the budget ended before every method had one trial; the same command goes on")
        return {name: self._found(studies[name], trials[:count]) for name, trials in ended.items()}, count

    def check(self, names: Sequence[str]) -> None:
        """Refuse what cannot be run or judged."""
        for name in names:
            self._judge(checked_row(self.here, name, self.federation, self.objects))

    @property
    def domain(self) -> str:
        return self.here.data.held_out or "-"

    def _study(self, name: str) -> Study:
        row = checked_row(self.here, name, self.federation, self.objects)
        rounds = row.train.rounds
        place = Place(self.folder, f"{name} [{self.domain}]", self._judge(row).higher, None)
        if self.options.prune and rounds >= WATCHED:
            place = dataclasses.replace(place, watched=-(-rounds // WATCHED))
        return Study(place, Space.of(name, self.here, self.options.search), self.options.sampler, self.here.seed)

    def _judge(self, row: Experiment) -> Judge:
        plan = self._plan(row)
        if not any(len(silo.validation) for silo in self.federation.silos):
            raise FairsiloError("no silo has validation samples to choose by; set data.validation above 0")
        rule = self.here.evaluate.selection
        metric = plan.task.reported
        return Judge(plan.method.results, rule, metric.higher_is_better, self.options.by, metric.name)

    def metric(self, name: str) -> Metric:
        """What the trials of a method are scored by."""
        return self._plan(checked_row(self.here, name, self.federation, self.objects)).task.reported

    def _plan(self, row: Experiment) -> Blueprint:
        return plan_of(resolved(row, self.federation.roster), self.federation.roster, self.objects)

    def _found(self, study: Study, trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        scored = [trial for trial in trials if trial["score"] is not None]
        if not scored:
            raise FairsiloError(f"{study.space.text}: no trial came to an end; the first said: {trials[0]['why']}")
        sign = 1 if study.place.higher else -1
        best = max(scored, key=lambda trial: (sign * trial["score"], -trial["number"]))
        return {
            "row": best["row"],
            "score": best["score"],
            "at_chance": best["at_chance"],
            "trial": best["number"],
            "usual": trials[0]["score"] if study.space.has_usual else None,
            "higher": study.place.higher,
            "space": {one.name: {"span": str(one.span), "log": one.span.log} for one in study.space.dimensions},
            "importance": study.importance(),
            "trials": list(trials),
        }

    def _fill(self, studies: Mapping[str, Study], ends: float | None) -> None:
        waiting = [_Asked(name, *trial) for name, study in studies.items() for trial in study.open_trials()]
        running: dict[Future[Ended], _Asked] = {}
        with self._starter() as start:
            while True:
                while len(running) < self.options.jobs:
                    if not waiting and (name := self._next(studies, ends)):
                        waiting.append(_Asked(name, *studies[name].ask()))
                    if not waiting:
                        break
                    one = waiting.pop(0)
                    running[start(self._job(studies[one.name], one))] = one
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    one, ended = running.pop(future), _outcome(future)
                    if ended is None and one.deaths < DEATHS:
                        waiting.append(one._replace(deaths=one.deaths + 1))
                        continue
                    ended = ended or Ended(None, 0.0, 0, "its process ended each time; is there enough memory?")
                    studies[one.name].tell(one.number, ended.score, as_facts(ended))
                    self._say(one, ended)

    def _next(self, studies: Mapping[str, Study], ends: float | None) -> str | None:
        """The method with the fewest trials, the first of several; None where all have theirs or the time is over."""
        if ends is not None and time.monotonic() >= ends:
            return None
        name = min(studies, key=lambda one: studies[one].asked)
        return name if studies[name].asked < self.options.trials else None

    def _job(self, study: Study, one: _Asked) -> Job:
        chosen = row_of(self.here, one.row)
        folder = self.folder / slug(one.name) / slug(f"{self.domain}-trial{one.number}")
        return Job(study.place, one.number, resolved(chosen, self.federation.roster), folder, self._judge(chosen))

    def _say(self, one: _Asked, ended: Ended) -> None:
        if ended.score is None:
            how = f"given up in round {ended.rounds}: {ended.why}"
        else:
            how = self._plan(row_of(self.here, one.row)).task.reported.said(ended.score)
            how += f" {GUESSED}" if ended.at_chance else ""
        text = f"{one.name}, {self.domain} held out, trial {one.number + 1} of {self.options.trials}: {how}"
        self.listener(Event("note", 0, self.here.train.rounds, text=text))

    @contextmanager
    def _starter(self) -> Iterator[Callable[[Job], Future[Ended]]]:
        """Begins trials: in this process, or each in one of several."""
        silos, jobs = training_only(self.federation), self.options.jobs
        if jobs == 1:
            shelf = Shelf(self.here.engine.features_limit)
            with engines(self.here, len(silos.silos), _once(self.listener)) as engine_for:

                def here(job: Job) -> Future[Ended]:
                    done: Future[Ended] = Future()
                    done.set_result(attempt(job, silos, self.objects, engine_for, shelf, self.listener))
                    return done

                yield here
            return
        # joblib's own, since its `Parallel`, which comparisons use, takes over the processes that are there
        from joblib.executor import get_memmapping_executor

        along = self.listener.travelling()
        yield lambda job: get_memmapping_executor(jobs).submit(attempt_alone, job, silos, self.objects, jobs, along)


class _Asked(NamedTuple):
    """A trial to be made, or made again where its process died."""

    name: str
    number: int
    row: str
    deaths: int = 0


def _once(listener: Callback) -> Callback:
    """Told of the first event alone: what an engine says of one trial it says of all."""
    told: list[Event] = []

    def hear(event: Event) -> None:
        if not told:
            told.append(event)
            listener(event)

    return hear


def _outcome(future: Future[Ended]) -> Ended | None:
    """How a trial ended; None where its process did first."""
    try:
        return future.result()
    except BrokenExecutor:
        return None
