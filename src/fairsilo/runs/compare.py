"""Methods x held-out domains x seeds, one run each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairsilo import config
from fairsilo.config import Experiment
from fairsilo.data.federation import held_out_domains
from fairsilo.data.groups import groups_of
from fairsilo.engine.events import Callback, guarded, silent
from fairsilo.engine.features import Shelf
from fairsilo.errors import FairsiloError
from fairsilo.runs.comparison import Grid
from fairsilo.runs.effects import refuse_idle
from fairsilo.runs.engines import engines
from fairsilo.runs.folder import RunFolder
from fairsilo.runs.lock import locked
from fairsilo.runs.running import run_one, slug, start_folder
from fairsilo.runs.setup import (
    Objects,
    check_data,
    check_methods,
    dataset_of,
    evaluate_of,
    federation_of,
    read_experiment,
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
    listener: Callback = silent,
) -> Comparison:
    """One run per method, held-out domain and seed; cells that were left unfinished are taken up again.

    Args:
        names: The methods' texts; the first is the one that the others are compared with.
        base: The settings that all runs have in common.
        objects: What was given as Python objects.
        seeds: Of the runs; by default the one of `base`.
        held_out: Domains, or `all`; by default the one of `base`. Commas separate cells, each with one domain held
            out; `a+b` holds out both at once.
        grid: Where the methods are its compositions: kept with the results, so that the page can show rows and columns.
        out: The folder of the comparison.
        listener: Told of every event.
    """
    listener = guarded(listener)
    names = tuple(names) or (grid.methods if grid else ())
    seeds = (base.seed,) if seeds is None else tuple(seeds)
    _check_names(names, objects)
    folder = out or Path("runs") / slug("compare-" + "-".join(names))[:80]
    cells, domains, shelf = [], [], Shelf(base.engine.features_limit)
    given = objects.federation
    for domain in [base.data.held_out or "-"] if given else _held_out_list(base, held_out):
        here = dataclasses.replace(base, baseline=None, data=dataclasses.replace(base.data, held_out=domain))
        federation = given or federation_of(here)
        roster = federation.roster
        refuse_idle(here, federation, names, model=objects.model is None, by_hand=given is not None)
        groups_of(federation, here.evaluate.columns)
        here = dataclasses.replace(resolved(here, roster, given is not None), model=here.model)
        domains.append(named := here.data.held_out or "-")
        check_data(here, roster)
        for name in names:
            check_methods(resolved(dataclasses.replace(here, method=name), roster), roster, objects)
        with engines(here, len(roster.silos) + len(roster.unseen), listener) as engine_for:
            for name in names:
                for seed in seeds:
                    cell = resolved(dataclasses.replace(here, method=name, seed=seed), roster)
                    inside = folder / slug(name) / slug(f"{named}-seed{seed}")
                    inside.mkdir(parents=True, exist_ok=True)
                    with locked(inside):
                        _check_cell(inside, cell)
                        start_folder(inside, cell, objects)
                        result = run_one(cell, federation, inside, listener, engine_for, shelf, objects)
                    found = {"method": name, "held_out": named, "seed": seed, "summary": result.summary}
                    cells.append({**found, "folder": str(inside.relative_to(folder)), "model": cell.model})
    common = dataclasses.replace(base, evaluate=evaluate_of(base, roster))
    comparison = Comparison(folder, names, tuple(domains), seeds, tuple(cells), grid, config.as_dict(common))
    RunFolder(folder).write_json("comparison.json", comparison.as_dict())
    return comparison


def _check_names(names: Sequence[str], objects: Objects) -> None:
    if not names:
        raise FairsiloError("name at least one method to compare, such as `fairsilo compare fedavg faa`")
    seen: dict[str, str] = {}
    for name in names:
        made = objects.method(name).name
        if made in seen:
            raise FairsiloError(f"a method is named twice: {seen[made]!r} and {name!r} are the same")
        seen[made] = name


@dataclass(frozen=True)
class Comparison:
    """Finished runs side by side.

    Attributes:
        folder: Where the runs and `comparison.json` are.
        methods: The methods' texts; the others are compared with the first.
        held_out: The held-out domains, one run each.
        seeds: Of the runs.
        cells: One dictionary per run: method, held_out, seed, summary, folder (below `folder`) and model.
        grid: Rows and columns, where the methods are their compositions.
        settings: What all runs have in common.
    """

    folder: Path
    methods: tuple[str, ...]
    held_out: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[dict[str, Any], ...]
    grid: Grid | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        return json.loads(json.dumps({**content, "folder": str(self.folder)}))  # type: ignore[no-any-return]


def _held_out_list(base: Experiment, held_out: str | Sequence[str] | None) -> list[str]:
    if held_out is None:
        return [base.data.held_out or "-"]
    chosen: Iterable[str] = held_out.split(",") if isinstance(held_out, str) else held_out
    listed = list(dict.fromkeys(text.strip() for text in chosen))
    dataset = dataset_of(base.data)
    if listed == ["all"]:
        return list(dataset.domains)
    for one in listed:
        held_out_domains(dataset, one)
    return listed


def _check_cell(folder: Path, cell: Experiment) -> None:
    if (folder / "config.yaml").exists() and read_experiment(folder, trust=True) != cell:
        raise FairsiloError(f"{folder} holds a run with other settings; choose another folder with --out")
