"""What `pip install` of the built wheel gives: the version, all files that commands read, and a run."""

from __future__ import annotations

import json
import os
import re
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


@pytest.mark.slow
def test_the_built_wheel_runs_by_itself(tmp_path: Path) -> None:
    """In a folder of its own, with nothing of the checkout: pages, tables, templates and shipped models come along."""
    build = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*build, "-w", str(tmp_path)], check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("fairsilo-*.whl")
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
