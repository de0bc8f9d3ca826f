"""docs/tutorials/deployment.md: its blocks as printed, in one shell and an empty folder, another port apart."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from system import free_port
from test_docs import BLOCK, ROOT, TOGETHER, programs_in

pytestmark = pytest.mark.deploy
(PAGE,) = TOGETHER
PORT = "--port 8102"


def script() -> str:
    """All blocks of the page, on a port that is free here."""
    blocks = [found["text"] for found in BLOCK.finditer((ROOT / PAGE).read_text(encoding="utf-8"))]
    text = "\n".join(blocks)
    assert text.count(PORT) == 1
    return text.replace(PORT, f"--port {free_port()}")


def test_the_tutorial_runs_as_printed(tmp_path: Path) -> None:
    """Its shell leads a group of processes, so that nothing is left where a block fails before it stops them."""
    pytest.importorskip("nvflare", reason="needs the package nvflare: pip install 'fairsilo[flare]'")
    (work := tmp_path / "work").mkdir()
    environment = {**os.environ, "PATH": f"{programs_in(tmp_path)}{os.pathsep}{os.environ['PATH']}"}
    said = tmp_path / "said"
    with said.open("w") as file:
        command = ["bash", "-euo", "pipefail", "-c", script()]
        shell = subprocess.Popen(command, cwd=work, env=environment, stdout=file, stderr=file, start_new_session=True)
        try:
            status = shell.wait(600)  # two to three minutes on two idle cores
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
    for log in ("server.log", "north.log", "south.log"):
        text = (work / log).read_text(encoding="utf-8")
        assert "stopped; " in text
        assert "Traceback" not in text
