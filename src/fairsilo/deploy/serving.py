"""The server's half of a run across machines: who takes part, what is agreed on, and then the rounds as anywhere."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fairsilo.config import Experiment, as_dict
from fairsilo.core.disk import numbers
from fairsilo.core.roster import Member, Roster
from fairsilo.data.synthetic import too_few
from fairsilo.deploy import wire
from fairsilo.deploy.attempts import PAUSE
from fairsilo.deploy.brief import Brief
from fairsilo.deploy.grouping import Told, settle
from fairsilo.deploy.remote import NOWHERE, Channel, Remote, heard, why
from fairsilo.deploy.site import ERROR, FAILED, REASONS
from fairsilo.engine.events import Callbacks, Event, Guarded, guarded
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.models.described import start_of
from fairsilo.runs.folder import BASELINE, RunFolder, status_of
from fairsilo.runs.lock import locked
from fairsilo.runs.opened import read_experiment
from fairsilo.runs.running import Course, Page, conduct, refuse_others, start_folder
from fairsilo.runs.setup import (
    Objects,
    fingerprint,
    plan_of,
    resolved,
    server_data_of,
    synthetic_of,
    words_of,
)

SITES, VERSIONS = "sites.json", "versions.json"  # of a run folder: silo -> site; site -> version of fairsilo
LONGEST = 600.0  # seconds that a site may take to read its data


class TooFewError(StoppedError):
    """Not enough sites are there to begin, or to go on."""


@dataclass(frozen=True)
class Agreed:
    """Who takes part in a run, and where.

    Attributes:
        roster: The silos.
        places: Silo -> site.
        new: Silos that the run does not know yet.
        notes: Sentences about who is new, and who takes no part.
    """

    roster: Roster
    places: dict[str, str]
    new: tuple[Joined, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def found(self) -> dict[str, str]:
        """Silo -> site, of those that are somewhere."""
        return {silo: site for silo, site in self.places.items() if site != NOWHERE}


@dataclass(frozen=True)
class Joined:
    """A silo as its site tells of it."""

    site: str
    member: Member
    evaluates: bool
    task: str
    shape: tuple[int, ...]
    dtype: str
    groups: Told


def serve(folder: Path, channel: Channel, sites: Iterable[str], listener: Callbacks, page: Page) -> dict[str, Any]:
    """A run from its last checkpoint to its end, over the sites that are there.

    Args:
        folder: The run folder; its config.yaml says what to run.
        channel: The way to the sites.
        sites: Those that are connected.
        listener: Told of every event.
        page: Writes the report.
    """
    with locked(folder):
        experiment = read_experiment(folder, trust=True)  # who may submit a run may name what the server has installed
        told = guarded(listener)
        try:
            summary = _serve_one(folder, channel, sites, told, lambda: _pause(folder))
            if experiment.baseline:
                inside = folder / BASELINE
                start_folder(
                    inside, dataclasses.replace(experiment, method=experiment.baseline, baseline=None), Objects()
                )
                _serve_one(inside, channel, sites, told, lambda: _pause(folder))
            return summary
        finally:
            if "method" in status_of(folder):  # it has begun
                page(folder)


def _serve_one(
    folder: Path, channel: Channel, sites: Iterable[str], told: Guarded, pause: Callable[[], str]
) -> dict[str, Any]:
    """One method in a folder of its own; nothing where it is finished."""
    run_folder, experiment = RunFolder(folder), read_experiment(folder, trust=True)
    if status_of(folder).get("status") == "finished":
        return run_folder.read_json("summary.json")

    def note(text: str) -> None:
        told(Event("note", 0, experiment.train.rounds, text=text))

    found, absent, versions = join(channel, sites, Brief.of(experiment))
    run_folder.write_json(VERSIONS, versions)
    for site, reason in sorted(absent.items()):
        note(f"site {site!r} takes no part: {why(reason)}")
    _refuse_nobody(folder, found, absent)
    who, engine = assembled(folder, channel, experiment, found, note, pause)
    for text in who.notes:
        note(text)
    experiment = resolved(experiment, who.roster)
    run_folder.write_text("config.yaml", yaml.safe_dump(as_dict(experiment), sort_keys=False))
    run_folder.write_json(SITES, {**run_folder.read_json(SITES), **who.found})
    every = dataclasses.replace(experiment.engine, checkpoint_every=1)  # sites commit after every round
    experiment = dataclasses.replace(experiment, engine=every)
    plan = plan_of(experiment, who.roster)
    tested = {one.member.name: one.groups for one in found if one.member.test and one.member.name in who.found}
    groups = settle(folder, experiment.evaluate.columns, tested)
    synthetic = synthetic_of(experiment, who.roster, folder, words=lambda: words_of(experiment, who.roster, engine))
    start = start_of(plan.model) if isinstance(plan.model, str) else ""
    course = Course(
        plan,
        who.roster,
        engine,
        server_data=server_data_of(experiment, who.roster, synthetic),
        synthetic=synthetic,
        groups=groups.asked(plan, who.roster),
        notes=(*groups.notes, *([start] if start else [])),
        warnings=(too_few(who.roster, experiment.data.synthetic_share, synthetic),),
    )
    return conduct(experiment, course, folder, told)


def _refuse_nobody(folder: Path, found: list[Joined], absent: Mapping[str, str]) -> None:
    """A run that has not begun, and in which nobody who is there can take part, would wait for ever.

    Who was lost or failed by chance may do better the next time; for them it waits.
    """
    lasting = REASONS.keys() - {ERROR}
    if found or not absent or not lasting >= set(absent.values()) or (folder / SITES).exists():
        return
    listed = "; ".join(f"{site}: {why(reason)}" for site, reason in sorted(absent.items()))
    raise FairsiloError(
        f"no site that is there can take part ({listed}); `fairsilo site check FILE` at a site says more"
    )


def _pause(folder: Path) -> str:
    return "a site is back, or new" if (folder / PAUSE).exists() else ""


# ------------------------------------------------------------------------------------------------------------- joining
def join(channel: Channel, sites: Iterable[str], brief: Brief) -> tuple[list[Joined], dict[str, str], dict[str, str]]:
    """Who is there, silo by silo; by site why it is not; and by site the version it has."""
    asked = {site: (site, wire.noted(brief.as_dict())) for site in sorted(sites)}
    found: list[Joined] = []
    absent: dict[str, str] = {}
    versions: dict[str, str] = {}
    for site, told in heard(channel, "join", asked, LONGEST):
        if FAILED in told:
            absent[site] = str(told[FAILED])
            continue
        try:
            found += [_joined(site, one, brief) for one in told["silos"]]
            versions[site] = _short(told["version"])
        except (KeyError, TypeError, ValueError):
            absent[site] = "malformed"
    return sorted(found, key=lambda one: one.member.name), absent, versions


def _joined(site: str, one: Mapping[str, Any], brief: Brief) -> Joined:
    tested, trained, shape = (tuple(map(_count, one[key])) for key in ("tested", "trained", "shape"))
    if any(counts and len(counts) != len(brief.classes) for counts in (tested, trained)):
        raise ValueError
    train, validation, test = (_count(one[key]) for key in ("train", "validation", "test"))
    member = Member(_short(one["name"]), _short(one["domain"]), train, validation, test, tested, trained)
    values = {name: tuple(map(_short, one["groups"][name])) for name in brief.groups if name in one["groups"]}
    groups = Told(values, tuple(map(_count, one["target"])), _short(one["target_dtype"]))
    return Joined(site, member, bool(one["evaluates"]), _short(one["task"]), shape, _short(one["dtype"]), groups)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError
    return value


def _short(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 100 or not value.isprintable():
        raise ValueError
    return value


def assembled(
    folder: Path,
    channel: Channel,
    experiment: Experiment,
    found: list[Joined],
    note: Callable[[str], None],
    pause: Callable[[], str],
) -> tuple[Agreed, Remote]:
    """Who takes part in this attempt, newcomers among them, and the engine over their sites, which know the plan."""
    settled = agreed(folder, experiment, found)
    experiment = resolved(experiment, settled.roster)
    plan = plan_of(experiment, settled.roster)
    if plan.method.pools:
        raise FairsiloError(f"{plan.method.name} needs all data in one place, which sites do not give away")
    refuse_others(folder, status_of(folder), fingerprint(plan, settled.roster))
    who, limit = welcomed(folder, experiment, settled, settled.new), experiment.engine.timeout
    engine, refused = _begun(folder, Remote(channel, who.places, limit, pause, note), experiment, who)
    able = [one for one in settled.new if one.site not in refused]
    if len(able) < len(settled.new):  # a newcomer that cannot begin is none: the quorum must not count with it
        who = welcomed(folder, experiment, settled, able)
        engine, _ = _begun(folder, Remote(channel, who.places, limit, pause, note), experiment, who)
    without = (f"site {site!r} takes no part: {why(reason)}" for site, reason in sorted(refused.items()))
    return dataclasses.replace(who, notes=(*who.notes, *without)), engine


def _begun(folder: Path, engine: Remote, experiment: Experiment, who: Agreed) -> tuple[Remote, dict[str, str]]:
    """The engine over the sites, which are told the plan; and why some cannot take part."""
    fresh = not numbers(folder / "checkpoint", "server")
    plan = plan_of(resolved(experiment, who.roster), who.roster)
    return engine, engine.begin(str(status_of(folder)["id"]), plan.as_text(), fresh)


def agreed(folder: Path, experiment: Experiment, found: list[Joined]) -> Agreed:
    """Who takes part: settled when the run begins.

    After that a silo may be away, and it may come back with the data it had; with others it is nowhere, so that one
    site cannot end the run of all.
    """
    if (folder / SITES).exists() and "roster" in status_of(folder):
        return _as_before(folder, found)
    twice = next((name for name, count in Counter(one.member.name for one in found).items() if count > 1), None)
    if twice:
        raise FairsiloError(f"two silos are called {twice!r}; give one of them another name in its site.yaml")
    trains = [one for one in found if not one.evaluates]
    if not trains:
        raise TooFewError("no site is there that trains")
    first = trains[0]
    for one in found:
        differs = _difference(one, first)
        if differs:
            raise FairsiloError(
                f"silo {one.member.name!r} has {differs[0]}, and silo {first.member.name!r} of {differs[1]}; "
                "set data.size, or leave one of them out"
            )
        if not one.evaluates and not one.member.train:
            raise FairsiloError(f"silo {one.member.name!r} has no training samples")
    silos, unseen = ([one.member for one in found if one.evaluates == which] for which in (False, True))
    name = f"data of {len({one.site for one in found})} sites"
    roster = Roster(
        name, Brief.of(experiment).classes, first.shape, first.dtype, tuple(silos), tuple(unseen), first.task
    )
    places = {one.member.name: one.site for one in found}
    run_folder = RunFolder(folder)
    run_folder.write_json(SITES, places)
    run_folder.write_json("run.json", {**status_of(folder), "roster": json.loads(json.dumps(roster.as_dict()))})
    return Agreed(roster, places)


def _as_before(folder: Path, found: list[Joined]) -> Agreed:
    """The silos of a run under way, and what is said of those that are not as they were."""
    roster = Roster.from_dict(status_of(folder)["roster"])
    known = {member.name for member in (*roster.silos, *roster.unseen)}
    # a newcomer's site is written down before its silo is: where a kill came between them, it is new again
    places = {silo: str(site) for silo, site in RunFolder(folder).read_json(SITES).items() if silo in known}
    new, notes = [], []
    for one in found:
        silo, site = one.member.name, places.get(one.member.name)
        if site is None:
            new.append(one)
        elif site != one.site:
            notes.append(f"silo {silo!r} of site {one.site!r} takes no part: site {site!r} has one of this name")
        elif roster[silo] != one.member:
            places[silo] = NOWHERE
            notes.append(f"silo {silo!r} takes no part: its domain or its samples are not those the run began with")
    return Agreed(roster, places, tuple(new), tuple(notes))


def welcomed(folder: Path, experiment: Experiment, who: Agreed, new: Sequence[Joined]) -> Agreed:
    """With silos that came after the run began, from the next round on; one that does not fit is left out."""
    round_ = max(numbers(folder / "checkpoint", "server"), default=0) + 1
    roster, places, notes = who.roster, dict(who.places), list(who.notes)
    names = Counter(one.member.name for one in new)
    for one in new:
        silo = one.member.name
        try:
            if names[silo] > 1:
                raise FairsiloError("two sites have one of this name")
            roster = _with_newcomer(roster, one, experiment, round_)
        except FairsiloError as problem:
            notes.append(f"silo {silo!r} of site {one.site!r} takes no part: {problem}")
        else:
            places[silo] = one.site
            notes.append(f"silo {silo!r} of site {one.site!r} takes part from round {round_} on")
    return Agreed(roster, places, (), tuple(notes))


def _with_newcomer(roster: Roster, one: Joined, experiment: Experiment, round_: int) -> Roster:
    """The roster with one more silo.

    What methods keep of silos at the server fits more of them, as a law of methods demands. Only a model that has a
    piece for each silo does not.

    Raises:
        FairsiloError: The run cannot go on with it.
    """
    if not experiment.engine.newcomers:
        raise FairsiloError("the run takes no newcomers (engine.newcomers); set it to true for the next run")
    differs = _difference(one, roster)
    if differs:
        raise FairsiloError(f"it has {differs[0]}, and the run's silos of {differs[1]}")
    if not one.evaluates and not one.member.train:
        raise FairsiloError("it has no training samples")
    larger = roster.grown(one.member, one.evaluates, round_)
    before, after = (plan_of(experiment, some) for some in (roster, larger))
    after.check(larger, experiment.data.server is not None, experiment.data.synthetic is not None)
    sizes = {own.layout.size for own in (before.server_flat(), after.server_flat()) if own is not None}
    if len(sizes) > 1:
        raise FairsiloError(f"{after.method.name} has a piece of its server's model for each silo that it began with")
    return larger


def _difference(one: Joined, others: Joined | Roster) -> tuple[str, str] | None:
    """In what a silo's samples differ from those of others, and what these have."""
    for key in ("task", "shape", "dtype"):
        mine, theirs = getattr(one, key), getattr(others, key)
        if mine != theirs:
            return f"samples of {key} {_words(mine)}", _words(theirs)
    return None


def _words(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
