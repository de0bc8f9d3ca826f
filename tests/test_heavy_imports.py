"""What a plain run does not need it does not import: these packages take seconds, or may not be installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("transformers", "matplotlib", "sklearn", "pandas", "diffusers", "optuna", "mlflow", "wandb", "tensorboard")
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
sys.exit(" ".join(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[2:]))) or 0)
"""


def test_a_plain_run_imports_nothing_heavy_but_torch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "run"), *HEAVY],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "report.html").exists()
