"""Methods x held-out domains x seeds, one run each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo import config
from fairsilo.config import Experiment
from fairsilo.data.dataset import Dataset
from fairsilo.data.federation import Federation, held_out_domains
from fairsilo.data.groups import groups_of
from fairsilo.engine.events import Callbacks, guarded, silent
from fairsilo.engine.features import Shelf
from fairsilo.errors import FairsiloError
from fairsilo.runs.cells import Cell, check_cell, check_cluster, on_cluster, one_by_one, side_by_side
from fairsilo.runs.comparison import OWN, Grid, Tuned, method_in, row_of
from fairsilo.runs.effects import refuse_idle
from fairsilo.runs.folder import PLAN, RESULTS, RunFolder, slug
from fairsilo.runs.setup import (
    Objects,
    check_data,
    check_methods,
    dataset_of,
    engine_of,
    evaluate_of,
    federation_of,
    resolved,
)


def compare(
    names: Sequence[str],
    base: Experiment,
    objects: Objects,
    *,
    seeds: Sequence[int] | None = None,
    held_out: str | Sequence[str] | None = None,
    grid: Grid | None = None,
    out: Path | None = None,
    listener: Callbacks = silent,
    jobs: int = 1,
    cluster: str | None = None,
    planned: Callable[[Sequence[Cell]], object] | None = None,
    tuned: Tuned | None = None,
) -> Comparison:
    """One run per method, held-out domain and seed; cells that were left unfinished are taken up again.

    Args:
        names: The methods' texts, with settings of their own behind an @; the first is the one that the others are
            compared with.
        base: The settings that all runs have in common.
        objects: What was given as Python objects.
        seeds: Of the runs; by default the one of `base`.
        held_out: Domains, or `all`; by default the one of `base`. Commas separate cells, each with one domain held
            out; `a+b` holds out both at once.
        grid: Where the methods are its compositions: kept with the results, so that the page can show rows and columns.
        out: The folder of the comparison.
        listener: Told of every event; of cells that run elsewhere, when each of them ends. Those that travel go along
            to these cells.
        jobs: How many cells run side by side on this machine.
        cluster: The address of a Dask scheduler, whose workers run the cells; they and this machine share the folder.
        planned: Told of all cells before the first of them runs.
        tuned: Held-out domain -> method -> the text that stands for it there.
    """
    if cluster and base.engine.device == "auto":
        raise FairsiloError("on a cluster say engine.device=cuda or cpu: auto would look at this machine")
    if cluster:
        check_cluster(cluster)
    told = guarded(listener)
    names = tuple(names) or (grid.methods if grid else ())
    seeds = (base.seed,) if seeds is None else tuple(seeds)
    check_names(names, objects)
    folder = out or Path("runs") / slug("compare-" + "-".join(names))[:80]
    given = objects.federation
    dataset = None if given else dataset_of(base.data)
    by_domain: dict[str, list[Cell]] = {}
    for domain in domains_of(base, held_out, dataset, objects):
        federation, here = prepared(base, names, domain, dataset, objects)
        roster, named = federation.roster, here.data.held_out or "-"
        texts = {name: (tuned or {}).get(named, {}).get(name, name) for name in names}
        rows = {name: checked_row(here, text, federation, objects) for name, text in texts.items()}
        by_domain[named] = [
            Cell(
                resolved(dataclasses.replace(row, seed=seed), roster),
                folder / slug(name) / slug(f"{named}-seed{seed}"),
                name,
            )
            for name, row in rows.items()
            for seed in seeds
        ]
        for cell in by_domain[named]:
            check_cell(cell)
    cells = [cell for some in by_domain.values() for cell in some]
    common = dataclasses.replace(base, evaluate=evaluate_of(base, roster), engine=engine_of(base.engine))
    plan = tuple(planned_run(cell, folder) for cell in cells)
    comparison = Comparison(
        folder, names, tuple(by_domain), seeds, plan, grid, config.as_dict(common), dict(tuned or {})
    )
    write_plan(comparison)
    if planned:
        planned(cells)
    if cluster:
        on_cluster(cells, objects, cluster, told)
    elif jobs > 1:
        side_by_side(cells, objects, jobs, told)
    else:
        shelf, said = Shelf(base.engine.features_limit), set[str]()
        for some in by_domain.values():
            one_by_one(some, given or federation_of(some[0].experiment, dataset), objects, shelf, told, said)
    found = [
        {**run, "summary": RunFolder(cell.folder).read_json("summary.json")}
        for cell, run in zip(cells, plan, strict=True)
    ]
    comparison = dataclasses.replace(comparison, cells=tuple(found))
    RunFolder(folder).write_json(RESULTS, comparison.as_dict())
    return comparison


def planned_run(cell: Cell, folder: Path) -> dict[str, Any]:
    """What is known of a run of a comparison before it begins."""
    return {
        "method": cell.row,
        "held_out": cell.held_out,
        "seed": cell.experiment.seed,
        "rounds": cell.experiment.train.rounds,
        "folder": cell.folder.relative_to(folder).as_posix(),
        "model": cell.experiment.model,
    }


def write_plan(comparison: Comparison) -> None:
    """All runs that there will be: whoever looks on sees how many are left, and `report` shows those there are."""
    run_folder = RunFolder(comparison.folder)
    run_folder.create()
    run_folder.write_json(PLAN, comparison.as_dict())


def prepared(
    base: Experiment, names: Sequence[str], domain: str, dataset: Dataset | None, objects: Objects
) -> tuple[Federation, Experiment]:
    """The silos with one domain held out, and the settings there; refuses what is wrong whatever the method.

    Args:
        base: The settings that all methods have in common.
        names: The methods.
        domain: The one that nobody trains on.
        dataset: The data, where they are not given as an object.
        objects: What was given as Python objects.
    """
    given = objects.federation
    here = dataclasses.replace(base, baseline=None, data=dataclasses.replace(base.data, held_out=domain))
    federation = given or federation_of(here, dataset)
    here = dataclasses.replace(here, engine=engine_of(here.engine))
    _refuse_idle(here, list(map(method_in, names)), federation, objects)
    groups_of(federation, here.evaluate.columns)
    here = dataclasses.replace(resolved(here, federation.roster, given is not None), model=here.model)
    check_data(here, federation.roster)
    return federation, here


def checked_row(here: Experiment, text: str, federation: Federation, objects: Objects) -> Experiment:
    """The settings of a row, if it can be run; settings of its own must have an effect."""
    row = row_of(here, text)
    if OWN in text:
        _refuse_idle(row, [row.method], federation, objects)
    check_methods(resolved(row, federation.roster), federation.roster, objects)
    return row


def _refuse_idle(here: Experiment, methods: list[str], federation: Federation, objects: Objects) -> None:
    by_hand = objects.federation is not None
    refuse_idle(here, federation, methods, model=objects.model is None, by_hand=by_hand)


def check_names(names: Sequence[str], objects: Objects) -> None:
    if not names:
        raise FairsiloError("name at least one method to compare, such as `fairsilo compare fedavg faa`")
    seen: dict[str, str] = {}
    for name in names:
        made = objects.method(method_in(name)).name + name.partition(OWN)[2]
        if made in seen:
            raise FairsiloError(f"a method is named twice: {seen[made]!r} and {name!r} are the same; name it once")
        seen[made] = name


@dataclass(frozen=True)
class Comparison:
    """Finished runs side by side.

    Attributes:
        folder: Where the runs and `comparison.json` are.
        methods: The methods' texts; the others are compared with the first.
        held_out: The held-out domains, one run each.
        seeds: Of the runs.
        cells: One dictionary per run: `method`, `held_out`, `seed`, `rounds`, `folder` (below `folder`), `model` and,
            of a finished one, `summary`.
        grid: Rows and columns, where the methods are their compositions.
        settings: What all runs have in common.
        tuned: Held-out domain -> method -> what stood for it there, where settings were searched.
    """

    folder: Path
    methods: tuple[str, ...]
    held_out: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[dict[str, Any], ...]
    grid: Grid | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    tuned: Tuned = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        return json.loads(json.dumps({**content, "folder": str(self.folder)}))  # type: ignore[no-any-return]


def domains_of(
    base: Experiment, held_out: str | Sequence[str] | None, dataset: Dataset | None, objects: Objects
) -> list[str]:
    """The domains that are held out one after the other; silos that are given have theirs already."""
    if held_out is None or objects.federation is not None:
        return [base.data.held_out or "-"]
    chosen: Iterable[str] = held_out.split(",") if isinstance(held_out, str) else held_out
    listed = list(dict.fromkeys(text.strip() for text in chosen))
    dataset = dataset or dataset_of(base.data)
    if listed == ["all"]:
        return list(dataset.domains)
    for one in listed:
        held_out_domains(dataset, one)
    return listed
