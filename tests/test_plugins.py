"""Methods, models, data sets and tasks of other packages: installed ones by entry point, others as `package:name`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import fairsilo
import tiny
from fairsilo import plugins
from fairsilo.core.part import Part
from fairsilo.data import load
from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.data.federation import Federation
from fairsilo.engine.processes import packed
from fairsilo.errors import FairsiloError
from fairsilo.methods.catalogue import CATALOGUE, Entry
from fairsilo.methods.others import all_entries, entry_of
from fairsilo.methods.parts.proximal import Proximal
from fairsilo.methods.text import method
from fairsilo.models.registry import build
from fairsilo.runs.opened import read_experiment
from fairsilo.tasks.classify import Classify
from fairsilo.tasks.registry import task_of

ROOT = Path(__file__).resolve().parent.parent
DAMPED = Entry("damped", "Damped", "A weak pull.", (Proximal,), settings={"mu": 0.5})
SMALL: dict[str, Any] = {"rounds": 1, "epochs": 1, "batch_size": 8, "engine": {"name": "sequential"}}
PACKAGE = """
from dataclasses import dataclass
import torch
from fairsilo.fields import setting
from fairsilo.core.part import Part
from fairsilo.data.dataset import UNDECIDED, Dataset, Domain
from fairsilo.tasks.classify import Classify

@dataclass(frozen=True)
class Halved(Part):
    "Halves every gradient."
    name = "halved"
    factor: float = setting(0.5, "of the gradient", low=0)
    def gradients(self, silo):
        silo.model.gradients.mul_(self.factor)

def quarter():
    return Halved(0.25)

def scans(size, seed):
    "Noise in two domains."
    stream = torch.Generator().manual_seed(seed)
    def domain(name):
        inputs = torch.randint(256, (30, 3, size or 8, size or 8), generator=stream, dtype=torch.uint8)
        return Domain(name, inputs, torch.arange(30) % 3, torch.full((30,), -1, dtype=torch.int8))
    return Dataset("scans", ("x", "y", "z"), {name: domain(name) for name in ("here", "there", "far")}, task="sorting")

def network(classes, channels):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(channels * 64, classes))

def sorting(classes, metric="balanced-accuracy"):
    return Classify(classes, metric, "sorting")

def broken():
    raise RuntimeError("not today")
"""
POINTS = """
[fairsilo.methods]
halved = theirs:Halved
quarter = theirs:quarter
fedprox = theirs:Halved
lost = theirs:nowhere
[fairsilo.models]
flat-net = theirs:network
[fairsilo.datasets]
scans = theirs:scans
[fairsilo.tasks]
sorting = theirs:sorting
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an installer leaves one: the package, and beside it what its entry points are."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "theirs.py").write_text(PACKAGE)
    about = folder / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    return folder


@pytest.fixture
def theirs(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(installed)
    plugins.registered.cache_clear()
    yield
    plugins.registered.cache_clear()


def sentence(call: Callable[[], object]) -> str:
    with pytest.raises(FairsiloError) as problem:
        call()
    assert "\n" not in str(problem.value)
    return str(problem.value)


def test_everything_of_an_installed_package_is_found_by_its_name(theirs: None) -> None:
    assert method("halved(factor=0.1) | fedheal").parts[0].factor == 0.1  # type: ignore[attr-defined]
    assert method("quarter").parts[0].factor == 0.25  # type: ignore[attr-defined]
    assert isinstance(build("flat-net", 3, 3, 0), torch.nn.Sequential)
    found = load(name="scans", size=12, seed=4, domains=["here", "far"])
    assert list(found.domains) == ["here", "far"]
    assert found.domains["far"].inputs.shape == (30, 3, 12, 12)
    assert not torch.equal(found.domains["far"].inputs, load(name="scans", size=12, seed=5).domains["far"].inputs)
    assert task_of("sorting", 3).reported.name == "balanced-accuracy"
    assert task_of("sorting", 3, "accuracy").reported.name == "accuracy"


def test_an_entry_of_another_package_is_made_as_one_of_the_catalogue(theirs: None) -> None:
    assert method("test_plugins:DAMPED").parts == (Proximal(mu=0.5),)
    assert method("test_plugins:DAMPED(mu=2)").parts == (Proximal(mu=2.0),)
    assert sentence(lambda: method("halved(mu=2)")) == "halved has no setting 'mu'; known: factor"


def test_a_package_cannot_take_a_name_of_the_catalogue(theirs: None) -> None:
    assert method("fedprox").parts[0].name == "proximal"
    assert entry_of("fedprox") is CATALOGUE["fedprox"]


def test_listings_name_what_installed_packages_offer_and_what_cannot_be_imported(theirs: None) -> None:
    entries = all_entries()
    assert list(entries)[: len(CATALOGUE)] == list(CATALOGUE)
    assert set(entries) - set(CATALOGUE) == {"halved", "quarter", "lost"}
    assert entries["halved"].describe()["idea"] == "Halves every gradient."
    assert [item["default"] for item in entries["quarter"].describe()["settings"]] == [0.25]
    assert "cannot be imported" in entries["lost"].describe()["idea"]


@pytest.mark.slow
def test_a_run_on_data_model_task_and_method_of_a_package_in_worker_processes(installed: Path, tmp_path: Path) -> None:
    """By command line; what the run folder names is installed, so it may be opened without trust."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{installed}"}

    def fairsilo_says(*words: str) -> str:
        command = [sys.executable, "-m", "fairsilo.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    chosen = ["method=halved", "data.name=scans", "model=flat-net", "rounds=1", "engine.workers=2", "size=8"]
    found = json.loads(fairsilo_says("run", *chosen, "-o", "run", "--json"))
    assert found["summary"]["rounds"]
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["metric"]["name"] == "balanced-accuracy"
    assert json.loads((tmp_path / "run" / "rounds.jsonl").read_text())["failures"] == []
    assert "of the package theirs" in fairsilo_says("datasets")
    assert "30 undecided" in fairsilo_says("datasets", "scans")
    assert "halved" in fairsilo_says("methods", "--json")
    assert "Halves every gradient." in fairsilo_says("methods", "halved")
    fairsilo_says("evaluate", "run", "--data", "scans:far", "--json")


# ------------------------------------------------------------------------------------------------------ package:name
def speckles(size: int | None, seed: int) -> Dataset:
    split = tiny.samples(30, 0.0, seed)
    undecided = torch.full((30,), UNDECIDED, dtype=torch.int8)
    domains = {name: Domain(name, split.inputs, split.targets, undecided) for name in ("n", "m", "o")}
    return Dataset("speckles", tuple("012"), domains)


def raising(size: int | None, seed: int) -> Dataset:
    raise RuntimeError("the disk is elsewhere")


def pair(size: int | None, seed: int) -> tuple[int | None, int]:
    return size, seed


NOT_A_FUNCTION = 3


def test_data_sets_by_reference_and_what_is_wrong_with_them() -> None:
    assert load(name="test_plugins:speckles").name == "speckles"
    assert sentence(lambda: load(name="test_plugins:raising")) == (
        "data set 'test_plugins:raising' raised RuntimeError: the disk is elsewhere"
    )
    assert "must be a function of (size, seed)" in sentence(lambda: load(name="test_plugins:NOT_A_FUNCTION"))
    assert "cannot be called with (size, seed)" in sentence(lambda: load(name="test_plugins:sentence"))
    assert "must return a fairsilo.data.dataset.Dataset" in sentence(lambda: load(name="test_plugins:pair"))
    assert "cannot be imported" in sentence(lambda: load(name="test_plugins:nothing"))
    assert sentence(lambda: load(name="glyph")) == "unknown data set 'glyph'; did you mean 'glyphs'?"


def test_a_run_folder_that_names_code_as_its_data_is_refused_without_trust(tmp_path: Path) -> None:
    chosen = {"data": {"name": "test_plugins:speckles"}, "model": "tiny:TinyNet", **SMALL}
    fairsilo.run(method="fedavg", out=tmp_path / "run", **chosen)
    text = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(text.replace("tiny:TinyNet", "small-cnn"))
    assert "names code that would be imported and run: test_plugins:speckles;" in sentence(
        lambda: read_experiment(tmp_path / "run")
    )
    assert read_experiment(tmp_path / "run", trust=True).data.name == "test_plugins:speckles"


class Opposite(Classify):
    """A task of somebody else's."""

    @property
    def guess(self) -> float:
        return 7.0


def test_a_run_folder_that_names_code_as_its_task_is_refused_without_trust(people: Federation, tmp_path: Path) -> None:
    silos = Federation("mine", people.classes, people.silos, people.unseen, task="test_plugins:Opposite")
    fairsilo.run(method="fedavg", model="small-cnn", federation=silos, out=tmp_path / "run", **SMALL)
    assert "imported and run: test_plugins:Opposite;" in sentence(lambda: fairsilo.load(tmp_path / "run"))
    trained = fairsilo.load(tmp_path / "run", trust=True)
    assert trained.plan.task.guess == 7


def test_a_task_without_a_name_elsewhere_travels_as_an_object() -> None:
    """By its name alone a worker would find another task, or none."""

    @dataclass(frozen=True)
    class Mine(Classify):
        name: str = "mine"

    assert isinstance(packed(tiny.plan("fedavg", model="tiny:TinyNet", task=Mine(3))), bytes)
    assert isinstance(packed(tiny.plan("fedavg", model="tiny:TinyNet")), str)


def test_a_metric_that_the_data_s_task_lacks_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    told = sentence(lambda: fairsilo.run(method="fedavg", domains=["scan", "print"], metric="f1", out=tmp_path / "run"))
    assert told.startswith("evaluate.metric is 'f1', which the task 'classify' does not have; known: accuracy")
    assert not (tmp_path / "run").exists()


def test_a_part_is_no_data_set_and_a_number_no_method() -> None:
    assert "a method is a Part, a Method" in sentence(lambda: method("test_plugins:NOT_A_FUNCTION"))
    assert issubclass(type(method("test_scripts:Pull").parts[0]), Part)
