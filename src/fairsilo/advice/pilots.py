"""Short runs of a handful of methods within a time, on federations that are blind to test data."""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo import config
from fairsilo.advice.blind import LEAST, blind, content_of, domains_of
from fairsilo.advice.measures import Shift, costs_of, shift_of
from fairsilo.advice.verdict import LOCAL, Verdict, check_goal, verdict
from fairsilo.config import DataSettings, Experiment
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Callback, Callbacks, Event, guarded, silent
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.runs import compare as comparing
from fairsilo.runs import running
from fairsilo.runs.folder import RESULTS, RunFolder, slug
from fairsilo.runs.setup import Objects, evaluate_of, federation_of

PLAIN = "fedavg"
TRIED = (PLAIN, LOCAL, "fedavg @ weighting=uniform", "afl", "fedsam", "elcfs", "faa", "ditto")
RESULT = "advice.json"
PLANNED = "asked.json"
TURNS = 5  # with another seed each, for which there should be time: with fewer hardly anything is sure
SEEDS = 8  # turns at most
DEARER = 1.6  # methods cost so many times FedAvg's time, roughly, for a first guess
FEWEST = 3  # rounds of a pilot


@dataclass(frozen=True)
class Options:
    """How pilots are made.

    Attributes:
        budget: Seconds for all of them.
        goal: `all`, or the one answer that counts: `generalise`, `personalise`, `fair`.
        rounds: Of each pilot; None: as many as the budget allows, at most those of the settings.
        seeds: Turns at most.
        jobs: Runs side by side.
    """

    budget: float = 600.0
    goal: str = "all"
    rounds: int | None = None
    seeds: int = SEEDS
    jobs: int = 1


@dataclass(frozen=True)
class Advice:
    """What was measured, what was tried, and what to take.

    Attributes:
        folder: Where the pilots, `advice.json` and `advice.html` are.
        recommended: The method to take; None where pilots allow to recommend none, as they learned too little.
        verdict: What it wins, and all comparisons.
        shift: How far the silos are apart.
        methods: What was tried, the plain method first.
        left_out: Methods that cannot be run here -> why.
        rounds: Of each pilot, and how many the settings ask for.
        domains: Which were held out in turn; `-`: none.
        skipped: Domains that could not be held out -> why; also those that there was no time for.
        reserved: Domains that took no part, since the settings hold them out for the report later.
        seeds: Of the pilots.
        cells: The runs: method, held_out, seed, summary, folder.
        costs: Method -> seconds and bytes a round, and what it sends besides the model. Pilots of one round do not tell
            seconds (None): the first round also sets things up.
        metric: Name, share, higher_is_better.
        seconds: That it took.
    """

    folder: Path
    recommended: str | None
    verdict: Verdict
    shift: Shift
    methods: tuple[str, ...]
    left_out: Mapping[str, str]
    rounds: tuple[int, int]
    domains: tuple[str, ...]
    skipped: Mapping[str, str]
    reserved: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[dict[str, Any], ...]
    costs: Mapping[str, Mapping[str, Any]]
    metric: Mapping[str, Any]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        content = dataclasses.asdict(dataclasses.replace(self, shift=Shift({}, 1.0, {}, {})))
        content["shift"] = self.shift.as_dict()
        return json.loads(json.dumps({**content, "folder": str(self.folder)}))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Plan:
    rounds: int
    domains: tuple[str, ...]
    methods: tuple[str, ...]

    def keep(self, folder: Path, spent: float) -> None:
        """How long pilots took so far: the same command later has no more time than the first."""
        known = RunFolder(folder).read_json(PLANNED)
        RunFolder(folder).write_json(PLANNED, {**known, "spent": round(spent, 1)})


def advise(
    names: Sequence[str],
    base: Experiment,
    objects: Objects,
    options: Options,
    *,
    out: Path | None = None,
    listener: Callbacks = silent,
) -> Advice:
    """Measure the federation, run pilots in turns until the time is up, and say what they show.

    Raises:
        FairsiloError: The time is too short for a single turn, or nothing but the plain method can be run here.
    """
    check_goal(options.goal)
    begun, told = time.monotonic(), guarded(listener)
    names = tuple(dict.fromkeys((PLAIN, *(names or TRIED))))
    comparing.check_names(names, objects)
    whole = objects.federation or federation_of(base)
    reserved = tuple(dict.fromkeys(silo.domain for silo in whole.unseen))
    people = dataclasses.replace(whole, unseen=())
    if len(people.silos) < 2:
        raise FairsiloError(
            "there is a single silo that trains, so that there is nothing to choose between; "
            "divide the data into two silos or more"
        )
    folder = out or Path("runs") / slug(f"advice-{people.name}")
    base = _for_pilots(base, people)
    divisions, skipped = _divisions(base, people, objects)
    if options.goal == "generalise" and divisions == ("-",):
        raise FairsiloError(f"generalising cannot be judged: {'; '.join(skipped.values())}; choose another goal")
    usable, left_out = _usable(names, base, people, divisions, objects)
    if len(usable) < 2:
        raise FairsiloError(f"nothing but {PLAIN} can be tried here: {'; '.join(left_out.values()) or 'name a method'}")
    folder.mkdir(parents=True, exist_ok=True)
    plan = _planned(folder, base, options, usable, divisions, people, objects)
    skipped |= dict.fromkeys((one for one in divisions if one not in plan.domains and one != "-"), "no time was left")
    pilots = _Pilots(plan, base, people, objects, options, folder, told)
    earlier = float(RunFolder(folder).read_json(PLANNED).get("spent", 0.0))
    cells: list[dict[str, Any]] = []
    seeds: list[int] = []
    for turn in range(options.seeds):
        seed, spent = base.seed + turn, earlier + time.monotonic() - begun
        done = pilots.finished(seed)
        if turn and not done and spent + spent / turn > options.budget:  # another would take as long as those before
            break
        cells += pilots.turn(turn + 1, seed)
        seeds.append(seed)
        if not done:
            plan.keep(folder, spent=earlier + time.monotonic() - begun)
    methods = tuple(name for name in plan.methods if name not in pilots.failed)
    if len(methods) < 2:
        raise FairsiloError(f"no method but {PLAIN} came to an end: {'; '.join(pilots.failed.values())}")
    cells = [cell for cell in cells if cell["method"] in methods]
    first = next(cell for cell in cells if cell["method"] == PLAIN)
    reported = RunFolder(folder / first["folder"]).read_json("run.json")["metric"]
    found = verdict(methods, cells, options.goal, bool(reported["higher_is_better"]))
    advice = Advice(
        folder,
        found.recommended,
        found,
        shift_of(people, folder / first["folder"], objects.model),
        methods,
        {**left_out, **pilots.failed},
        (plan.rounds, base.train.rounds),
        plan.domains,
        skipped,
        reserved,
        tuple(seeds),
        tuple(cells),
        costs_of(methods, cells, folder),
        reported,
        time.monotonic() - begun,
    )
    RunFolder(folder).write_json(RESULT, advice.as_dict())
    return advice


def _for_pilots(base: Experiment, people: Federation) -> Experiment:
    """The settings of pilots: their silos are made here, so that what describes data elsewhere does not count."""
    data = DataSettings(augment=base.data.augment)
    evaluate = dataclasses.replace(evaluate_of(base, people.roster), selection="last", groups=None)
    return dataclasses.replace(base, method=PLAIN, baseline=None, data=data, evaluate=evaluate)


def _divisions(base: Experiment, people: Federation, objects: Objects) -> tuple[tuple[str, ...], dict[str, str]]:
    """What is held out in turn: each domain that can play the unseen one, where three or more train, then nothing; and
    why others are not.

    The first come first where the time does not suffice for all: they answer all three questions.
    """
    domains = domains_of(people)
    if len(domains) < LEAST:
        return ("-",), {" and ".join(domains): f"fewer than {LEAST} domains train"}
    found, skipped = [], {}
    for domain in domains:
        try:
            _prepared(base, people, domain, objects)
            found.append(domain)
        except FairsiloError as problem:  # such as: it alone has a class
            skipped[domain] = str(problem)
    return (*found, "-"), skipped


def _prepared(
    base: Experiment, people: Federation, domain: str, objects: Objects
) -> tuple[Federation, Experiment, Objects]:
    given = dataclasses.replace(objects, federation=blind(people, domain, base.seed))
    return *comparing.prepared(base, (PLAIN,), "-", None, given), given


def _usable(
    names: Sequence[str], base: Experiment, people: Federation, divisions: Sequence[str], objects: Objects
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The methods that can be run in every division, and why others cannot."""
    left_out: dict[str, str] = {}
    for domain in divisions:
        federation, here, given = _prepared(base, people, domain, objects)
        for name in names:
            try:
                comparing.checked_row(here, name, federation, given)
            except FairsiloError as problem:
                left_out.setdefault(name, str(problem))
    if PLAIN in left_out:
        raise FairsiloError(left_out[PLAIN])
    return tuple(name for name in names if name not in left_out), left_out


def _planned(
    folder: Path,
    base: Experiment,
    options: Options,
    methods: tuple[str, ...],
    domains: tuple[str, ...],
    people: Federation,
    objects: Objects,
) -> _Plan:
    """How many rounds and which domains; kept, so that the same command goes on with the same pilots.

    What silos hold is part of the question: pilots of other data in this folder are no answer to it.
    """
    model = None if objects.model is None else f"{objects.model.__module__}:{objects.model.__qualname__}"
    asked = {
        "settings": config.as_dict(base),
        "methods": list(methods),
        "rounds": options.rounds,
        "data": content_of(people),
        "model": model,
    }
    asked = json.loads(json.dumps(asked))
    if (folder / PLANNED).exists():
        known = RunFolder(folder).read_json(PLANNED)
        if known["asked"] != asked:
            raise FairsiloError(
                f"{folder} holds advice on another question (other data, settings or methods); choose another folder "
                "with --out"
            )
        return _Plan(known["rounds"], tuple(known["domains"]), methods)
    each = 0.0 if options.rounds else _round_seconds(base, people, domains[0], objects)
    rounds, chosen = fitting(options, base.train.rounds, len(methods), domains, each)
    RunFolder(folder).write_json(PLANNED, {"asked": asked, "rounds": rounds, "domains": list(chosen)})
    return _Plan(rounds, chosen, methods)


def _shortened(base: Experiment, rounds: int) -> Experiment:
    """The same settings with so many rounds; a warm-up must leave one of them."""
    train = dataclasses.replace(base.train, rounds=rounds, lr_warmup=min(base.train.lr_warmup, rounds - 1))
    return dataclasses.replace(base, train=train)


def fitting(
    options: Options, rounds: int, methods: int, domains: tuple[str, ...], each: float
) -> tuple[int, tuple[str, ...]]:
    """How many rounds pilots have and which domains they hold out, where a round of FedAvg takes `each` seconds.

    There should be time for five turns. Fewer rounds come first, then fewer domains, then fewer turns.

    Raises:
        FairsiloError: Not even one turn of the shortest pilots fits.
    """
    if options.rounds:
        return options.rounds, domains
    at_once = min(options.jobs, methods)
    shapes = [(TURNS, count) for count in range(len(domains), 0, -1)]
    shapes += [(turns, 1) for turns in range(TURNS - 1, 0, -1)]
    for turns, count in shapes:
        possible = math.floor(options.budget * at_once / (turns * methods * count * DEARER * max(each, 1e-6)))
        if possible >= min(FEWEST, rounds):
            return min(rounds, possible), domains[:count]
    needed = methods * DEARER * each * min(FEWEST, rounds) / at_once
    raise FairsiloError(
        f"{options.budget:.0f} s are too short: a round takes about {each:.1f} s, and one pilot of each of {methods} "
        f"methods {needed:.0f} s at least; give a longer --budget, fewer --rounds or fewer methods"
    )


def _round_seconds(base: Experiment, people: Federation, domain: str, objects: Objects) -> float:
    """How long a round of the plain method takes: the second of two."""
    ends: list[float] = []

    def note(event: Event) -> None:
        if event.kind == "round":
            ends.append(time.perf_counter())

    given = dataclasses.replace(objects, federation=blind(people, domain, base.seed))
    with tempfile.TemporaryDirectory() as folder:
        try:
            running.run(_shortened(base, 2), given, out=Path(folder) / "timed", listener=note)
        except (KeyboardInterrupt, OSError) as problem:
            problem.__notes__ = []  # how to go on with a run that nobody keeps
            raise
    return ends[1] - ends[0]


class _Pilots:
    """Runs of all methods, division by division and seed by seed.

    Attributes:
        failed: Methods that came to no end, such as a model that is no longer finite -> why.
    """

    def __init__(
        self,
        plan: _Plan,
        base: Experiment,
        people: Federation,
        objects: Objects,
        options: Options,
        folder: Path,
        told: Callback,
    ) -> None:
        self.plan, self.base, self.people, self.objects = plan, base, people, objects
        self.options, self.folder, self.told = options, folder, told
        self.failed: dict[str, str] = {}

    def finished(self, seed: int) -> bool:
        """Whether all pilots with a seed were made before."""
        return all((self._place(domain, seed) / RESULTS).exists() for domain in self.plan.domains)

    def turn(self, number: int, seed: int) -> list[dict[str, Any]]:
        """All pilots with a seed."""
        plan = self.plan
        sizes = {"method": len(plan.methods), "division": len(plan.domains), "round": plan.rounds}
        said = ", ".join(f"{count} {word}{'s' * (count != 1)}" for word, count in sizes.items())
        self.told(Event("note", 0, plan.rounds, text=f"turn {number}: {said}, seed {seed}"))
        return [cell for domain in plan.domains for cell in self._pilot(domain, seed)]

    def _place(self, domain: str, seed: int) -> Path:
        return self.folder / (slug("none" if domain == "-" else domain) + f"-seed{seed}")

    def _pilot(self, domain: str, seed: int) -> list[dict[str, Any]]:
        methods = [name for name in self.plan.methods if name not in self.failed]
        try:
            return self._compared(methods, domain, seed)
        except StoppedError:
            pass
        for name in methods[1:]:  # one of them: what is finished is not run again
            try:
                self._compared([PLAIN, name], domain, seed)
            except StoppedError as problem:
                self.failed[name] = str(problem)
        return self._compared([name for name in methods if name not in self.failed], domain, seed)

    def _compared(self, methods: Sequence[str], domain: str, seed: int) -> list[dict[str, Any]]:
        given = dataclasses.replace(self.objects, federation=blind(self.people, domain, seed))
        here = dataclasses.replace(_shortened(self.base, self.plan.rounds), seed=seed)
        place = self._place(domain, seed)
        found = comparing.compare(
            methods, here, given, seeds=[seed], out=place, listener=self._heard, jobs=self.options.jobs
        )
        return [{**cell, "folder": f"{place.name}/{cell['folder']}"} for cell in found.cells]

    def _heard(self, event: Event) -> None:
        if event.kind != "note":  # what a run notes is in its folder; there are many
            self.told(event)
