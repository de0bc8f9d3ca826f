"""The server's half of a run across machines: who takes part, what is agreed on, and then the rounds as anywhere."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fairsilo.config import Experiment, as_dict
from fairsilo.core.roster import Member, Roster
from fairsilo.deploy import wire
from fairsilo.deploy.attempts import PAUSE
from fairsilo.deploy.brief import Brief
from fairsilo.deploy.remote import NOWHERE, Channel, Remote, heard, why
from fairsilo.deploy.site import FAILED
from fairsilo.engine.events import Callback, Event, guarded
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.models.registry import start_of
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.lock import locked
from fairsilo.runs.running import Course, Page, conduct, refuse_others, status_of
from fairsilo.runs.setup import fingerprint, plan_of, read_experiment, resolved, server_data_of

SITES, VERSIONS = "sites.json", "versions.json"  # of a run folder: silo -> site; site -> version of fairsilo
LONGEST = 600.0  # seconds that a site may take to read its data


class TooFewError(StoppedError):
    """Not enough sites are there to begin, or to go on."""


@dataclass(frozen=True)
class Joined:
    """A silo as its site tells of it."""

    site: str
    member: Member
    evaluates: bool
    task: str
    shape: tuple[int, ...]
    dtype: str


def serve(folder: Path, channel: Channel, sites: Iterable[str], listener: Callback, page: Page) -> dict[str, Any]:
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
        refuse_elsewhere(experiment)
        told = guarded(listener)

        def note(text: str) -> None:
            told(Event("note", 0, experiment.train.rounds, text=text))

        found, absent, versions = join(channel, sites, Brief.of(experiment))
        RunFolder(folder).write_json(VERSIONS, versions)
        for site, reason in sorted(absent.items()):
            note(f"site {site!r} takes no part: {why(reason)}")
        roster, places, changed = agreed(folder, experiment, found)
        for silo in changed:
            note(f"silo {silo!r} takes no part: its site, its domain or its samples are not those the run began with")
        experiment = resolved(experiment, roster)
        RunFolder(folder).write_text("config.yaml", yaml.safe_dump(as_dict(experiment), sort_keys=False))
        every = dataclasses.replace(experiment.engine, checkpoint_every=1)  # sites commit after every round
        experiment = dataclasses.replace(experiment, engine=every)
        plan = plan_of(experiment, roster)
        if plan.method.pools:
            raise FairsiloError(f"{plan.method.name} needs all data in one place, which sites do not give away")
        status = status_of(folder)
        refuse_others(folder, status, fingerprint(plan, roster))
        engine = Remote(channel, places, experiment.engine.timeout, lambda: _pause(folder), note)
        fresh = RunFolder(folder).read_checkpoint() is None
        for site, reason in sorted(engine.begin(str(status["id"]), plan.as_text(), fresh).items()):
            note(f"site {site!r} takes no part: {why(reason)}")
        start = start_of(plan.model) if isinstance(plan.model, str) else ""
        course = Course(
            plan,
            roster,
            engine,
            server_data=server_data_of(experiment, roster),
            notes=(*([start] if start else []),),
        )
        try:
            return conduct(experiment, course, folder, told)
        finally:
            page(folder)


def _pause(folder: Path) -> str:
    return "a site is back" if (folder / PAUSE).exists() else ""


def refuse_elsewhere(experiment: Experiment) -> None:
    """Refuse settings that need silos' data at the server."""
    if experiment.data.synthetic:
        raise FairsiloError("data.synthetic makes images from silos' data, which stay at their sites; leave it out")
    if experiment.evaluate.groups:
        raise FairsiloError("evaluate.groups is not for runs across machines yet; leave it out")
    if experiment.baseline:
        raise FairsiloError("a run across machines has one method; submit the baseline as a run of its own")


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
    return Joined(site, member, bool(one["evaluates"]), _short(one["task"]), shape, _short(one["dtype"]))


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError
    return value


def _short(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 100 or not value.isprintable():
        raise ValueError
    return value


def agreed(folder: Path, experiment: Experiment, found: list[Joined]) -> tuple[Roster, dict[str, str], tuple[str, ...]]:
    """The roster of a run, which silo is where, and silos that are not as they were.

    It is settled when the run begins. After that a silo may be away, and it may come back with the data it had; with
    others it is nowhere, so that one site cannot end the run of all.
    """
    run_folder, status = RunFolder(folder), status_of(folder)
    if (folder / SITES).exists() and "roster" in status:
        roster, places = Roster.from_dict(status["roster"]), run_folder.read_json(SITES)
        changed = tuple(one.member.name for one in found if not _as_before(one, roster, places))
        return roster, {str(silo): NOWHERE if silo in changed else str(site) for silo, site in places.items()}, changed
    names = [one.member.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise FairsiloError(f"two silos are called {twice!r}; give one of them another name in its site.yaml")
    trains = [one for one in found if not one.evaluates]
    if not trains:
        raise TooFewError("no site is there that trains")
    first = trains[0]
    for one in found:
        for key in ("task", "shape", "dtype"):
            if getattr(one, key) != getattr(first, key):
                raise FairsiloError(
                    f"silo {one.member.name!r} has samples of {key} {_words(getattr(one, key))}, and silo "
                    f"{first.member.name!r} of {_words(getattr(first, key))}; set data.size, or leave one of them out"
                )
        if one in trains and not one.member.train:
            raise FairsiloError(f"silo {one.member.name!r} has no training samples")
    silos, unseen = ([one.member for one in found if one.evaluates == which] for which in (False, True))
    name = experiment.data.name or Path(experiment.data.folder or experiment.data.packed or "sites").name
    roster = Roster(
        name, Brief.of(experiment).classes, first.shape, first.dtype, tuple(silos), tuple(unseen), first.task
    )
    places = {one.member.name: one.site for one in found}
    run_folder.write_json(SITES, places)
    run_folder.write_json("run.json", {**status, "roster": json.loads(json.dumps(roster.as_dict()))})
    return roster, places, ()


def _as_before(one: Joined, roster: Roster, places: Mapping[str, str]) -> bool:
    """Whether a silo is the one it was; one that was not there then takes no part and changes nothing."""
    try:
        return roster[one.member.name] == one.member and places.get(one.member.name) == one.site
    except KeyError:
        return True


def _words(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
