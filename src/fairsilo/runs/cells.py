"""The cells of a comparison: one after the other here, side by side in processes, or on a cluster.

A cell is known by its folder: one that is finished there is not run again, and one that was cut off goes on. So it does
not matter who runs it, nor how often somebody tries.
"""

from __future__ import annotations

import dataclasses
import importlib
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairsilo.config import DataSettings, EngineSettings, Experiment
from fairsilo.data.dataset import Dataset
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Callback, Event, Guarded, guarded
from fairsilo.engine.features import Shelf
from fairsilo.engine.lanes import LANES
from fairsilo.errors import FairsiloError
from fairsilo.runs.counting import check_finished
from fairsilo.runs.engines import engines
from fairsilo.runs.folder import status_of
from fairsilo.runs.lock import locked
from fairsilo.runs.opened import read_experiment
from fairsilo.runs.running import place_of, run_one, start_folder
from fairsilo.runs.saved import SavedRun
from fairsilo.runs.setup import Objects, dataset_of, federation_of

RETRIES = 3  # of a cell whose worker on a cluster dies


@dataclass(frozen=True)
class Cell:
    """One run of a comparison.

    Attributes:
        experiment: Its settings.
        folder: Where it is.
        row: What it is called in the comparison: the method, with settings of its own.
    """

    experiment: Experiment
    folder: Path
    row: str

    @property
    def held_out(self) -> str:
        return self.experiment.data.held_out or "-"

    @property
    def place(self) -> str:
        """Which of its method's runs it is."""
        return place_of(self.experiment)

    @property
    def name(self) -> str:
        return f"{self.row}, {self.place}"

    @property
    def comparison(self) -> str:
        """The name of the comparison: its folder has one for each row, and this one's is in there."""
        return self.folder.resolve().parents[1].name

    @property
    def finished(self) -> bool:
        return status_of(self.folder).get("status") == "finished"


def check_cell(cell: Cell) -> None:
    """Raises FairsiloError where the folder holds another run, or one with a file that cannot be read."""
    if not (cell.folder / "config.yaml").exists():
        return
    try:
        found = read_experiment(cell.folder, trust=True)
        _read_what_is_needed(cell)
    except FairsiloError as problem:
        cure = f"delete {cell.folder} and give the same command again, which makes that run anew"
        raise FairsiloError(f"{problem}; {cure}") from problem
    if found != cell.experiment:
        raise FairsiloError(f"{cell.folder} holds a run with other settings; choose another folder with --out")


def _read_what_is_needed(cell: Cell) -> None:
    """Of a finished run its results, of another one what it goes on from."""
    if cell.finished:
        check_finished(cell.folder)
    else:
        SavedRun(cell.folder).check_checkpoint()


def one_by_one(
    cells: Sequence[Cell], federation: Federation, objects: Objects, shelf: Shelf, told: Guarded, said: set[str]
) -> None:
    """Cells of one federation, in this process; workers and kept features serve all of them.

    What was `said` of engines for other federations is not said again.
    """
    base = cells[0].experiment
    with engines(base, len(federation.silos) + len(federation.unseen), told, said) as engine_for:
        for cell in cells:
            cell.folder.mkdir(parents=True, exist_ok=True)
            with locked(cell.folder):
                check_cell(cell)
                start_folder(cell.folder, cell.experiment, objects)
                told.group = cell.comparison
                run_one(cell.experiment, federation, cell.folder, told, engine_for, shelf, objects)


def engine_beside(engine: EngineSettings, jobs: int) -> EngineSettings:
    """What a cell trains with that has others beside it: they share the cores, or the lanes that a GPU has use for.
    Numbers do not depend on that."""
    if engine.device == "cuda":
        name = "lanes" if engine.name == "auto" else engine.name
        return dataclasses.replace(engine, name=name, lanes=engine.lanes or max(1, LANES // jobs))
    return dataclasses.replace(engine, name="sequential") if engine.name == "auto" else engine


def run_cell(cell: Cell, objects: Objects, jobs: int = 1, listeners: Sequence[Callback] = ()) -> str:
    """One cell in a process of its own, one of so many; returns why it could not be finished, in words."""
    told = guarded(listeners)
    told.group = cell.comparison
    engine = engine_beside(cell.experiment.engine, jobs)
    here = dataclasses.replace(cell.experiment, engine=engine)
    try:
        federation = objects.federation or _federation(cell.experiment)
        cell.folder.mkdir(parents=True, exist_ok=True)
        at_once = len(federation.silos) if engine.name == "lanes" else 1
        with locked(cell.folder), engines(here, at_once, told) as engine_for:
            start_folder(cell.folder, cell.experiment, objects)
            shelf = _shelf(engine.features_limit)
            run_one(cell.experiment, federation, cell.folder, told, engine_for, shelf, objects)
    except (FairsiloError, OSError) as problem:
        return str(problem)
    return ""


# ----------------------------------------------------------------------------------------------------- side by side
def side_by_side(cells: Sequence[Cell], objects: Objects, jobs: int, told: Guarded) -> None:
    """So many cells at a time in processes of this machine.

    A process that dies takes the cells of the others with it; they are tried again for as long as cells get finished,
    then each by itself, so that one that needs more memory than there is ends alone.

    Raises:
        FairsiloError: Some cells cannot be finished; all others are.
    """
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    failed: dict[int, str] = {}
    one_task: Any = delayed(_numbered)
    along = told.travelling()

    def left() -> list[int]:
        return [number for number, cell in enumerate(cells) if not cell.finished and number not in failed]

    def tried(numbers: Sequence[int], at_once: int) -> None:
        processes: Any = Parallel(n_jobs=at_once, return_as="generator_unordered", batch_size=1, pre_dispatch=at_once)
        with suppress(TerminatedWorkerError):
            ended = processes(one_task(one, cells[one], objects, jobs, along) for one in numbers)
            _hear(ended, cells, failed, told)

    before = len(cells) + 1
    while 0 < (now := len(left())) < before:
        before = now
        tried(left(), jobs)
    for number in left():
        tried([number], 2)  # with one job it would be this process
    _raise_left(cells, failed)


def check_cluster(address: str) -> None:
    """Before anything is written.

    Raises:
        FairsiloError: It is no address of a scheduler, or nobody listens there.
    """
    host, _, port = address.removeprefix("dask://").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # IPv6
    if not host or "/" in host or not port.isdecimal() or int(port) > 65535:
        raise FairsiloError(f"{address!r} is no address of a Dask scheduler; write dask://HOST:PORT")
    _distributed()
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, UnicodeError) as problem:  # the latter of a name that cannot be a host's
        raise FairsiloError(f"no Dask scheduler answers at {address}; start one with `dask scheduler`") from problem


def on_cluster(cells: Sequence[Cell], objects: Objects, address: str, told: Guarded) -> None:
    """The cells on the workers of a Dask scheduler, which see the comparison's folder under the same path.

    Raises:
        FairsiloError: There is no such scheduler, or some cells cannot be finished; all others are.
    """
    distributed = _distributed()
    target = address.removeprefix("dask://")
    try:
        client = distributed.Client(f"tcp://{target}", timeout="10s")
    except OSError as problem:
        raise FairsiloError(f"no Dask scheduler answers at {address}; start one with `dask scheduler`") from problem
    failed: dict[int, str] = {}
    placed = [dataclasses.replace(cell, folder=cell.folder.resolve()) for cell in cells]
    with client:
        asked = {
            client.submit(_numbered, number, cell, objects, 1, told.travelling(), pure=False, retries=RETRIES): number
            for number, cell in enumerate(placed)
            if not cell.finished
        }
        _hear((_outcome(future, asked[future]) for future in distributed.as_completed(asked)), cells, failed, told)
    _raise_left(cells, failed)


def _outcome(future: Any, number: int) -> tuple[int, str]:
    problem = future.exception()  # such as Dask's word that every worker that tried it died
    return (number, f"{type(problem).__name__}: {problem}") if problem else future.result()


def _numbered(
    number: int, cell: Cell, objects: Objects, jobs: int = 1, listeners: Sequence[Callback] = ()
) -> tuple[int, str]:
    return number, run_cell(cell, objects, jobs, listeners)


def _hear(ended: Iterable[tuple[int, str]], cells: Sequence[Cell], failed: dict[int, str], listener: Callback) -> None:
    for number, problem in ended:
        if problem:
            failed[number] = problem
        done = sum(cell.finished for cell in cells)
        said = f"{cells[number].name}: {problem or 'finished'} ({done} of {len(cells)})"
        listener(Event("note", done, len(cells), text=said))


def _raise_left(cells: Sequence[Cell], failed: dict[int, str]) -> None:
    left = [number for number, cell in enumerate(cells) if not cell.finished]
    if left:
        why = failed.get(left[0], "its process ended each time; is there enough memory?")
        more = f" ({len(left)} of {len(cells)} cells are not finished; the same command takes them up again)"
        raise FairsiloError(f"{cells[left[0]].name}: {why}{more}")


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as problem:
        raise FairsiloError("a cluster needs Dask: pip install 'fairsilo[cluster]'") from problem


_read: list[tuple[DataSettings, Dataset]] = []  # what the last cell of this process was about: the next one is too


def _federation(experiment: Experiment) -> Federation:
    everything = dataclasses.replace(experiment.data, held_out=None)
    if not _read or _read[0][0] != everything:
        _read[:] = [(everything, dataset_of(everything))]
    return federation_of(experiment, _read[0][1])


@lru_cache(maxsize=1)
def _shelf(limit: float) -> Shelf:
    """Features that the cells of this process have in common."""
    return Shelf(limit)
