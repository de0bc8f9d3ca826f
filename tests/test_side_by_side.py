"""Cells of a comparison side by side in processes, and on a cluster: the same numbers, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import fairsilo
from fairsilo.cli.grid import GridListener, table
from fairsilo.config import EngineSettings
from fairsilo.core.part import Part
from fairsilo.core.silo import Silo
from fairsilo.data.federation import Federation
from fairsilo.engine.events import Event
from fairsilo.errors import FairsiloError
from fairsilo.fields import setting
from fairsilo.runs.cells import Cell, check_cluster, engine_beside

METHODS = ("fedavg", "scaffold")
SETTINGS: dict[str, Any] = {"model": "small-cnn", "train": {"rounds": 2, "epochs": 1, "batch_size": 8}}


def compared(folder: Path, people: Federation, methods: Any = METHODS, **options: Any) -> Any:
    return fairsilo.compare(methods, federation=people, seeds=[0, 1], out=folder, **SETTINGS, **options)


def results(found: Any) -> list[tuple[str, int, dict[str, Any]]]:
    return [(cell["method"], cell["seed"], cell["summary"]) for cell in found.cells]


@dataclass(frozen=True)
class Dies(Part):
    """Ends its process in round 2 of training, as where memory runs out; so often in every cell."""

    name = "dies"
    folder: str = setting("", "for its marks")
    times: int = setting(1, "that it does so")

    def begin(self, silo: Silo) -> None:
        with contextlib.suppress(FileExistsError):
            for number in range(self.times if silo.round == 2 else 0):
                mark = Path(self.folder) / f"{silo.seed}-{number}"
                if not mark.exists():
                    mark.touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_cells_side_by_side_have_the_numbers_of_cells_one_by_one(tmp_path: Path, people: Federation) -> None:
    told: list[Event] = []
    planned: list[int] = []
    found = compared(
        tmp_path / "two", people, jobs=2, listener=told.append, planned=lambda cells: planned.append(len(cells))
    )
    assert results(found) == results(compared(tmp_path / "one", people, engine={"name": "sequential"}))
    assert planned == [4]
    assert sorted(event.text.partition(" (")[0] for event in told) == sorted(
        f"{method}, u held out, seed {seed}: finished" for method in METHODS for seed in (0, 1)
    )
    assert max(event.round for event in told) == 4  # two may end at the same moment
    again: list[Event] = []
    assert results(compared(tmp_path / "two", people, jobs=2, listener=again.append)) == results(found)
    assert again == []  # all are finished


def survives(tmp_path: Path, people: Federation, **where: Any) -> None:
    """Cells whose process dies once go on from their last complete round, to the numbers of an undisturbed run."""
    (tmp_path / "marks").mkdir()
    found = compared(tmp_path / "two", people, [*METHODS, Dies(str(tmp_path / "marks"))], **where)
    assert len(list((tmp_path / "marks").iterdir())) == 2
    alone = compared(tmp_path / "one", people, engine={"name": "sequential"})
    expected = {(method, seed): summary for method, seed, summary in results(alone)}
    for method, seed, summary in results(found):
        assert summary == expected["fedavg" if "Dies" in method else method, seed]


@pytest.mark.slow
def test_a_process_that_dies_costs_its_cells_a_try(tmp_path: Path, people: Federation) -> None:
    survives(tmp_path, people, jobs=2)


@pytest.mark.slow
def test_a_cell_that_kills_every_process_is_named_and_the_others_are_finished(
    tmp_path: Path, people: Federation
) -> None:
    (tmp_path / "marks").mkdir()
    with pytest.raises(FairsiloError, match=r"Dies.*, u held out, seed 0: its process ended each time.*2 of 6 cells"):
        compared(tmp_path / "two", people, [*METHODS, Dies(str(tmp_path / "marks"), times=99)], jobs=2)


@dataclass(frozen=True)
class Refuses(Part):
    name = "refuses"

    def begin(self, silo: Silo) -> None:
        raise ValueError("not today")


def test_a_cell_that_cannot_be_finished_is_named_and_the_others_are_finished(
    tmp_path: Path, people: Federation
) -> None:
    with pytest.raises(FairsiloError, match=r"Refuses, u held out, seed 0: .*2 of 4 cells are not finished"):
        compared(tmp_path / "two", people, ["fedavg", Refuses()], jobs=2)
    done = sorted(path.parent.name for path in (tmp_path / "two" / "fedavg").glob("*/summary.json"))
    assert done == ["u-seed0", "u-seed1"]


def test_the_table_says_how_far_each_cell_is(tmp_path: Path) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    chosen = fairsilo.config.experiment({"method": "fedavg", "rounds": 7})
    cells = [
        Cell(chosen, tmp_path / "begun", "fedavg"),
        Cell(fairsilo.config.experiment({"method": "afl"}), tmp_path / "new", "afl"),
    ]
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "rounds.jsonl").write_text("{}\n{}\n{}\n")
    console.print(table(cells))
    text = console.export_text()
    assert "3/7" in text
    assert "0 of 2 runs are" in text


def test_brackets_of_names_are_shown(tmp_path: Path) -> None:
    chosen = fairsilo.config.experiment({"method": "fedavg", "held_out": "site[b]"})
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table([Cell(chosen, tmp_path / "new", "own[red]")]))
    text = console.export_text()
    assert "site[b]" in text
    assert "own[red]" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_left_is_below_the_table_or_behind_each_line(terminal: bool, tmp_path: Path) -> None:
    chosen = [fairsilo.config.experiment({"seed": seed, "rounds": 4}) for seed in range(6)]
    cells = [Cell(one, tmp_path / str(one.seed), "fedavg") for one in chosen]
    console = Console(width=200, record=True, file=io.StringIO(), force_terminal=terminal)
    listener = GridListener(console, at_once=2)
    listener.begin(cells)
    cells[0].folder.mkdir()
    (cells[0].folder / "run.json").write_text('{"status": "finished", "seconds": 100.0}')
    listener(Event("note", 1, 6, text="fedavg: finished (1 of 6)"))
    listener.__exit__()
    assert ("finished (1 of 6), about 5 min left in all" in console.export_text()) is not terminal
    console.print(listener.drawn())
    assert "1 of 6 runs are finished, about 5 min left in all" in " ".join(console.export_text().split())


def test_seeds_share_a_column_where_there_is_no_room_for_one_each(tmp_path: Path) -> None:
    cells = [
        Cell(
            fairsilo.config.experiment({"method": "fedavg", "rounds": 5, "seed": seed, "held_out": domain}),
            tmp_path / f"{domain}{seed}",
            "q-ffl(q=0.001, form=normalised)",
        )
        for domain in ("photograph", "art painting", "cartoon", "sketch")
        for seed in (0, 1, 2)
    ]
    for seed, rounds in ((0, 3), (2, 1)):
        (tmp_path / f"cartoon{seed}").mkdir()
        (tmp_path / f"cartoon{seed}" / "rounds.jsonl").write_text("{}\n" * rounds)
    shown = {}
    for width in (80, 300):
        console = Console(width=width, record=True, file=io.StringIO())
        listener = GridListener(console)
        listener.begin(cells)
        console.print(listener.drawn())
        shown[width] = console.export_text()
    assert "4/15" in shown[80]
    assert "seed" not in shown[80]
    assert all(word in shown[80] for word in ("photograph", "painting", "sketch", "form=normalised)"))
    assert max(map(len, shown[80].splitlines())) <= 80
    assert "3/5" in shown[300]
    assert shown[300].count("seed") == 12


def test_without_a_terminal_there_is_a_line_for_each_cell() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    with GridListener(console) as listener:
        listener.begin([])
        listener(Event("note", 1, 4, text="fedavg [x], photo held out, seed 0: finished (1 of 4)"))
    assert "fedavg [x], photo held out, seed 0: finished (1 of 4)" in console.export_text()


# ------------------------------------------------------------------------------------------------------- a cluster
@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """A real scheduler with two worker processes."""
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}

    def started(*arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]]
        with (tmp_path / f"{arguments[0]}.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=tmp_path)

    address = f"127.0.0.1:{port}"
    processes = [started("scheduler", "--host", address, "--no-dashboard", "--no-show")]
    time.sleep(3)
    for _ in range(2):
        options = ["--nthreads", "1", "--nworkers", "1", "--no-dashboard", "--local-directory", str(tmp_path / "dask")]
        processes.append(started("worker", f"tcp://{address}", *options))
    try:
        yield f"dask://{address}"
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(20)


@pytest.mark.slow
def test_on_a_cluster_a_worker_that_dies_costs_a_try(tmp_path: Path, people: Federation, scheduler: str) -> None:
    survives(tmp_path, people, cluster=scheduler)


@pytest.mark.parametrize("address", ["nohost", "dask://", "dask://host", "host:", "host:99999", "dask://host:x"])
def test_what_is_no_address_is_a_sentence_and_writes_nothing(address: str, tmp_path: Path, people: Federation) -> None:
    with pytest.raises(FairsiloError, match=r"is no address of a Dask scheduler; write dask://HOST:PORT"):
        compared(tmp_path / "c", people, ["fedavg"], cluster=address)
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_a_sentence(tmp_path: Path, people: Federation) -> None:
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    with pytest.raises(FairsiloError, match=r"no Dask scheduler answers at dask://127\.0\.0\.1:9"):
        compared(tmp_path, people, cluster="dask://127.0.0.1:9")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tcp://localhost:8786", "write dask://HOST:PORT"),
        ("dask://localhost", "write dask://HOST:PORT"),
        ("dask://localhost:99999", "write dask://HOST:PORT"),
        ("dask://a..b:8786", "no Dask scheduler answers"),
    ],
)
def test_an_address_that_can_be_none_is_a_sentence(address: str, said: str) -> None:
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    with pytest.raises(FairsiloError, match=said):
        check_cluster(address)


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_scheduler_answers_at_both_kinds_of_address(family: socket.AddressFamily, host: str) -> None:
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    with socket.socket(family) as listening:
        try:
            listening.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        listening.listen()
        written = f"[{host}]" if ":" in host else host
        check_cluster(f"dask://{written}:{listening.getsockname()[1]}")


def test_a_cluster_has_a_device_by_name(tmp_path: Path, people: Federation) -> None:
    with pytest.raises(FairsiloError, match=r"on a cluster say engine\.device=cuda or cpu"):
        compared(tmp_path, people, cluster="dask://127.0.0.1:9", engine={"device": "auto"})


@pytest.mark.parametrize(
    ("given", "jobs", "name", "lanes"),
    [
        ({}, 4, "sequential", None),
        ({"name": "processes"}, 4, "processes", None),
        ({"device": "cuda"}, 2, "lanes", 2),
        ({"device": "cuda"}, 9, "lanes", 1),
        ({"device": "cuda", "lanes": 3}, 9, "lanes", 3),
        ({"device": "cuda", "name": "sequential", "lanes": 3}, 2, "sequential", 3),
    ],
)
def test_what_a_run_trains_with_that_has_others_beside_it(
    given: dict[str, Any], jobs: int, name: str, lanes: int | None
) -> None:
    found = engine_beside(EngineSettings(**given), jobs)
    assert (found.name, found.lanes) == (name, lanes)
