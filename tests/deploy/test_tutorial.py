"""docs/tutorials/deployment.md: its blocks as printed, in an empty folder, another port apart.

Each has a shell of its own, as a cell of the notebook has; what works so works in one shell too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from system import free_port
from test_docs import BLOCK, ROOT, TOGETHER, programs_in

pytestmark = pytest.mark.deploy
(PAGE,) = TOGETHER
PORT = "--port 8102"
LOGS = ("server.log", "north.log", "south.log")


IN_TURN = 'for block in "$1"/*; do bash -euo pipefail "$block"; done'


def write_blocks(folder: Path) -> None:
    """Those of the page, on a port that is free here."""
    folder.mkdir()
    blocks = [found["text"] for found in BLOCK.finditer((ROOT / PAGE).read_text(encoding="utf-8"))]
    assert "".join(blocks).count(PORT) == 1
    port = f"--port {free_port()}"
    for number, text in enumerate(blocks):
        (folder / f"{number:02}.sh").write_text(text.replace(PORT, port), encoding="utf-8")


def ended(log: Path) -> str:
    """What a program wrote that was told to end, which takes it a while."""
    for _ in range(120):
        if "stopped; " in (text := log.read_text(encoding="utf-8")):
            return text
        time.sleep(0.5)
    raise AssertionError(f"{log.name} does not say that it stopped: {text}")


def test_the_tutorial_runs_as_printed(tmp_path: Path) -> None:
    """Its shell leads a group of processes, so that nothing is left where a block fails before it stops them."""
    pytest.importorskip("nvflare", reason="needs the package nvflare: pip install 'fairsilo[flare]'")
    (work := tmp_path / "work").mkdir()
    environment = {**os.environ, "PATH": f"{programs_in(tmp_path)}{os.pathsep}{os.environ['PATH']}"}
    said = tmp_path / "said"
    with said.open("w") as file:
        write_blocks(blocks := tmp_path / "blocks")
        command = ["bash", "-euo", "pipefail", "-c", IN_TURN, "blocks", str(blocks)]
        shell = subprocess.Popen(command, cwd=work, env=environment, stdout=file, stderr=file, start_new_session=True)
        try:
            status = shell.wait(600)  # two to three minutes on two idle cores
            logs = [ended(work / log) for log in LOGS] if status == 0 else []
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
    told = said.read_text(encoding="utf-8")
    assert status == 0, told
    assert "Traceback" not in told
    simulated, deployed = work / "runs" / "simulated", work / "federation" / "runs" / "first"
    assert (simulated / "metrics.jsonl").read_text() == (deployed / "metrics.jsonl").read_text() != ""
    assert json.loads((deployed / "run.json").read_text())["status"] == "finished"
    assert (deployed / "report.html").exists()
    assert "the last attempt: finished" in told
    assert not any("Traceback" in log for log in logs)
