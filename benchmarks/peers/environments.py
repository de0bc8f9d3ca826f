"""A virtual environment for each library, made by pip: PyTorch first and alone, so that no other package chooses it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = HERE / ".environments"
CONSTRAINTS = ROOT / "constraints.txt"
TORCH = next(line for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if line.startswith("torch=="))


@dataclass(frozen=True)
class Environment:
    """What is installed after PyTorch.

    Args:
        installs: The arguments of pip, of one call after the other.
        stubs: Module -> the text of a file that stands in for it.
    """

    installs: tuple[tuple[str, ...], ...]
    stubs: tuple[tuple[str, str], ...] = ()


def _own_dependencies() -> tuple[str, ...]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return tuple(project["dependencies"])


ENVIRONMENTS = {
    # fairsilo itself is this checkout, on PYTHONPATH: an editable install would write into it
    "fairsilo": Environment((("-c", str(CONSTRAINTS), *_own_dependencies()),)),
    "pfl": Environment((("pfl==0.6.0",),)),
    "flower": Environment((("flwr[simulation]==1.41.0",),)),
    # Its data sets import torchvision when anything of FedLab is imported, and use it only to read MNIST and CIFAR,
    # which this job does not: a stub is enough, and no second build has to suit PyTorch's.
    "fedlab": Environment(
        (("--no-deps", "fedlab==1.3.0"), ("numpy", "pandas", "scikit-learn", "pynvml", "tqdm", "pillow")),
        (("torchvision", '"""A stub: see environments.py."""\n\ntransforms = None\n'),),
    ),
}


class CannotInstallError(Exception):
    """pip or venv failed; the message says why."""


def python_of(name: str) -> Path:
    """The interpreter of an environment, which is made where it is missing or where what it needs has changed.

    Raises:
        CannotInstallError: It cannot be made on this machine.
    """
    wanted, place = ENVIRONMENTS[name], FOLDER / name
    python, ready = place / "bin" / "python", place / "ready"
    text = repr((TORCH, wanted))
    if ready.exists() and ready.read_text(encoding="utf-8") == text:
        return python
    print(f"making the environment {name}", file=sys.stderr, flush=True)
    _call(sys.executable, "-m", "venv", "--clear", str(place))
    _pip(python, TORCH)
    for arguments in wanted.installs:
        _pip(python, *arguments, *(() if "--no-deps" in arguments else (TORCH,)))
    for module, content in wanted.stubs:
        packages = next(place.glob("lib/python*/site-packages"))
        (packages / f"{module}.py").write_text(content, encoding="utf-8")
    ready.write_text(text, encoding="utf-8")
    return python


def _pip(python: Path, *arguments: str) -> None:
    _call(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        raise CannotInstallError(" ".join(errors)[:300] or f"{command[0]} ended with {done.returncode}")
