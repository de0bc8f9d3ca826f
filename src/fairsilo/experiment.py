"""From settings to results: run, resume, compare. The one place that puts data, method, engine and folder together."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from fairsilo import __version__, config, methods
from fairsilo.config import Experiment
from fairsilo.data import load
from fairsilo.engine.base import Engine
from fairsilo.engine.host import Blueprint, ModelMaker
from fairsilo.engine.loop import Event, Listener, Loop, silent
from fairsilo.engine.processes import Pool, Processes
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError, QuorumError
from fairsilo.federation import Federation, federate, held_out_domains
from fairsilo.metrics import summarise
from fairsilo.report.page import write_report
from fairsilo.store import Store
from fairsilo.tasks import Classify


@dataclass(frozen=True)
class Result:
    """A finished run: its folder, its three answers, and the baseline's where one was trained beside it."""

    folder: Path
    method: str
    summary: dict[str, Any]
    baseline: Result | None = None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        content = {"folder": str(self.folder), "method": self.method, "summary": self.summary}
        return {**content, "baseline": self.baseline.as_dict() if self.baseline else None}


def run(
    experiment: Experiment | None = None,
    *,
    out: str | Path | None = None,
    listener: Listener = silent,
    model: str | ModelMaker | None = None,
    federation: Federation | None = None,
    **settings: Any,
) -> Result:
    """Train a federation, evaluate it, write the run folder and its report.

    Settings are those of the configuration, by their last word (`rounds=5`) or group (`data={"folder": ...}`). A
    model may be a function of (classes, channels), a federation one of your own making.
    """
    if experiment is None:
        if isinstance(model, str):
            settings["model"] = model
        experiment = config.experiment(settings)
    elif settings:
        raise FairsiloError(f"give an experiment or settings, not both (got {', '.join(settings)})")
    if out is not None:
        _refuse_used(Path(out))
    methods.method(experiment.method)
    built = federation or federation_of(experiment)
    experiment = _named_held_out(experiment, built)
    maker = model if callable(model) else None
    check(experiment, built, maker)
    folder = Path(out) if out is not None else _free_folder(experiment)
    _start_folder(folder, experiment)
    return _run_both(experiment, built, folder, listener, maker)


def resume(folder: str | Path, listener: Listener = silent) -> Result:
    """Take a run up where it was left, and finish it to the same numbers."""
    folder = Path(folder)
    experiment = read_experiment(folder)
    return _run_both(experiment, federation_of(experiment), folder, listener, None)


def read_experiment(folder: Path) -> Experiment:
    if not (folder / "config.yaml").exists():
        raise FairsiloError(f"{folder} is no run folder: it has no config.yaml")
    return config.experiment(config.read_yaml(folder / "config.yaml"))


def federation_of(experiment: Experiment) -> Federation:
    data = experiment.data
    dataset = load(
        name=data.name, folder=data.folder, packed=data.packed, size=data.size, seed=data.seed, domains=data.domains
    )
    return federate(
        dataset,
        held_out=data.held_out,
        silos_per_domain=data.silos_per_domain,
        validation=data.validation,
        test=data.test,
        seed=data.seed,
    )


def check(experiment: Experiment, federation: Federation, maker: ModelMaker | None = None) -> None:
    """Refuse what cannot run before anything is written."""
    _engine_kind(experiment, federation)
    for name in filter(None, (experiment.method, experiment.baseline)):
        plan = blueprint(dataclasses.replace(experiment, method=name), federation, maker)
        without = tuple(silo.name for silo in federation.silos if not len(silo.validation))
        plan.method.check(plan.start()[0], plan.training, plan.task.name, without)


def _named_held_out(experiment: Experiment, federation: Federation) -> Experiment:
    """`auto` replaced by what it came to, so that the saved configuration says it."""
    named = "+".join(federation.unseen_names) or "-"
    return dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, held_out=named))


# ------------------------------------------------------------------------------------------------------------ one run
def _run_both(
    experiment: Experiment, federation: Federation, folder: Path, listener: Listener, maker: ModelMaker | None
) -> Result:
    """The method, then the baseline in a folder of its own inside, then the page that shows both."""
    alone = dataclasses.replace(experiment, baseline=None)
    with _engines(experiment, federation) as engine_for, _threads(experiment.engine.threads):
        try:
            result = _run_one(alone, federation, folder, listener, engine_for, maker)
            if experiment.baseline:
                second = dataclasses.replace(alone, method=experiment.baseline)
                inside = folder / "baseline"
                _start_folder(inside, second)
                beside = _run_one(second, federation, inside, listener, engine_for, maker)
                result = dataclasses.replace(result, baseline=beside)
        except QuorumError:
            write_report(folder)
            raise
    write_report(folder)
    return result


def _run_one(
    experiment: Experiment,
    federation: Federation,
    folder: Path,
    listener: Listener,
    engine_for: Callable[[Blueprint], Engine],
    maker: ModelMaker | None,
) -> Result:
    store = Store(folder)
    method = methods.method(experiment.method)
    status = _status(store)
    if status.get("status") == "finished":
        return Result(folder, method.name, store.read_json("summary.json"))
    plan = blueprint(experiment, federation, maker)
    loop = Loop(
        plan,
        federation,
        engine_for(plan),
        evaluate=experiment.evaluate,
        settings=experiment.engine,
        store=store,
        listener=listener,
    )
    begun, earlier = time.perf_counter(), float(status.get("seconds", 0.0))
    facts = {
        "method": method.name,
        "method_sends": list(method.sends),
        "about": method.about,
        "version": __version__,
        "torch": torch.__version__,
        "started": status.get("started") or datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    store.write_json("run.json", {"status": "running", **facts, "seconds": earlier})
    listener(Event("method", 0, experiment.train.rounds, text=method.name))
    try:
        history = loop.run()
    except BaseException as problem:
        message = str(problem) if isinstance(problem, FairsiloError) else f"{type(problem).__name__}: {problem}"
        seconds = earlier + time.perf_counter() - begun
        store.write_json("run.json", {"status": "stopped", **facts, "seconds": seconds, "message": message})
        if isinstance(problem, QuorumError):
            _write_summary(store, experiment, loop.history.rows, method.about)
        raise
    summary = _write_summary(store, experiment, history.rows, method.about)
    seconds = earlier + time.perf_counter() - begun
    store.write_json("run.json", {"status": "finished", **facts, "seconds": seconds})
    return Result(folder, method.name, summary)


def blueprint(experiment: Experiment, federation: Federation, maker: ModelMaker | None = None) -> Blueprint:
    """What every silo must know, from the settings and the data's own shape."""
    inputs = federation.silos[0].train.inputs
    return Blueprint(
        method=methods.method(experiment.method),
        model=maker or experiment.model,
        task=Classify(len(federation.classes), experiment.evaluate.metric),
        channels=inputs.shape[1] if inputs.dim() > 1 else 1,
        training=experiment.train,
        seed=experiment.seed,
        augment=experiment.data.augment,
        evaluation_batch=experiment.evaluate.batch,
        device=experiment.engine.device,
        threads=experiment.engine.threads,
    )


def _write_summary(store: Store, experiment: Experiment, rows: Sequence[dict[str, Any]], about: str) -> dict[str, Any]:
    summary = summarise(rows, about, experiment.evaluate.selection, experiment.evaluate.ddof)
    store.write_json("summary.json", summary)
    return summary


def _status(store: Store) -> dict[str, Any]:
    return store.read_json("run.json") if (store.folder / "run.json").exists() else {}


@contextmanager
def _engines(experiment: Experiment, federation: Federation) -> Iterator[Callable[[Blueprint], Engine]]:
    """Makes engines of the chosen kind; worker processes are started once and serve all of them."""
    settings = experiment.engine
    kind, workers = _engine_kind(experiment, federation)
    if kind == "sequential":
        yield lambda plan: Sequential(plan, federation, settings.strict)
        return
    pool = Pool(workers)
    try:
        yield lambda plan: Processes(plan, federation, pool, timeout=settings.timeout, strict=settings.strict)
    finally:
        pool.close()


def _engine_kind(experiment: Experiment, federation: Federation) -> tuple[str, int]:
    """Which engine, and how many workers it would have."""
    settings = experiment.engine
    workers = min(settings.workers or os.cpu_count() or 1, len(federation.silos) + len(federation.unseen))
    kind = settings.name
    if kind == "auto":
        kind = "processes" if workers > 1 and settings.device == "cpu" else "sequential"
    if settings.device == "cuda":
        if kind == "processes":
            raise FairsiloError("engine.device=cuda is not for the processes engine; set engine.name=sequential")
        if not torch.cuda.is_available():
            raise FairsiloError("engine.device is 'cuda', and PyTorch finds no GPU here; set device=cpu")
    return kind, workers


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch at a fixed number of threads, as in the workers: results do not depend on the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------------------------------------------------------- folders
def _start_folder(folder: Path, experiment: Experiment) -> None:
    store = Store(folder)
    store.create()
    if not (folder / "config.yaml").exists():
        store.write_text("config.yaml", yaml.safe_dump(config.as_dict(experiment), sort_keys=False))


def _refuse_used(folder: Path) -> None:
    if folder.is_file():
        raise FairsiloError(f"{folder} is a file; a run needs a folder of its own")
    if (folder / "config.yaml").exists():
        raise FairsiloError(f"{folder} already holds a run; `fairsilo resume {folder}` goes on with it")
    if folder.is_dir() and any(folder.iterdir()):
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


def slug(text: str) -> str:
    """A file name from a method's text, readable and without surprises."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-")


# ------------------------------------------------------------------------------------------------------------- compare
def compare(
    names: Sequence[str],
    *,
    experiment: Experiment | None = None,
    seeds: Sequence[int] = (0,),
    held_out: str | Sequence[str] | None = None,
    out: str | Path | None = None,
    listener: Listener = silent,
    **settings: Any,
) -> Comparison:
    """Methods x held-out domains x seeds, one run each; cells that were left unfinished are taken up again.

    `held_out` may be `all`. The first method is the one that the others are compared with.
    """
    base = experiment or config.experiment({"method": names[0] if names else "fedavg", **settings})
    if len(names) < 1:
        raise FairsiloError("name at least one method to compare, such as `fairsilo compare fedavg faa`")
    texts = {name: methods.method(name).name for name in names}
    if len(set(texts.values())) < len(names):
        raise FairsiloError("a method is named twice")
    domains = _held_out_list(base, held_out)
    folder = Path(out) if out is not None else Path("runs") / slug("compare-" + "-".join(names))[:80]
    cells = []
    for domain in domains:
        data = dataclasses.replace(base.data, held_out=domain)
        federation = federation_of(dataclasses.replace(base, data=data))
        with _engines(base, federation) as engine_for, _threads(base.engine.threads):
            for name in names:
                for seed in seeds:
                    cell = dataclasses.replace(base, method=name, baseline=None, seed=seed, data=data)
                    inside = folder / slug(name) / slug(f"{domain}-seed{seed}")
                    _check_cell(inside, cell)
                    _start_folder(inside, cell)
                    result = _run_one(cell, federation, inside, listener, engine_for, None)
                    cells.append({"method": name, "held_out": domain, "seed": seed, "summary": result.summary})
    comparison = Comparison(folder, tuple(names), tuple(domains), tuple(seeds), tuple(cells))
    Store(folder).write_json("comparison.json", comparison.as_dict())
    return comparison


@dataclass(frozen=True)
class Comparison:
    folder: Path
    methods: tuple[str, ...]
    held_out: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[dict[str, Any], ...]

    def as_dict(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        return json.loads(json.dumps({**content, "folder": str(self.folder)}))  # type: ignore[no-any-return]


def _held_out_list(base: Experiment, held_out: str | Sequence[str] | None) -> list[str]:
    if held_out is None:
        return [base.data.held_out or "-"]
    chosen: Iterable[str] = held_out.split(",") if isinstance(held_out, str) else held_out
    listed = [text.strip() for text in chosen]
    data = base.data
    dataset = load(name=data.name, folder=data.folder, packed=data.packed, size=data.size, domains=data.domains)
    if listed == ["all"]:
        return list(dataset.domains)
    for one in listed:
        held_out_domains(dataset, one)
    return listed


def _check_cell(folder: Path, cell: Experiment) -> None:
    if (folder / "config.yaml").exists() and read_experiment(folder) != cell:
        raise FairsiloError(f"{folder} holds a run with other settings; choose another folder with --out")
