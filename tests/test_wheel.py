"""What `pip install` of the built wheel gives: the version, all files that commands read, and a run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import fairsilo

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("transformers", "sklearn", "matplotlib", "diffusers", "peft", "nvflare", "onnx", "pandas")


def test_the_version_stands_in_one_place() -> None:
    assert version("fairsilo") == fairsilo.__version__
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == fairsilo.__version__


def test_heavy_packages_are_imported_where_they_are_needed() -> None:
    code = f"import sys, fairsilo.api, fairsilo.cli, json; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*build, "-w", str(folder)], check=True, cwd=folder)
    (found,) = folder.glob("fairsilo-*.whl")
    return found


@pytest.mark.slow
def test_the_built_wheel_runs_by_itself(wheel: Path, tmp_path: Path) -> None:
    """In a folder of its own, with nothing of the checkout: pages, tables, templates and shipped models come along."""
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        packed.extractall(installed)
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "fairsilo").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= names, f"the wheel lacks {sorted(sources - names)[:5]}"
    work = tmp_path / "work"
    work.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def fairsilo_says(*arguments: str) -> str:
        command = [sys.executable, "-m", "fairsilo.cli", *arguments]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = [sys.executable, "-c", "import fairsilo; print(fairsilo.__file__)"]
    found = subprocess.run(where, cwd=work, env=environment, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(installed))
    assert fairsilo_says("--version") == f"fairsilo {fairsilo.__version__}\n"
    fairsilo_says("run", "method=fedclip", "rounds=1", "epochs=1", "-o", "run")  # the shipped CLIP
    assert "<style>" in (work / "run" / "report.html").read_text()
    assert "fedheal/table2-digits" in fairsilo_says("reproduce", "--list")
    fairsilo_says("new", "method", "my-weights")
    assert (work / "my-weights" / "pyproject.toml").exists()


def interpreter(version: str) -> str | None:
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(kept[-1]) if kept else shutil.which(f"python{version}")  # pyenv's own commands may name one that is off


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_pip_installs_the_wheel_in_a_fresh_environment(version: str, wheel: Path, tmp_path: Path) -> None:
    """With what it depends on and the real trackers, which are stand-ins in other tests."""
    python, own = interpreter(version), "{}.{}".format(*sys.version_info)
    if python is None:
        pytest.skip(f"no Python {version} here")
    if version != own and not os.environ.get("EVERY_PYTHON"):
        pytest.skip("PyTorch for it may be gigabytes; `make wheels` tries it")
    subprocess.run([python, "-m", "venv", "fresh"], check=True, cwd=tmp_path)
    commands = tmp_path / "fresh" / "bin"
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"WANDB_MODE": "offline", "WANDB_HOST": "name-of-this-machine", "MLFLOW_ALLOW_FILE_STORE": "true"}

    def done(*command: str) -> str:
        made = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
        return made.stdout + made.stderr

    extras = f"{wheel}[tensorboard,mlflow,wandb]"
    done(str(commands / "python"), "-m", "pip", "install", "--quiet", extras, "-c", str(ROOT / "constraints.txt"))
    check = [str(commands / "python"), "-m", "pip", "check"]
    asked = subprocess.run(check, env=environment, capture_output=True, text=True, check=False)
    assert not asked.stderr
    told = asked.stdout.splitlines()
    # of PyTorch's libraries for GPUs one says of itself that it is for another platform
    assert [line for line in told if not line.startswith("nvidia-")] in ([], ["No broken requirements found."])
    fairsilo_ = str(commands / "fairsilo")
    assert done(fairsilo_, "--version") == f"fairsilo {fairsilo.__version__}\n"
    trackers = ["--track", "tensorboard", "--track", "wandb:trial", "--track", f"mlflow:{(tmp_path / 'ml').as_uri()}"]
    done(fairsilo_, "run", "rounds=2", "epochs=1", "data.share=100", "-o", "run", *trackers)
    notes = json.loads((tmp_path / "run" / "run.json").read_text())["notes"]
    assert not any("listener" in note for note in notes)  # a tracker that raised is noted
    losses = next((tmp_path / "ml").glob("*/*/metrics/test_loss/global/photo"))
    tracked = [float(line.split()[1]) for line in losses.read_text().splitlines()]
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    ours = [row["loss"] for row in rows if (row["silo"], row["model"], row["split"]) == ("photo", "global", "test")]
    assert tracked == pytest.approx(ours)
    (kept,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    assert b"test_loss/global/photo" in kept.read_bytes()
    assert b"name-of-this-machine" not in kept.read_bytes()
