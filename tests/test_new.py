"""`fairsilo new`: each package that it writes is installed, passes its own tests and keeps the house's style."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fairsilo
from fairsilo import plugins, scaffold
from fairsilo.cli import app
from fairsilo.errors import FairsiloError
from fairsilo.laws import check as laws

ROOT = Path(__file__).resolve().parent.parent
QUICK_LAWS = ("declared", "runs", "counts", "settings", "memory", "bad attachment")
NAMES = {"method": "own-weights", "dataset": "own_scans", "model": "Own-net2"}


def installed(package: Path, site: Path) -> None:
    """What an installer leaves of a package: here a link to its module, and its entry points."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    (source,) = (package / "src").iterdir()
    about = site / f"{source.name}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (site / source.name).symlink_to(source)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in one.items())
        for group, one in project["entry-points"].items()
    ]
    (about / "entry_points.txt").write_text("\n".join(points))


def said(words: list[str], folder: Path, site: Path, **more: str) -> subprocess.CompletedProcess[str]:
    ours = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}  # of the tests around these
    where = {**ours, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{site}", **more}
    return subprocess.run(words, cwd=folder, env=where, capture_output=True, text=True, check=False)


def own_tests(folder: Path, site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The packages' own tests, where a warning is an error."""
    options = ["-q", "-W", "error", "-p", "no:cacheprovider", *words]
    return said([sys.executable, "-m", "pytest", *options], folder, site)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A package of each kind, and a folder `site` where all are installed."""
    for kind, name in NAMES.items():
        installed(scaffold.new(kind, name, tmp_path / kind).folder, tmp_path / "site")
    return tmp_path


@pytest.fixture
def known(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The packages, installed for this process too, and forgotten afterwards."""
    monkeypatch.syspath_prepend(packages / "site")
    plugins.registered.cache_clear()
    yield
    plugins.registered.cache_clear()
    for name in NAMES.values():
        sys.modules.pop(name.lower().replace("-", "_"), None)


def sentence(call: Callable[[], object]) -> str:
    with pytest.raises(FairsiloError) as problem:
        call()
    assert "\n" not in str(problem.value)
    return str(problem.value)


# --------------------------------------------------------------------------------------------------- what is written
@pytest.mark.slow
def test_the_packages_pass_their_own_tests(packages: Path) -> None:
    """All but the laws, of which the next test tries some, and a slow one all."""
    done = own_tests(packages, packages / "site", *NAMES, "-k", "not laws")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "13 passed, 1 deselected" in done.stdout


@pytest.mark.usefixtures("known")
def test_the_method_keeps_the_quick_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "LAWS", tuple(law for law in laws.LAWS if law.name in QUICK_LAWS))
    found = list(laws.check(NAMES["method"]))
    assert [(one.law, one.status, one.detail) for one in found] == [(law, laws.PASSED, "") for law in QUICK_LAWS]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("method", "losses.pow(self.power)", "losses.pow(-self.power)"),
        ("method", "return raised / raised.sum()", "return raised"),
        ("method", ".clamp(min=1e-12)", ""),
        ("dataset", "len(targets), 3, size, size", "len(targets), 3, size, size + 1"),
        ("dataset", "torch.arange(60) % len(CLASSES)", "torch.zeros(60, dtype=torch.int64)"),
        ("model", "nn.Linear(8 * width, classes)", "nn.Linear(8 * width, 2)"),
        ("model", "Output(self.head(features), features)", "Output(self.head(features.detach()), features)"),
        ("model", "Output(self.head(features), features)", "Output(self.head(features))"),
    ],
)
def test_the_packages_tests_notice_a_fault(packages: Path, kind: str, right: str, wrong: str) -> None:
    (module,) = (packages / kind).glob("src/*/__init__.py")
    text = module.read_text()
    assert right in text
    module.write_text(text.replace(right, wrong))
    done = own_tests(packages / kind, packages / "site", "-k", "not laws", "-x")
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.mark.parametrize("kind", NAMES)
def test_a_package_is_in_the_house_s_style_and_small(packages: Path, kind: str) -> None:
    """By the package's own settings, and the rules of this repository."""
    pytest.importorskip("ruff")
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    chosen = ["--extend-select", ",".join(rules["select"]), "--ignore", ",".join(rules["ignore"])]
    for words in (["check", *chosen], ["format", "--check"]):
        done = said([sys.executable, "-m", "ruff", *words, "--no-cache", "."], packages / kind, packages / "site")
        assert done.returncode == 0, done.stdout + done.stderr
    assert max(len(file.read_text().splitlines()) for file in (packages / kind).rglob("*.py")) <= 60
    assert 5 <= len((packages / kind / "README.md").read_text().splitlines()) <= 15


@pytest.mark.slow
def test_the_types_of_the_packages_are_right(packages: Path) -> None:
    pytest.importorskip("mypy")
    sources = os.pathsep.join(str(packages / kind / "src") for kind in NAMES)
    files = [str(file) for kind in NAMES for file in (packages / kind).rglob("*.py")]
    done = said([sys.executable, "-m", "mypy", "--strict", *files], ROOT, packages / "site", MYPYPATH=sources)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["a", "a" * scaffold.LONGEST])
@pytest.mark.parametrize("kind", NAMES)
def test_style_does_not_depend_on_the_length_of_the_name(kind: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    folder = scaffold.new(kind, name, tmp_path / "package").folder
    for words in (["check", "--select", "E,I"], ["format", "--check"]):
        done = said([sys.executable, "-m", "ruff", *words, "--no-cache", "."], folder, folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_groups_are_those_that_fairsilo_looks_in(packages: Path) -> None:
    for kind, name in NAMES.items():
        project = tomllib.loads((packages / kind / "pyproject.toml").read_text())["project"]
        ((group, points),) = project["entry-points"].items()
        assert group in plugins.GROUPS
        module, _, target = points[name].partition(":")
        tree = ast.parse((packages / kind / "src" / module / "__init__.py").read_text())
        assert target in {one.name for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)}


# --------------------------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("method", "FedProx", "there is a method 'fedprox' already"),
        ("method", "fft_gp", "there is a method 'fft-gp' already"),
        ("model", "small-cnn", "there is a model 'small-cnn' already"),
        ("model", "tiny-vit", "there is a model 'tiny-vit' already"),
        ("dataset", "glyphs", "there is a data set 'glyphs' already"),
        ("dataset", "pacs", "there is a data set 'pacs' already"),
        ("method", "class", "'class' has a meaning of its own"),
        ("model", "Auto", "'Auto' has a meaning of its own"),
        ("dataset", "torch", "Python finds a module 'torch' already"),
        ("dataset", "sys", "Python finds a module 'sys' already"),
        ("method", "2fast", "cannot be the name of a package"),
        ("method", "mine-", "cannot be the name of a package"),
        ("method", "../mine", "cannot be the name of a package"),
        ("method", "größe", "cannot be the name of a package"),
        ("method", "mine\n", "cannot be the name of a package"),
        ("method", "", "cannot be the name of a package"),
        ("method", "m" * 41, "at most 40 characters"),
        ("metric", "mine", "there is no template for 'metric'"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_and_nothing_is_written(
    kind: str, name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in sentence(lambda: scaffold.new(kind, name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("kind", NAMES)
def test_a_name_of_an_installed_package_is_refused(kind: str, tmp_path: Path) -> None:
    words = f"there is a {scaffold.KINDS[kind].words} {NAMES[kind]!r} already"
    assert words in sentence(lambda: scaffold.new(kind, NAMES[kind], tmp_path / "again"))
    assert not (tmp_path / "again").exists()


def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert "exists and is not empty" in sentence(lambda: scaffold.new("method", "own-weights", tmp_path / "full"))
    assert "is a file" in sentence(lambda: scaffold.new("method", "own-weights", tmp_path / "file"))
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["file", "full", "mine.txt"]


@pytest.mark.parametrize("there", [True, False])
def test_a_package_is_written_whole_or_not_at_all(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    if there:
        folder.mkdir()
    write = Path.write_text

    def full(self: Path, text: str, **options: str) -> int:
        if self.name == "__init__.py":
            raise OSError(28, "No space left on device", str(self))
        return write(self, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left") as problem:
        scaffold.new("method", "own-weights", folder)
    assert problem.value.filename == str(folder)  # not the one that it is written in at first
    assert list(tmp_path.rglob("*")) == ([folder] if there else [])


def test_an_empty_folder_is_filled_and_stays_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--out .` from inside it: a shell would be left in a folder that is gone."""
    before = tmp_path.stat().st_ino
    monkeypatch.chdir(tmp_path)
    made = scaffold.new("model", "own-net", Path())
    assert tmp_path.stat().st_ino == before
    assert sorted(made.files) == sorted(
        str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()
    )


# ------------------------------------------------------------------------------------------------------- the command
def test_the_command_prints_the_files_and_what_comes_next(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new", "method", "own-weights", "--out", str(tmp_path / "a b")])
    assert done.exit_code == 0
    files, _, commands = done.output.partition("next:\n")
    assert [Path(line).is_file() for line in files.splitlines()] == [True] * 4
    install, check, run, test = map(shlex.split, commands.splitlines())
    assert install == ["pip", "install", "-e", f"{tmp_path / 'a b'}[dev]"]
    assert check == ["fairsilo", "check", "own-weights"]
    assert run[:3] == ["fairsilo", "run", "method=own-weights"]
    assert test == ["python", "-m", "pytest", str(tmp_path / "a b")]


@pytest.mark.slow
def test_the_command_as_json_and_its_exit_code_where_it_refuses(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new", "dataset", "own-scans", "--out", str(tmp_path / "a"), "--json"])
    told = json.loads(done.output)
    assert told["folder"] == str(tmp_path / "a")
    assert [(tmp_path / "a" / file).is_file() for file in told["files"]] == [True] * 4
    assert told["commands"][1] == "fairsilo datasets own-scans"
    refused = said([sys.executable, "-m", "fairsilo.cli", "new", "method", "fedavg"], tmp_path, tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == "error: there is a method 'fedavg' already; choose another name than 'fedavg'\n"
    assert refused.stdout == ""


# ------------------------------------------------------------------------------------ as printed, with a real installer
@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_the_commands_of_the_readme_work_as_printed(kind: str, tmp_path: Path) -> None:
    """pip installs into a folder of the test, not into the environment; fairsilo, being there, is not fetched."""
    made, programs, site = scaffold.new(kind, NAMES[kind], tmp_path / "package"), tmp_path / "bin", tmp_path / "site"
    programs.mkdir()
    python = shlex.quote(sys.executable)
    options = f"--quiet --no-deps --no-build-isolation --upgrade --target {shlex.quote(str(site))}"
    for program, line in {
        "pip": f'test "$1 $2" = "install -e" && exec {python} -m pip install {options} "$3"',
        "python": f'exec {python} "$@"',
        "fairsilo": f'exec {python} -m fairsilo.cli "$@"',
    }.items():
        (programs / program).write_text(f"#!/bin/sh\n{line}\n")
        (programs / program).chmod(0o755)
    (commands,) = re.findall(r"```\n(.*?)```", (made.folder / "README.md").read_text(), re.DOTALL)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    text = (
        f"{made.commands[0]}\n{commands}"  # by the path that the command prints, and from inside as the README has it
    )
    done = said(
        ["bash", "-euo", "pipefail", "-c", text], made.folder, site, PATH=path, PIP_DISABLE_PIP_VERSION_CHECK="1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d passed", done.stdout)
    assert "failed" not in done.stdout


def test_templates_are_in_what_is_installed() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["fairsilo"]
    package = Path(fairsilo.__file__).parent
    packed = {file for pattern in patterns for file in package.glob(pattern)}
    templates = {file for file in (package / "templates").rglob("*") if file.is_file()}
    assert len(templates) == 1 + 3 * len(scaffold.KINDS)
    assert templates <= packed


def test_the_page_shows_the_method_and_the_commands_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = scaffold.new("method", "my-weights")
    page = (ROOT / "docs" / "your-own.md").read_text()
    written = (made.folder / "src" / "my_weights" / "__init__.py").read_text().partition('LOSS = "')
    assert written[1] + written[2] in page
    assert "\n".join(made.commands) in page
