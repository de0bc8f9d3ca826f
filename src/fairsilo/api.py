"""What users call: run, resume, compare, tune, advise, load. Puts data, method and engine together, writes pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairsilo import config
from fairsilo.advice import pilots as piloting
from fairsilo.advice.pilots import Advice
from fairsilo.config import Experiment
from fairsilo.core.method import Method
from fairsilo.core.part import Part
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import ModelMaker
from fairsilo.engine.events import Callback, Callbacks, silent
from fairsilo.errors import FairsiloError
from fairsilo.report.advice_page import write_advice
from fairsilo.report.page import write_report
from fairsilo.report.tuning_page import write_tuning
from fairsilo.runs import compare as comparing
from fairsilo.runs import running
from fairsilo.runs.cells import Cell
from fairsilo.runs.compare import Comparison
from fairsilo.runs.comparison import Grid, Tuned, method_in
from fairsilo.runs.running import Result
from fairsilo.runs.setup import Objects, as_method, named_method
from fairsilo.runs.trained import Trained
from fairsilo.tuning import search as searching
from fairsilo.tuning.search import Options, Tuning
from fairsilo.tuning.space import read_search


def run(
    experiment: Experiment | None = None,
    *,
    out: str | Path | None = None,
    listener: Callbacks = silent,
    method: str | Method | Part | None = None,
    model: str | ModelMaker | None = None,
    federation: Federation | None = None,
    **settings: Any,
) -> Result:
    """Train a federation, evaluate it, and write the run folder with its report.

    Args:
        experiment: All settings at once; or give them by name.
        out: The run folder; by default one below `runs/`, named after method and data.
        listener: A `Listener`, or any function of an `Event`; or several of them in a list.
        method: A text such as `"fedprox(mu=0.1) | fedheal"`, a method or part of your own, or `"package:Part"`.
        model: The name of a network, `"package:function"`, or a function of (classes, channels) that returns a
            `torch.nn.Module`.
        federation: Silos of your own making; by default those that the settings under `data` describe.
        **settings: Settings by their last word (`rounds=5`) or group (`data={"folder": ...}`).

    Returns:
        The run's `folder`, its `method` and its `summary`: generalisation, personalisation and fairness.

    Raises:
        FairsiloError: Something cannot be run as asked; one sentence says what, and nothing is written.
        StoppedError: Fewer silos than the quorum answered, or the model is no longer finite. It is a FairsiloError.

    Example:
        >>> import fairsilo, tempfile, torch
        >>> split = fairsilo.Split(torch.rand(12, 1, 8, 8), torch.arange(12) % 2)
        >>> a, b, c = (fairsilo.SiloData(name, name, split, split, split) for name in "abc")
        >>> people = fairsilo.Federation("toy", ("no", "yes"), (a, b), unseen=(c,))
        >>> result = fairsilo.run(federation=people, method="fedprox(mu=0.1)", rounds=1, epochs=1,
        ...                       out=tempfile.mkdtemp(), engine={"name": "sequential"})
        >>> 0 <= result.summary["generalisation"]["mean"] <= 1
        True
    """
    if experiment is not None and settings:
        raise FairsiloError(f"give an experiment or settings, not both (got {', '.join(settings)})")
    text, methods = named_method(method) if method is not None else (None, {})
    named = {"method": text, "model": model if isinstance(model, str) else None}
    named = {key: value for key, value in named.items() if value is not None}
    if experiment is None:
        experiment = config.experiment({**settings, **named})
    else:
        experiment = dataclasses.replace(experiment, **named)  # type: ignore[arg-type]
    objects = Objects(federation, None if isinstance(model, str) else model, methods)
    folder = None if out is None else Path(out)
    return running.run(experiment, objects, out=folder, listener=listener, page=write_report)


def resume(
    folder: str | Path,
    listener: Callbacks = silent,
    *,
    method: Method | Part | None = None,
    model: ModelMaker | None = None,
    federation: Federation | None = None,
    trust: bool = False,
) -> Result:
    """Take a run up where it was left, and finish it to the same numbers as if it had never stopped.

    Args:
        folder: The run folder.
        listener: A `Listener`, or any function of an `Event`; or several of them in a list.
        method: The method, where the run was given one of your own that has no name elsewhere.
        model: The function that makes the network, where the run was given one.
        federation: The silos, where the run was given them.
        trust: Import the code that the folder names as `package:name`.

    Returns:
        As `run`. A run that is finished already is read, not trained again.

    Raises:
        FairsiloError: There is no run, another process is at it, it names code to import without `trust`, or it
            needs an object that is not given.

    Example:
        >>> import fairsilo, tempfile, torch
        >>> split = fairsilo.Split(torch.rand(12, 1, 8, 8), torch.arange(12) % 2)
        >>> silos = tuple(fairsilo.SiloData(name, name, split, split, split) for name in "ab")
        >>> people = fairsilo.Federation("toy", ("no", "yes"), silos)
        >>> def interrupt(event):
        ...     if event.kind == "opened" and event.round == 2:
        ...         raise KeyboardInterrupt
        >>> folder = tempfile.mkdtemp()
        >>> try:
        ...     fairsilo.run(federation=people, method="fedavg", rounds=2, epochs=1, out=folder, listener=interrupt,
        ...                  engine={"name": "sequential"})
        ... except KeyboardInterrupt:
        ...     result = fairsilo.resume(folder, federation=people)
        >>> result.summary["rounds"]
        [2]
    """
    methods = {} if method is None else {as_method(method).name: as_method(method)}
    return running.resume(
        Path(folder), Objects(federation, model, methods), trust=trust, listener=listener, page=write_report
    )


def compare(
    methods: Sequence[str | Method | Part],
    *,
    experiment: Experiment | None = None,
    seeds: Sequence[int] | None = None,
    held_out: str | Sequence[str] | None = None,
    grid: Grid | None = None,
    out: str | Path | None = None,
    listener: Callbacks = silent,
    jobs: int = 1,
    cluster: str | None = None,
    planned: Callable[[Sequence[Cell]], object] | None = None,
    tuned: Tuned | None = None,
    model: str | ModelMaker | None = None,
    federation: Federation | None = None,
    **settings: Any,
) -> Comparison:
    """Train several methods on the same silos, held-out domains and seeds, one run each.

    Args:
        methods: Texts, methods or parts; the others are compared with the first. A text may have settings of its own
            behind an @, as in `"fedavg @ lr=0.1"`.
        experiment: The settings that all runs have in common; or give them by name.
        seeds: By default the one of the settings.
        held_out: Domains that are left out in turn, or `"all"`.
        grid: Rows and columns whose compositions are compared, in place of `methods`.
        out: The folder; cells that are finished there are not run again.
        listener: As for `run`. It hears of every run, or, of runs in other processes, when each of them ends; trackers
            follow these too.
        jobs: How many runs are made side by side, each in a process; their numbers are the same.
        cluster: The address of a Dask scheduler, `dask://HOST:PORT`, whose workers make the runs.
        planned: Called with all cells before the first of them runs.
        tuned: Held-out domain -> method -> the text that stands for it there, as `tune` finds them.
        model: As for `run`.
        federation: As for `run`.
        **settings: As for `run`.

    Returns:
        The `folder` and one of `cells` per run: method, held_out, seed, summary and folder.

    Raises:
        FairsiloError: A method is named twice, a cell holds a run with other settings, or as for `run`.

    Example:
        >>> import fairsilo, tempfile, torch
        >>> split = fairsilo.Split(torch.rand(12, 1, 8, 8), torch.arange(12) % 2)
        >>> a, b, c = (fairsilo.SiloData(name, name, split, split, split) for name in "abc")
        >>> people = fairsilo.Federation("toy", ("no", "yes"), (a, b), unseen=(c,))
        >>> found = fairsilo.compare(["fedavg", "fedprox(mu=0.1)"], federation=people, seeds=[0, 1], rounds=1, epochs=1,
        ...                          out=tempfile.mkdtemp(), engine={"name": "sequential"})
        >>> [(cell["method"], cell["seed"]) for cell in found.cells]
        [('fedavg', 0), ('fedavg', 1), ('fedprox(mu=0.1)', 0), ('fedprox(mu=0.1)', 1)]
    """
    named = [named_method(one) for one in methods]
    names = [text for text, _ in named] or list(grid.methods if grid else ())
    given = {name: made for _, found in named for name, made in found.items()}
    if experiment is None:
        first = {"method": method_in(names[0]) if names else "fedavg"}
        experiment = config.experiment({**settings, **first, **({"model": model} if isinstance(model, str) else {})})
    elif isinstance(model, str):
        experiment = dataclasses.replace(experiment, model=model)
    objects = Objects(federation, None if isinstance(model, str) else model, given)
    where = {"jobs": jobs, "cluster": cluster, "planned": planned, "tuned": tuned}
    options = {"seeds": seeds, "held_out": held_out, "grid": grid, "listener": listener, **where}
    return comparing.compare(names, experiment, objects, out=None if out is None else Path(out), **options)  # type: ignore[arg-type]


def tune(
    methods: Sequence[str],
    *,
    experiment: Experiment | None = None,
    trials: int = 20,
    budget: float | None = None,
    held_out: str | Sequence[str] | None = None,
    search: Sequence[str] = (),
    sampler: str = "tpe",
    prune: bool = True,
    by: str = "mean",
    jobs: int = 1,
    out: str | Path | None = None,
    listener: Callback = silent,
    model: str | ModelMaker | None = None,
    federation: Federation | None = None,
    **settings: Any,
) -> Tuning:
    """Search settings for several methods with the same number of trials, judged by validation data alone.

    Trials train on the silos of the training domains; the held-out domain takes no part in any of them.

    Args:
        methods: Texts; what they give stays as it is.
        experiment: The settings that all runs have in common; or give them by name.
        trials: For each method and held-out domain. The first has the settings as they are.
        budget: Seconds after which no trial is begun. Methods take turns, and count with equally many trials.
        held_out: Domains that are left out in turn, or `"all"`; each has a search of its own.
        search: Ranges where they are not the declared ones: `"lr=log:0.001..0.1"`, `"batch_size=16,32"`,
            `"fedprox.mu=0..1"`, `"weight_decay=-"` for what stays as it is.
        sampler: `tpe`, which learns from the trials before, or `random`.
        prune: Give up runs that are behind the median of the trials before.
        by: The `mean` over the silos' validation results, or the `worst` of them.
        jobs: How many trials are made side by side, each in a process.
        out: The folder; a search that was interrupted there goes on.
        listener: A `Listener`, or any function of an `Event`.
        model: As for `run`.
        federation: As for `run`.
        **settings: As for `run`.

    Returns:
        What was `found`, and as `tuned` what `compare` takes.

    Raises:
        FairsiloError: There is nothing to search or to judge by, or as for `compare`.

    Example:
        >>> import fairsilo, tempfile, torch
        >>> split = fairsilo.Split(torch.rand(12, 1, 8, 8), torch.arange(12) % 2)
        >>> a, b, c = (fairsilo.SiloData(name, name, split, split, split) for name in "abc")
        >>> people = fairsilo.Federation("toy", ("no", "yes"), (a, b), unseen=(c,))
        >>> found = fairsilo.tune(["fedavg", "fedprox"], federation=people, trials=2, rounds=1, epochs=1,
        ...                       out=tempfile.mkdtemp(), engine={"name": "sequential"})
        >>> found.counted, list(found.tuned["c"])
        ({'c': 2}, ['fedavg', 'fedprox'])
    """
    if experiment is None:
        named = {"method": method_in(methods[0]) if methods else "fedavg"}
        experiment = config.experiment({**settings, **named, **({"model": model} if isinstance(model, str) else {})})
    elif isinstance(model, str):
        experiment = dataclasses.replace(experiment, model=model)
    ranges = read_search(search, methods)
    options = Options(trials, budget, ranges, sampler, prune, by, jobs)
    objects = Objects(federation, None if isinstance(model, str) else model)
    folder = None if out is None else Path(out)
    found = searching.tune(
        list(methods), experiment, objects, options, held_out=held_out, out=folder, listener=listener
    )
    write_tuning(found.folder)
    return found


def advise(
    methods: Sequence[str] = (),
    *,
    experiment: Experiment | None = None,
    budget: float = 600.0,
    goal: str = "all",
    pilot_rounds: int | None = None,
    seeds: int = 8,
    jobs: int = 1,
    out: str | Path | None = None,
    listener: Callbacks = silent,
    model: str | ModelMaker | None = None,
    federation: Federation | None = None,
    **settings: Any,
) -> Advice:
    """Find out which method suits a federation, by short pilots on its training data.

    Neither a held-out domain nor the silos' test samples take part: in pilots a training domain plays the unseen one,
    and silos' validation samples the test data.

    Args:
        methods: Texts, tried beside FedAvg; by default a handful of different kinds.
        experiment: The settings that all pilots have in common; or give them by name.
        budget: Seconds. Methods take turns with one seed after the other until the time is up.
        goal: `all`, or the one answer that counts: `generalise`, `personalise`, `fair`.
        pilot_rounds: By default as many as the time allows, at most those of the settings.
        seeds: At most so many.
        jobs: How many pilots are made side by side, each in a process.
        out: The folder; pilots that are finished there are not run again.
        listener: As for `run`.
        model: As for `run`.
        federation: As for `run`.
        **settings: As for `run`.

    Returns:
        What is `recommended` (None where the pilots did not learn), the `verdict` with all comparisons, the `shift`
        between silos, and `costs`.

    Raises:
        FairsiloError: The time is too short, there is no other method to try, or as for `compare`.

    Example:
        >>> import fairsilo, tempfile, torch
        >>> def split(count):
        ...     return fairsilo.Split(torch.rand(count, 1, 8, 8), torch.arange(count) % 2)
        >>> silos = tuple(fairsilo.SiloData(name, name, split(20), split(6), split(6)) for name in "ab")
        >>> people = fairsilo.Federation("toy", ("no", "yes"), silos)
        >>> found = fairsilo.advise(["fedprox"], federation=people, pilot_rounds=1, seeds=2, epochs=1,
        ...                         out=tempfile.mkdtemp(), engine={"name": "sequential"})
        >>> found.methods, found.seeds, round(found.shift.sizes)
        (('fedavg', 'fedprox'), (0, 1), 1)
    """
    if experiment is None:
        experiment = config.experiment({**settings, **({"model": model} if isinstance(model, str) else {})})
    elif isinstance(model, str):
        experiment = dataclasses.replace(experiment, model=model)
    objects = Objects(federation, None if isinstance(model, str) else model)
    options = piloting.Options(budget, goal, pilot_rounds, seeds, jobs)
    folder = None if out is None else Path(out)
    found = piloting.advise(list(methods), experiment, objects, options, out=folder, listener=listener)
    write_advice(found.folder)
    return found


def load(
    folder: str | Path,
    *,
    method: Method | Part | None = None,
    model: ModelMaker | None = None,
    trust: bool = False,
) -> Trained:
    """A finished run, to predict with, to evaluate elsewhere, or to let a new silo join.

    Args:
        folder: The run folder.
        method: The method, where the run was given one of your own that has no name elsewhere.
        model: The function that makes the network, where the run was given one.
        trust: Import the code that the folder names as `package:name`.

    Returns:
        The trained models, with `predict`, `evaluate`, `adapt`, `personalise` and `attention`.

    Raises:
        FairsiloError: As for `Trained`.

    Example:
        >>> import fairsilo, tempfile, torch
        >>> split = fairsilo.Split(torch.rand(12, 1, 8, 8), torch.arange(12) % 2)
        >>> silos = tuple(fairsilo.SiloData(name, name, split, split, split) for name in "ab")
        >>> people = fairsilo.Federation("toy", ("no", "yes"), silos)
        >>> result = fairsilo.run(federation=people, method="fedavg", rounds=1, epochs=1, out=tempfile.mkdtemp(),
        ...                       engine={"name": "sequential"})
        >>> fairsilo.load(result.folder).predict(torch.rand(3, 1, 8, 8)).argmax(1).shape
        torch.Size([3])
    """
    return Trained(folder, method=method, model=model, trust=trust)
