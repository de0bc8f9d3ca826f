"""What a plain run does not need it does not import: these packages take seconds, or may not be installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "torch._dynamo",  # the compiler
    "scipy",
    "transformers",
    "matplotlib",
    "sklearn",
    "pandas",
    "diffusers",
    "optuna",
    "mlflow",
    "wandb",
    "tensorboard",
)
RUN = """
import sys
import torch
import fairsilo

torch.set_num_threads(1)


def split(count):
    targets = torch.arange(count) % 2
    images = torch.randint(0, 256, (count, 3, 16, 16), dtype=torch.uint8)
    return fairsilo.Split(images, targets)


silos = tuple(fairsilo.SiloData(name, name, split(8), split(4), split(4)) for name in ("north", "south"))
people = fairsilo.Federation("own", ("cat", "dog"), silos, ())
fairsilo.run(
    federation=people,
    method="fedavg",
    baseline=None,
    model="small-cnn",
    train={"rounds": 1, "epochs": 1, "batch_size": 4},
    engine={"name": "sequential", "device": "cpu"},
    out=sys.argv[1],
)
sys.exit(" ".join(sorted(set(sys.modules) & set(sys.argv[2:]))) or 0)
"""
DRAWN = """
import sys

from fairsilo.data.glyphs import glyphs

glyphs(per_domain=100)
sys.exit(" ".join(sorted(set(sys.modules) & {"scipy", "sklearn", "torch._dynamo"})) or 0)
"""


# what it is given: the folder of a run, and another one
READERS = """
import contextlib
import io
import sys

from fairsilo.cli import main
import fairsilo.watch.opening
import fairsilo.watch.server
import fairsilo.runs.inventory

run, place = sys.argv[1:]
COMMANDS = [
    (0, "runs", "list", place),
    (0, "runs", "prune", place, "--yes"),
    (0, "runs", "export", run, "-o", place + "/packed.zip"),
    (0, "report", run),
    (0, "reproduce", "--list"),
    (0, "reproduce", "--show", "fedheal/table3-digits"),
    (0, "figure", "list"),
    (0, "models"),
    (0, "models", "unet"),
    (0, "datasets"),
    (0, "datasets", "digits"),
    (0, "settings"),
    (0, "new", "model", "own-net", "--out", place + "/own"),
    (2, "run", "method=nonsense"),
    (2, "run", "method=fedavg", "model=nonsense"),
    (2, "run", "data=nonsense"),
    (2, "run", "nonsense=3"),
    (2, "compare", "fedavg", "nonsense"),
    (2, "tune", "nonsense"),
    (2, "advise", "nonsense"),
    (2, "methods", "nonsense"),
    (2, "methods", "fedavg | nonsense"),
    (2, "resume", place),
    (2, "figure", "nonsense", run),
    (2, "figure", "t-sne", place),
    (2, "figure", "all", place),
    (2, "export", run, "--to", "nonsense"),
    (2, "export", place, "--to", "onnx"),
    (2, "predict", place, place),
    (2, "evaluate", place, "--data", place),
    (2, "personalise", place, "--data", place),
]
for code, *words in COMMANDS:
    sys.argv = ["fairsilo", *words]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
            ended = 0
        except SystemExit as end:
            ended = end.code or 0
    if (ended, "torch" in sys.modules) != (code, False):
        sys.exit(f"{words}: {ended}, torch: {'torch' in sys.modules}; {said.getvalue()}")
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A run folder, and how the process ended that made it."""
    folder = tmp_path_factory.mktemp("place") / "run"
    words = [sys.executable, "-c", RUN, str(folder), *HEAVY]
    return folder, subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)


def test_a_plain_run_imports_nothing_heavy_but_torch(made: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = made
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "report.html").exists()


def test_drawing_the_embedded_data_imports_nothing_heavy_but_torch() -> None:
    done = subprocess.run([sys.executable, "-c", DRAWN], check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_only_reads_and_what_is_refused_by_its_name_waits_for_no_torch(
    made: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    words = [sys.executable, "-c", READERS, str(made[0]), str(made[0].parent)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
