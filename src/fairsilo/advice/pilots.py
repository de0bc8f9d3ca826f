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
from fairsilo.advice.blind import LEAST, blind, domains_of
from fairsilo.advice.measures import Shift, costs_of, shift_of
from fairsilo.advice.verdict import LOCAL, Verdict, check_goal, verdict
from fairsilo.config import DataSettings, Experiment
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Callback, Callbacks, Event, guarded, silent
from fairsilo.errors import FairsiloError
from fairsilo.runs import compare as comparing
from fairsilo.runs import running
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.running import slug
from fairsilo.runs.setup import Objects, evaluate_of, federation_of

PLAIN = "fedavg"
TRIED = (PLAIN, LOCAL, "fedavg @ weighting=uniform", "afl", "fedsam", "elcfs", "faa", "ditto")
RESULT = "advice.json"
PLANNED = "asked.json"
TURNS = 3  # with another seed each, for which there should be time
SEEDS = 5  # turns at most
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
        recommended: The method to take.
        verdict: What it wins, and all comparisons.
        shift: How far the silos are apart.
        methods: What was tried, the plain method first.
        left_out: Methods that cannot be run here -> why.
        rounds: Of each pilot, and how many the settings ask for.
        domains: Which were held out in turn; `-`: none.
        possible: Of how many such divisions.
        seeds: Of the pilots.
        cells: The runs: method, held_out, seed, summary, folder.
        costs: Method -> seconds and bytes a round, and what it sends besides the model.
        metric: Name, share, higher_is_better.
        seconds: That it took.
    """

    folder: Path
    recommended: str
    verdict: Verdict
    shift: Shift
    methods: tuple[str, ...]
    left_out: Mapping[str, str]
    rounds: tuple[int, int]
    domains: tuple[str, ...]
    possible: int
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
    people = dataclasses.replace(objects.federation or federation_of(base), unseen=())
    folder = out or Path("runs") / slug(f"advice-{people.name}")
    base = _for_pilots(base, people)
    usable, left_out = _usable(names, base, people, objects)
    if len(usable) < 2:
        raise FairsiloError(f"nothing but {PLAIN} can be tried here: {'; '.join(left_out.values()) or 'name a method'}")
    domains = _held_out(people)
    folder.mkdir(parents=True, exist_ok=True)
    plan = _planned(folder, base, options, usable, domains, people, objects)
    cells: list[dict[str, Any]] = []
    seeds: list[int] = []

    def heard(event: Event) -> None:
        if event.kind != "note":  # what a run notes is in its folder; there are many
            told(event)

    for turn in range(options.seeds):
        spent = time.monotonic() - begun
        if turn and spent + spent / turn > options.budget:  # another turn would take as long as those before
            break
        seed = base.seed + turn
        said = (
            f"turn {turn + 1}: {len(usable)} methods, {len(plan.domains)} divisions, {plan.rounds} rounds, seed {seed}"
        )
        told(Event("note", 0, plan.rounds, text=said))
        for domain in plan.domains:
            cells += _pilot(plan, dataclasses.replace(base, seed=seed), people, domain, objects, options, folder, heard)
        seeds.append(seed)
    first = next(cell for cell in cells if cell["method"] == PLAIN)
    reported = RunFolder(folder / first["folder"]).read_json("run.json")["metric"]
    found = verdict(plan.methods, cells, options.goal, bool(reported["higher_is_better"]))
    advice = Advice(
        folder,
        found.recommended,
        found,
        shift_of(people, folder / first["folder"], objects.model),
        plan.methods,
        left_out,
        (plan.rounds, base.train.rounds),
        plan.domains,
        len(domains),
        tuple(seeds),
        tuple(cells),
        costs_of(plan.methods, cells, folder),
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


def _held_out(people: Federation) -> tuple[str, ...]:
    """What is held out in turn: each domain that can play the unseen one, where three or more train, then nothing.

    The first come first where the time does not suffice for all: they answer all three questions.
    """
    domains, found = domains_of(people), []
    if len(domains) < LEAST:
        return ("-",)
    for domain in domains:
        try:
            blind(people, domain, 0)
        except FairsiloError:  # it alone has a class
            continue
        found.append(domain)
    return (*found, "-")


def _usable(
    names: Sequence[str], base: Experiment, people: Federation, objects: Objects
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The methods that can be run on these silos, and why others cannot."""
    given = dataclasses.replace(objects, federation=blind(people, "-", 0))
    federation, here = comparing.prepared(base, (PLAIN,), "-", None, given)
    found, left_out = [], {}
    for name in names:
        try:
            comparing.checked_row(here, name, federation, given)
            found.append(name)
        except FairsiloError as problem:
            left_out[name] = str(problem)
    if PLAIN in left_out:
        raise FairsiloError(left_out[PLAIN])
    return tuple(found), left_out


def _planned(
    folder: Path,
    base: Experiment,
    options: Options,
    methods: tuple[str, ...],
    domains: tuple[str, ...],
    people: Federation,
    objects: Objects,
) -> _Plan:
    """How many rounds and which domains; kept, so that the same command goes on with the same pilots."""
    asked = {
        "settings": config.as_dict(base),
        "methods": list(methods),
        "rounds": options.rounds,
        "budget": options.budget,
    }
    asked = json.loads(json.dumps(asked))
    if (folder / PLANNED).exists():
        known = RunFolder(folder).read_json(PLANNED)
        if known["asked"] != asked:
            raise FairsiloError(f"{folder} holds advice on other questions; choose another folder with --out")
        return _Plan(known["rounds"], tuple(known["domains"]), methods)
    each = 0.0 if options.rounds else _round_seconds(base, people, domains[0], objects)
    rounds, chosen = fitting(options, base.train.rounds, len(methods), domains, each)
    RunFolder(folder).write_json(PLANNED, {"asked": asked, "rounds": rounds, "domains": list(chosen)})
    return _Plan(rounds, chosen, methods)


def fitting(
    options: Options, rounds: int, methods: int, domains: tuple[str, ...], each: float
) -> tuple[int, tuple[str, ...]]:
    """How many rounds pilots have and which domains they hold out, where a round of FedAvg takes `each` seconds.

    There should be time for three turns. Fewer rounds come first, then fewer domains.

    Raises:
        FairsiloError: Not even the shortest pilots fit.
    """
    if options.rounds:
        return options.rounds, domains
    for count in range(len(domains), 0, -1):
        possible = math.floor(options.budget * options.jobs / (TURNS * methods * count * DEARER * max(each, 1e-6)))
        if possible >= min(FEWEST, rounds):
            return min(rounds, possible), domains[:count]
    needed = TURNS * methods * DEARER * each * min(FEWEST, rounds) / options.jobs
    raise FairsiloError(
        f"{options.budget:.0f} s are too short: a round takes about {each:.1f} s, and pilots of {methods} methods "
        f"{needed:.0f} s at least; give a longer budget or fewer methods"
    )


def _round_seconds(base: Experiment, people: Federation, domain: str, objects: Objects) -> float:
    """How long a round of the plain method takes: the second of two."""
    ends: list[float] = []

    def note(event: Event) -> None:
        if event.kind == "round":
            ends.append(time.perf_counter())

    given = dataclasses.replace(objects, federation=blind(people, domain, 0))
    two = dataclasses.replace(base, train=dataclasses.replace(base.train, rounds=2))
    with tempfile.TemporaryDirectory() as folder:
        running.run(two, given, out=Path(folder) / "timed", listener=note)
    return ends[1] - ends[0]


def _pilot(
    plan: _Plan,
    base: Experiment,
    people: Federation,
    domain: str,
    objects: Objects,
    options: Options,
    folder: Path,
    heard: Callback,
) -> list[dict[str, Any]]:
    """All methods with one domain held out and one seed; the folders of runs are below the advice's."""
    given = dataclasses.replace(objects, federation=blind(people, domain, base.seed))
    here = dataclasses.replace(base, train=dataclasses.replace(base.train, rounds=plan.rounds))
    inside = slug("none" if domain == "-" else domain) + f"-seed{base.seed}"
    found = comparing.compare(
        plan.methods, here, given, seeds=[base.seed], out=folder / inside, listener=heard, jobs=options.jobs
    )
    return [{**cell, "folder": f"{inside}/{cell['folder']}"} for cell in found.cells]
