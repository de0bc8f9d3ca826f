"""From settings to results: run, resume, compare. The one place that puts data, method, engine and folder together."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from fairsilo import __version__, config
from fairsilo.analysis.metrics import CLUSTERED, summarise
from fairsilo.config import Experiment
from fairsilo.core.samples import Split
from fairsilo.core.vectors import tensors_of
from fairsilo.data import load
from fairsilo.data.federation import Federation, federate, held_out_domains, pooled
from fairsilo.data.newcomer import read_newcomer
from fairsilo.data.synthetic import check_synthetic, leaving, like, make_synthetic, too_few
from fairsilo.engine.base import Engine
from fairsilo.engine.features import Shelf, keep_features
from fairsilo.engine.host import Blueprint, ModelMaker
from fairsilo.engine.loop import Event, Listener, Loop, silent
from fairsilo.engine.processes import Pool, Processes
from fairsilo.engine.sequential import Sequential
from fairsilo.errors import FairsiloError, StoppedError
from fairsilo.methods import catalogue
from fairsilo.methods.parts.clustering import clustering_accuracy
from fairsilo.methods.text import method as method_of
from fairsilo.report.page import write_report
from fairsilo.runs.comparison import Grid
from fairsilo.runs.folder import Store
from fairsilo.tasks.classify import Classify


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
    experiment_given = experiment is not None
    if experiment is None:
        if isinstance(model, str):
            settings["model"] = model
        experiment = config.experiment(settings)
    elif isinstance(model, str):
        experiment = dataclasses.replace(experiment, model=model)
    if experiment_given and settings:
        raise FairsiloError(f"give an experiment or settings, not both (got {', '.join(settings)})")
    if out is not None:
        _refuse_used(Path(out))
    method_of(experiment.method)
    built = federation or federation_of(experiment)
    experiment = _resolved(experiment, built)
    maker = model if callable(model) else None
    check(experiment, built, maker)
    folder = Path(out) if out is not None else _free_folder(experiment)
    _start_folder(folder, experiment)
    objects = [name for name, given in (("federation", federation), ("model", maker)) if given is not None]
    Store(folder).write_json("run.json", {"status": "running", "objects": objects})
    return _run_both(experiment, built, folder, listener, maker)


def resume(
    folder: str | Path,
    listener: Listener = silent,
    *,
    model: ModelMaker | None = None,
    federation: Federation | None = None,
) -> Result:
    """Take a run up where it was left, and finish it to the same numbers.

    A run that was given a model or a federation as a Python object needs the same one again.
    """
    folder = Path(folder)
    experiment = read_experiment(folder)
    given = {"federation": federation, "model": model}
    for name in _status(Store(folder)).get("objects", ()):
        if given[name] is None:
            raise FairsiloError(
                f"{folder} was begun from Python with a {name} of its own; resume it there: "
                f"fairsilo.resume(folder, {name}=...)"
            )
    return _run_both(experiment, federation or federation_of(experiment), folder, listener, model)


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
        dif=data.dif,
        order=data.domains,
        validation=data.validation,
        test=data.test,
        seed=data.seed,
    )


def synthetic_of(
    experiment: Experiment, federation: Federation, folder: Path | None = None, shelf: Shelf | None = None
) -> dict[str, Split]:
    """Silo -> labelled images in its style, from the generator that the settings name.

    What takes long to make is kept in the run's folder, and on the shelf for the other runs of this process.
    """
    data = experiment.data
    if data.synthetic is None:
        return {}
    shared = None if shelf is None else shelf.found
    settings = (data.synthetic_share, data.synthetic_bad, data.seed)
    return make_synthetic(data.synthetic, federation, *settings, folder and folder / "synthetic", shared)


def sends_of(experiment: Experiment) -> tuple[str, ...]:
    """What silos give away besides the model, in words: for the method, and for images made in their style."""
    sends = method_of(experiment.method).sends
    return (*sends, *leaving(experiment.data.synthetic)) if experiment.data.synthetic else sends


def server_data_of(
    experiment: Experiment, federation: Federation, synthetic: dict[str, Split] | None = None
) -> Split | None:
    """All images given to the server, whatever their domain (if they have one), with the federation's class numbers.

    Where no folder is given, the synthetic images of all silos.
    """
    path = experiment.data.server
    if path is None:
        if not synthetic:
            return None
        made = [synthetic[name] for name in sorted(synthetic)]
        return Split(torch.cat([one.inputs for one in made]), torch.cat([one.targets for one in made]))
    if not Path(path).exists():  # read_newcomer would take a name such as glyphs for the embedded federation
        raise FairsiloError(
            f"data.server={path} does not exist; give PATH/class/image, PATH/domain/class/image or packed files"
        )
    size = max(federation.silos[0].train.inputs.shape[-2:])
    domains = read_newcomer(path, federation.classes, size).values()
    targets = torch.cat([domain.targets for domain in domains])
    for number, name in enumerate(federation.classes):
        if not (targets == number).any():
            raise FairsiloError(f"data.server={path} has no image of the federation's class {name!r}")
    return Split(torch.cat([like(domain.inputs, federation) for domain in domains]), targets)


def check(experiment: Experiment, federation: Federation, maker: ModelMaker | None = None) -> None:
    """Refuse what cannot run before anything is written."""
    check_data(experiment, federation)
    check_methods(experiment, federation, maker)


def check_methods(experiment: Experiment, federation: Federation, maker: ModelMaker | None = None) -> None:
    """The method, and the baseline where there is one, with this model and these data."""
    data = experiment.data
    made = data.synthetic is not None
    for name in filter(None, (experiment.method, experiment.baseline)):
        model = catalogue.model_for(name) if experiment.model == "auto" else experiment.model
        plan = blueprint(dataclasses.replace(experiment, method=name, model=model), federation, maker)
        plan.check(federation, data.server is not None or made, made)


def check_data(experiment: Experiment, federation: Federation) -> None:
    """The engine, and what is given or made besides the silos' data: the same for every method."""
    _engine_kind(experiment, federation)
    data = experiment.data
    server_data_of(experiment, federation)
    if data.synthetic is not None:
        check_synthetic(data.synthetic, federation, data.synthetic_share, data.synthetic_bad, data.seed)


def _resolved(experiment: Experiment, federation: Federation) -> Experiment:
    """`auto` replaced by what it came to, so that the saved configuration says it."""
    named = "+".join(dict.fromkeys(silo.domain for silo in federation.unseen)) or "-"
    model = catalogue.model_for(experiment.method) if experiment.model == "auto" else experiment.model
    return dataclasses.replace(experiment, model=model, data=dataclasses.replace(experiment.data, held_out=named))


# ------------------------------------------------------------------------------------------------------------ one run
def _run_both(
    experiment: Experiment, federation: Federation, folder: Path, listener: Listener, maker: ModelMaker | None
) -> Result:
    """The method, then the baseline in a folder of its own inside, then the page that shows both."""
    alone = dataclasses.replace(experiment, baseline=None)
    shelf = Shelf(experiment.engine.features_limit)
    with _engines(experiment, federation) as engine_for, _threads(experiment.engine.threads):
        try:
            result = _run_one(alone, federation, folder, listener, engine_for, shelf, maker)
            if experiment.baseline:
                second = dataclasses.replace(alone, method=experiment.baseline)
                inside = folder / "baseline"
                _start_folder(inside, second)
                beside = _run_one(second, federation, inside, listener, engine_for, shelf, maker)
                result = dataclasses.replace(result, baseline=beside)
        except StoppedError:
            write_report(folder)
            raise
    write_report(folder)
    return result


def _run_one(
    experiment: Experiment,
    federation: Federation,
    folder: Path,
    listener: Listener,
    engine_for: Callable[[Blueprint, Federation], Engine],
    shelf: Shelf,
    maker: ModelMaker | None = None,
) -> Result:
    store = Store(folder)
    method = method_of(experiment.method)
    status = _status(store)
    if status.get("status") == "finished":
        return Result(folder, method.name, store.read_json("summary.json"))
    synthetic = synthetic_of(experiment, federation, folder, shelf)
    short = too_few(federation, experiment.data.synthetic_share, synthetic)
    if method.pools:
        federation = pooled(federation, synthetic.values())
    plan = blueprint(experiment, federation, maker)
    _refuse_others(folder, status, mark := fingerprint(plan, federation))
    prepared = keep_features(
        plan,
        federation,
        server_data_of(experiment, federation, synthetic),
        wanted=experiment.engine.keep_features,
        limit=experiment.engine.features_limit,
        folder=folder / "features",
        shelf=shelf,
    )
    loop = Loop(
        prepared.plan,
        prepared.federation,
        engine_for(prepared.plan, prepared.federation),
        evaluate=experiment.evaluate,
        settings=experiment.engine,
        store=store,
        listener=listener,
        server_data=prepared.server_data,
        synthetic=synthetic,
    )
    begun, earlier = time.perf_counter(), float(status.get("seconds", 0.0))
    facts = {
        "objects": status.get("objects", []),
        "method": method.name,
        "method_sends": list(sends_of(experiment)),
        "about": method.results,
        "classes": list(federation.classes),
        "shape": list(shape_of(federation)),
        "silos": list(federation.names),
        "unseen": list(federation.unseen_names),
        "fingerprint": mark,
        "features": prepared.said,
        **_sizes(plan),
        "version": __version__,
        "torch": torch.__version__,
        "started": status.get("started") or datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    store.write_json("run.json", {"status": "running", **facts, "seconds": earlier})
    listener(Event("method", 0, experiment.train.rounds, text=method.name))
    for note in filter(None, (prepared.said, short)):
        listener(Event("note", 0, experiment.train.rounds, text=note))
    try:
        history = loop.run()
    except BaseException as problem:
        message = str(problem) if isinstance(problem, FairsiloError) else f"{type(problem).__name__}: {problem}"
        seconds = earlier + time.perf_counter() - begun
        store.write_json("run.json", {"status": "stopped", **facts, "seconds": seconds, "message": message})
        if isinstance(problem, StoppedError):
            _write_summary(store, experiment, loop.history.rows, method.results)
        raise
    clusters = loop.server.memory.get("clustering", {}).get("clusters")
    types = {silo.name: silo.domain for silo in federation.silos}
    found = {CLUSTERED: clustering_accuracy(clusters, types)} if clusters else {}
    summary = _write_summary(store, experiment, history.rows, method.results, found)
    facts |= found
    seconds = earlier + time.perf_counter() - begun
    store.write_json("run.json", {"status": "finished", **facts, "seconds": seconds})
    shutil.rmtree(folder / "features", ignore_errors=True)  # made of the silos' images, and of no use any more
    return Result(folder, method.name, summary)


def blueprint(experiment: Experiment, federation: Federation, maker: ModelMaker | None = None) -> Blueprint:
    """What every silo must know, from the settings and the data's own shape."""
    return plan_of(experiment, federation.classes, shape_of(federation), federation.names, maker)


def shape_of(federation: Federation) -> tuple[int, ...]:
    """Of one sample."""
    return tuple(federation.silos[0].train.inputs.shape[1:])


def plan_of(
    experiment: Experiment,
    classes: tuple[str, ...],
    shape: tuple[int, ...],
    silos: tuple[str, ...],
    maker: ModelMaker | None = None,
) -> Blueprint:
    return Blueprint(
        method=method_of(experiment.method),
        model=maker or experiment.model,
        task=Classify(len(classes), experiment.evaluate.metric),
        classes=tuple(classes),
        silos=tuple(silos),
        channels=shape[0] if shape else 1,
        training=experiment.train,
        seed=experiment.seed,
        augment=experiment.data.augment,
        evaluation_batch=experiment.evaluate.batch,
        device=experiment.engine.device,
        precision=experiment.engine.precision,
        threads=experiment.engine.threads,
    )


def _sizes(plan: Blueprint) -> dict[str, int]:
    """Bytes of what is sent of the model, and of the whole of it."""
    module = plan.flat().module
    whole = sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(module).values())
    layout = plan.start()[0].wire
    return {"bytes_sent": layout.size * layout.dtype.itemsize, "bytes_model": whole}


def fingerprint(plan: Blueprint, federation: Federation) -> str:
    """What a checkpoint only fits: the silos with their sizes, the classes, the model's tensors."""
    silos = [(silo.name, len(silo.train), len(silo.validation), len(silo.test)) for silo in federation.silos]
    facts = json.dumps([silos, federation.unseen_names, federation.classes, plan.start()[0].describe()])
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _refuse_others(folder: Path, status: dict[str, Any], mark: str) -> None:
    if status.get("fingerprint", mark) != mark:
        raise FairsiloError(
            f"{folder} was begun with other data or another model than its config.yaml gives; "
            "resume it from Python with the same `federation` and `model`"
        )


def _write_summary(
    store: Store,
    experiment: Experiment,
    rows: Sequence[dict[str, Any]],
    about: str,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    summary = {**summarise(rows, about, experiment.evaluate.selection, experiment.evaluate.ddof), **(more or {})}
    store.write_json("summary.json", summary)
    return summary


def _status(store: Store) -> dict[str, Any]:
    return store.read_json("run.json") if (store.folder / "run.json").exists() else {}


@contextmanager
def _engines(experiment: Experiment, federation: Federation) -> Iterator[Callable[[Blueprint, Federation], Engine]]:
    """Makes engines of the chosen kind; worker processes are started once and serve all of them."""
    settings = experiment.engine
    kind, workers = _engine_kind(experiment, federation)
    if kind == "sequential":
        yield lambda plan, silos: Sequential(plan, silos, settings.strict)
        return
    pool = Pool(workers)
    try:
        yield lambda plan, silos: Processes(plan, silos, pool, timeout=settings.timeout, strict=settings.strict)
    finally:
        pool.close()


def _engine_kind(experiment: Experiment, federation: Federation) -> tuple[str, int]:
    """Which engine, and how many workers it would have."""
    settings = experiment.engine
    workers = min(settings.workers or os.cpu_count() or 1, len(federation.silos) + len(federation.unseen))
    kind = settings.name
    if kind == "auto":
        kind = "processes" if workers > 1 and settings.device == "cpu" else "sequential"
    if settings.precision == "bfloat16" and settings.device == "cpu":
        raise FairsiloError("engine.precision=bfloat16 is for GPUs; set engine.device=cuda or leave it at float32")
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
    seeds: Sequence[int] | None = None,
    held_out: str | Sequence[str] | None = None,
    grid: Grid | None = None,
    out: str | Path | None = None,
    listener: Listener = silent,
    **settings: Any,
) -> Comparison:
    """Methods x held-out domains x seeds, one run each; cells that were left unfinished are taken up again.

    `held_out` may be `all`. The first method is the one that the others are compared with. Where the methods are the
    compositions of a `grid`, it is kept with the results, so that the page can show them as rows and columns.
    """
    names = tuple(names) or (grid.methods if grid else ())
    base = experiment or config.experiment({"method": names[0] if names else "fedavg", **settings})
    seeds = (base.seed,) if seeds is None else tuple(seeds)
    _check_names(names)
    folder = Path(out) if out is not None else Path("runs") / slug("compare-" + "-".join(names))[:80]
    cells, domains, shelf = [], [], Shelf(base.engine.features_limit)
    for domain in _held_out_list(base, held_out):
        here = dataclasses.replace(base, baseline=None, data=dataclasses.replace(base.data, held_out=domain))
        federation = federation_of(here)
        here = dataclasses.replace(_resolved(here, federation), model=here.model)
        domains.append(named := here.data.held_out or "-")
        check_data(here, federation)
        for name in names:
            check_methods(_resolved(dataclasses.replace(here, method=name), federation), federation)
        with _engines(here, federation) as engine_for, _threads(here.engine.threads):
            for name in names:
                for seed in seeds:
                    cell = _resolved(dataclasses.replace(here, method=name, seed=seed), federation)
                    inside = folder / slug(name) / slug(f"{named}-seed{seed}")
                    _check_cell(inside, cell)
                    _start_folder(inside, cell)
                    result = _run_one(cell, federation, inside, listener, engine_for, shelf)
                    cells.append({"method": name, "held_out": named, "seed": seed, "summary": result.summary})
    comparison = Comparison(folder, names, tuple(domains), seeds, tuple(cells), grid, config.as_dict(base))
    Store(folder).write_json("comparison.json", comparison.as_dict())
    return comparison


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise FairsiloError("name at least one method to compare, such as `fairsilo compare fedavg faa`")
    seen: dict[str, str] = {}
    for name in names:
        made = method_of(name).name
        if made in seen:
            raise FairsiloError(f"a method is named twice: {seen[made]!r} and {name!r} are the same")
        seen[made] = name


@dataclass(frozen=True)
class Comparison:
    folder: Path
    methods: tuple[str, ...]
    held_out: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[dict[str, Any], ...]
    grid: Grid | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # what all runs have in common

    def as_dict(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        return json.loads(json.dumps({**content, "folder": str(self.folder)}))  # type: ignore[no-any-return]


def _held_out_list(base: Experiment, held_out: str | Sequence[str] | None) -> list[str]:
    if held_out is None:
        return [base.data.held_out or "-"]
    chosen: Iterable[str] = held_out.split(",") if isinstance(held_out, str) else held_out
    listed = list(dict.fromkeys(text.strip() for text in chosen))
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
