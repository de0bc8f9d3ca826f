"""A run on lanes that is killed in the middle and resumed: does it end with the numbers of one that was left alone?

    CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONPATH=src python benchmarks/gpu_resume.py

Ends with 1 where a round or a weight differs. Two methods: one whose server keeps state, one whose silos do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = [
    "model=small-cnn",
    "train.rounds=14",
    "engine.name=lanes",
    "engine.device=cuda",
    "engine.checkpoint_every=2",
]
UNLIKE = ("seconds", "exchanges")  # what a clock says
DETERMINISTIC = """import torch
torch.use_deterministic_algorithms(True, warn_only=True)
from fairsilo.cli import main
main()"""


def fairsilo(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", DETERMINISTIC, *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def rounds_of(folder: Path) -> list[dict[str, object]]:
    path = folder / "rounds.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [{name: value for name, value in json.loads(line).items() if name not in UNLIKE} for line in lines]


def compared(method: str, folder: Path) -> bool:
    whole, killed = folder / "whole", folder / "killed"
    assert fairsilo("run", f"method={method}", *SETTINGS, "--out", str(whole)).wait() == 0
    process = fairsilo("run", f"method={method}", *SETTINGS, "--out", str(killed))
    while len(rounds_of(killed)) < 5:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reached = len(rounds_of(killed))
    assert fairsilo("resume", str(killed)).wait() == 0
    one, other = rounds_of(whole), rounds_of(killed)
    differing = {name for a, b in zip(one, other, strict=True) for name in a if a[name] != b.get(name)}
    weights = [sorted((each / "models").rglob("*.safetensors")) for each in (whole, killed)]
    same = all(a.read_bytes() == b.read_bytes() for a, b in zip(*weights, strict=True))
    print(
        f"{method}: killed after round {reached}, resumed to {len(other)}; rounds differ in: "
        f"{', '.join(sorted(differing)) or 'nothing'}; {len(weights[0])} models bit by bit: {same}",
        flush=True,
    )
    return same and not differing


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        found = [compared(method, Path(made) / method) for method in ("faa", "scaffold")]
    return int(not all(found))


if __name__ == "__main__":
    sys.exit(main())
