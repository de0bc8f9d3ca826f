"""From settings to results: an experiment is run, and resumed, in a run folder."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from fairsilo import __version__, config
from fairsilo.analysis.groups import by_group
from fairsilo.analysis.metrics import CLUSTERED, summarise
from fairsilo.analysis.privacy import spent
from fairsilo.config import Experiment
from fairsilo.core.roster import Roster
from fairsilo.core.samples import Split
from fairsilo.data.describe import notes_of
from fairsilo.data.federation import Federation, pooled
from fairsilo.data.groups import groups_of
from fairsilo.data.synthetic import too_few
from fairsilo.engine.base import Engine
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.events import Callbacks, Event, Guarded, guarded, silent
from fairsilo.engine.features import Shelf, keep_features
from fairsilo.engine.grouping import Groups
from fairsilo.engine.loop import History, Loop
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.methods.representations import clustering_accuracy
from fairsilo.models.described import start_of
from fairsilo.runs.effects import refuse_idle
from fairsilo.runs.engines import EngineMaker, engines
from fairsilo.runs.examples import write_examples
from fairsilo.runs.folder import BASELINE, finished, resuming, slug, status_of
from fairsilo.runs.lagging import lagging
from fairsilo.runs.lock import LOCK, OWNER, locked
from fairsilo.runs.opened import read_experiment, refuse_objects
from fairsilo.runs.saved import SavedRun
from fairsilo.runs.seen import write_seen
from fairsilo.runs.setup import (
    Objects,
    check,
    engine_of,
    federation_of,
    fingerprint,
    plan_of,
    resolved,
    sends_of,
    server_data_of,
    sizes_of,
    synthetic_of,
    words_of,
)
from fairsilo.runs.sheets import write_sheet
from fairsilo.runs.trained import Trained

Page = Callable[[Path], object]


def no_page(folder: Path) -> None:
    """Write no report."""


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        folder: The run folder.
        method: The method's name.
        summary: What `summary.json` holds: `generalisation`, `personalisation`, `fairness`, one entry of `silos` per
            silo, the `rounds` they are read from and the rule that selected them; with `evaluate.groups` also `groups`.
        baseline: The same of the method that was trained beside it, where there is one.

    Example:
        `result.summary["generalisation"]["mean"]` is the global model's metric on the held-out domain, between 0 and 1
        where it is a share such as accuracy; `result.folder` is what `fairsilo.load` takes.
    """

    folder: Path
    method: str
    summary: dict[str, Any]
    baseline: Result | None = None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        content = {"folder": str(self.folder), "method": self.method, "summary": self.summary}
        return {**content, "baseline": self.baseline.as_dict() if self.baseline else None}


def run(
    experiment: Experiment,
    objects: Objects,
    *,
    out: Path | None = None,
    listener: Callbacks = silent,
    page: Page = no_page,
) -> Result:
    """Train a federation, evaluate it, write the run folder.

    Args:
        experiment: Its settings.
        objects: What was given as Python objects.
        out: The run folder; by default one below `runs/`, named after method and data.
        listener: Told of every event.
        page: Called with the folder when the run has ended or stopped; writes the report.
    """
    if out is not None:
        _refuse_used(out)
    told = guarded(listener)
    objects.method(experiment.method)
    federation = objects.federation or federation_of(experiment)
    names = [experiment.method, *filter(None, [experiment.baseline])]
    here = dataclasses.replace(experiment, engine=engine_of(experiment.engine))
    refuse_idle(here, federation, names, model=objects.model is None, by_hand=objects.federation is not None)
    groups_of(federation, experiment.evaluate.columns)
    experiment = resolved(experiment, federation.roster, objects.federation is not None)
    check(experiment, federation.roster, objects)
    folder = out or _free_folder(experiment)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _refuse_used(folder)  # somebody else may have begun there while this run was checked
        start_folder(folder, experiment, objects)
        return _run_both(experiment, federation, folder, told, objects, page)


def resume(
    folder: Path, objects: Objects, *, trust: bool = False, listener: Callbacks = silent, page: Page = no_page
) -> Result:
    """Take a run up where it was left, and finish it to the same numbers.

    A run that was given Python objects needs the same ones again.
    """
    experiment, told = read_experiment(folder, trust), guarded(listener)
    with locked(folder):
        refuse_objects(folder, objects.kinds(experiment.method))
        federation = objects.federation or federation_of(experiment)
        return _run_both(experiment, federation, folder, told, objects, page)


# ------------------------------------------------------------------------------------------------------------ one run
def _run_both(
    experiment: Experiment, federation: Federation, folder: Path, listener: Guarded, objects: Objects, page: Page
) -> Result:
    """The method, then the baseline in a folder of its own inside, then the page that shows both."""
    alone = dataclasses.replace(experiment, baseline=None)
    shelf = Shelf(experiment.engine.features_limit)
    with engines(experiment, len(federation.silos) + len(federation.unseen), listener) as engine_for:
        try:
            result = run_one(alone, federation, folder, listener, engine_for, shelf, objects)
            if experiment.baseline:
                second = dataclasses.replace(alone, method=experiment.baseline)
                inside = folder / BASELINE
                start_folder(inside, second, objects)
                beside = run_one(second, federation, inside, listener, engine_for, shelf, objects)
                result = dataclasses.replace(result, baseline=beside)
            page(folder)
        except StoppedError:
            page(folder)
            raise
        except (KeyboardInterrupt, OSError) as problem:
            problem.add_note(f"`{resuming(folder)}` goes on from the last complete round")
            raise
    return result


def run_one(
    experiment: Experiment,
    federation: Federation,
    folder: Path,
    listener: Guarded,
    engine_for: EngineMaker,
    shelf: Shelf,
    objects: Objects,
) -> Result:
    """One method on one federation, in a folder that is locked."""
    run_folder, status = SavedRun(folder), status_of(folder)
    method = objects.method(experiment.method)
    if status.get("status") == "finished":
        return Result(folder, method.name, run_folder.read_json("summary.json"))
    people = federation  # as they are, before anything is pooled or kept as features

    def words() -> dict[str, Tensor]:
        listener(Event("note", 0, experiment.train.rounds, text="silos learn the words for their styles"))
        engine = engine_for(plan_of(experiment, people.roster, objects), people, folder)
        with closing(engine):
            return words_of(experiment, people.roster, engine)

    synthetic = synthetic_of(experiment, federation.roster, folder, shelf, words)
    groups = groups_of(federation, experiment.evaluate.columns)  # before silos are pooled: as they were told apart
    short = too_few(federation.roster, experiment.data.synthetic_share, synthetic)
    if method.pools:
        federation = pooled(federation, synthetic.values())
    roster = federation.roster
    plan = plan_of(experiment, roster, objects)
    refuse_others(folder, status, fingerprint(plan, roster))
    write_seen(folder, federation)
    prepared = keep_features(
        plan,
        federation,
        server_data_of(experiment, roster, synthetic),
        wanted=experiment.engine.keep_features,
        limit=experiment.engine.features_limit,
        folder=folder / "features",
        shelf=shelf,
    )
    start = start_of(plan.model) if isinstance(plan.model, str) else ""
    engine = engine_for(prepared.plan, prepared.federation, folder)
    course = Course(
        plan,
        roster,
        engine,
        chosen=engine.why,
        running=(prepared.plan, prepared.federation.roster),
        server_data=prepared.server_data,
        synthetic=synthetic,
        groups=Groups.of(groups.columns, prepared.plan, prepared.federation.silos[0].train),
        features=prepared.said,
        notes=(*notes_of(federation), *groups.notes, *([start] if start else [])),
        warnings=(short,),
    )
    try:
        summary = conduct(experiment, course, folder, listener)
    finally:
        course.engine.close()
    if experiment.evaluate.examples and plan.task.output.per == "pixel":
        # what the folder names was imported for this very run, so it is trusted
        write_examples(Trained(folder, method=method, model=objects.model, trust=True), federation)
    shutil.rmtree(folder / "features", ignore_errors=True)  # made of the silos' images, and of no use any more
    return Result(folder, method.name, summary)


@dataclass(frozen=True)
class Course:
    """What a run is about and where its silos are, whatever the engine.

    Attributes:
        plan: What every silo must know.
        roster: Who takes part.
        engine: Where they run.
        chosen: Why in that engine, where settings leave it open.
        running: Plan and roster as the loop has them, where silos hold kept features in place of images.
        server_data: What the server was given.
        synthetic: Images in silos' styles.
        groups: What results are told apart by.
        features: A sentence about kept features.
        notes: Sentences for log and report.
        warnings: Sentences for the log alone.
    """

    plan: Blueprint
    roster: Roster
    engine: Engine
    chosen: str = ""
    running: tuple[Blueprint, Roster] | None = None
    server_data: Split | None = None
    synthetic: Mapping[str, Split] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
    features: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def conduct(experiment: Experiment, course: Course, folder: Path, listener: Guarded) -> dict[str, Any]:
    """The rounds of a run from its last checkpoint on, and what they come to, in a folder that is locked."""
    run_folder, status = SavedRun(folder), status_of(folder)
    plan, roster, method = course.plan, course.roster, course.plan.method
    run_id = status.get("id") or uuid.uuid4().hex[:12]
    loop = Loop(
        *(course.running or (plan, roster)),
        course.engine,
        evaluate=experiment.evaluate,
        settings=experiment.engine,
        records=run_folder,
        listener=listener,
        server_data=course.server_data,
        synthetic=dict(course.synthetic),
        run_id=run_id,
        groups=course.groups,
    )
    begun, earlier = time.perf_counter(), float(status.get("seconds", 0.0))
    module = plan.flat().module
    known = [*course.notes, *filter(None, [lagging(plan, module, roster)])]
    reported = plan.task.reported
    facts = {
        "id": run_id,
        "objects": status.get("objects", []),
        "method": method.name,
        "method_sends": list(sends_of(experiment, method)),
        "method_privacy": list(method.privacy),
        "about": method.results,
        "data": roster.name,
        "roster": roster.as_dict(),
        "metric": reported.as_dict(),
        "fingerprint": fingerprint(plan, roster),
        "engine": course.chosen,
        "features": course.features,
        "notes": known,
        **sizes_of(plan, module),
        "version": __version__,
        "torch": torch.__version__,
        "started": status.get("started") or datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    run_folder.write_json("run.json", {"status": "running", **facts, "seconds": earlier})
    write_sheet(folder, course.synthetic)
    where = place_of(experiment)
    listener(Event("method", 0, experiment.train.rounds, text=method.name, where=where, folder=folder))
    for note in filter(None, (course.features, *course.warnings, *known)):
        listener(Event("note", 0, experiment.train.rounds, text=note))

    def end(how: str, round_: int, status: str, **more: Any) -> None:
        """The folder says it before listeners hear it, some of which take their time; what they leave is added."""
        notes = [*known, *listener.take_notes()]
        content = {"status": status, **facts, "notes": notes, "seconds": earlier + time.perf_counter() - begun, **more}
        run_folder.write_json("run.json", content)
        listener(Event("over", round_, experiment.train.rounds, text=how))
        if left := listener.take_notes():
            run_folder.write_json("run.json", {**content, "notes": [*notes, *left]})

    try:
        history = loop.run()
    except BaseException as problem:
        message = str(problem) if isinstance(problem, FairsiloError) else f"{type(problem).__name__}: {problem}"
        how = "stopped" if isinstance(problem, Exception) else "interrupted"
        end(how, loop.server.round, how, **({"message": message} if how == "stopped" else {}))
        if isinstance(problem, StoppedError):
            _write_summary(run_folder, experiment, loop.history, plan, roster)
        raise
    clusters = loop.server.memory.get("clustering", {}).get("clusters")
    types = {silo.name: silo.domain for silo in roster.silos}
    found = {CLUSTERED: clustering_accuracy(clusters, types)} if clusters else {}
    summary = _write_summary(run_folder, experiment, history, plan, roster, found)
    facts |= found
    end("finished", experiment.train.rounds, "finished")
    return summary


def refuse_others(folder: Path, status: dict[str, Any], mark: str) -> None:
    if status.get("fingerprint", mark) != mark:
        raise FairsiloError(
            f"{folder} was begun with other data or another model than its config.yaml gives; "
            "resume it from Python with the same `federation` and `model`"
        )


def _write_summary(
    run_folder: SavedRun,
    experiment: Experiment,
    history: History,
    plan: Blueprint,
    roster: Roster,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    rules = experiment.evaluate
    reported, about = plan.task.reported, plan.method.results
    found = summarise(
        history.rows,
        about,
        rules.selection,
        rules.ddof,
        metric=reported.name,
        higher=reported.higher_is_better,
        share=reported.share,
        counts=roster.tested,
    )
    summary = {**found, **(more or {})}
    if rules.groups:
        summary["groups"] = by_group(
            history.groups, summary["rounds"], rules.ddof, reported.higher_is_better, reported.name, reported.share
        )
    if private := spent(history.rounds, plan.method.privacy):
        summary["privacy"] = private
    run_folder.write_json("summary.json", summary)
    return summary


def place_of(experiment: Experiment) -> str:
    """Which of its method's runs it is, in words."""
    held_out = experiment.data.held_out or "-"
    return f"{'no domain' if held_out == '-' else held_out} held out, seed {experiment.seed}"


# ------------------------------------------------------------------------------------------------------------- folders
def start_folder(folder: Path, experiment: Experiment, objects: Objects) -> None:
    """A folder with its configuration, and the kinds of objects that it cannot name; one begun before stays."""
    run_folder = SavedRun(folder)
    run_folder.create()
    if not (folder / "config.yaml").exists():
        objects_given = objects.kinds(experiment.method)
        run_folder.write_json("run.json", {"status": "running", "objects": objects_given, "id": uuid.uuid4().hex[:12]})
        run_folder.write_text("config.yaml", yaml.safe_dump(config.as_dict(experiment), sort_keys=False))


def _refuse_used(folder: Path) -> None:
    if folder.is_file():
        raise FairsiloError(f"{folder} is a file; a run needs a folder of its own")
    if (folder / "config.yaml").exists():
        if finished(folder):
            raise FairsiloError(f"{folder} already holds a finished run; name another folder")
        raise FairsiloError(f"{folder} already holds a run; `{resuming(folder)}` goes on with it")
    if folder.is_dir() and any(path.name not in (LOCK, OWNER) for path in folder.iterdir()):
        raise FairsiloError(f"{folder} is not empty; a run needs a folder of its own")


def _free_folder(experiment: Experiment) -> Path:
    data = experiment.data
    source = data.name or Path(data.folder or data.packed or "data").stem
    base = slug(f"{experiment.method}-{source}-{data.held_out}-seed{experiment.seed}")
    for number in range(1, 10_000):
        folder = Path("runs") / (base if number == 1 else f"{base}-{number}")
        if not folder.exists():
            return folder
    raise FairsiloError("runs/ holds ten thousand runs of this kind; give a folder with --out")
