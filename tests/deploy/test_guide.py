"""Every command of docs/deployment.md, in its order, as an administrator and a site's engineer would type them."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from system import free_port
from tiny_dicom import write_dicom
from tiny_sites import images, settings

pytestmark = pytest.mark.deploy
RUN = "fedprox-mu=0.1--seed0"  # as `federation submit` names it after its method
GUIDE = Path(__file__).parents[2] / "docs" / "deployment.md"


def commands() -> list[str]:
    """The lines of the guide's code blocks that call fairsilo."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    return [line for _, block in blocks for line in block.splitlines() if line.startswith("fairsilo ")]


class Terminal:
    """Runs the guide's lines, with this machine's names in the place of the guide's."""

    def __init__(self, folder: Path, words: dict[str, str]) -> None:
        self.folder, self.words = folder, words
        self.typed: list[str] = []
        self.running: list[subprocess.Popen[str]] = []

    def _started(self, line: str) -> subprocess.Popen[str]:
        self.typed.append(line)
        words = line.split()[1:]
        for guide, here in self.words.items():
            words = [here if word == guide else word for word in words]
        command = [sys.executable, "-m", "fairsilo.cli", *words]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def type(self, line: str) -> str:
        said, _ = (process := self._started(line)).communicate(timeout=180)
        assert process.returncode == 0, said
        return said

    def leave_running(self, line: str) -> None:
        self.running.append(self._started(line))

    def close(self) -> None:
        for process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    words = {
        "fl.example.org": "localhost",
        "8102": str(free_port()),
        "north.request.zip": "site/request/north.request.zip",
        "north.signed.zip": "federation/approved/north.signed.zip",
        "3": "1",  # sites
        "RUN": RUN,
    }
    made = Terminal(tmp_path, words)
    yield made
    made.close()


def test_every_command_of_the_guide(terminal: Terminal, tmp_path: Path) -> None:
    said = terminal.type("fairsilo federation init trial --host fl.example.org --port 8102")
    fingerprint = re.search(r"SHA256:[0-9A-F:]+", said)
    assert fingerprint
    assert fingerprint[0] in terminal.type("fairsilo federation invite north")
    terminal.type("fairsilo site join north --federation trial")
    terminal.type("fairsilo federation approve north.request.zip")
    terminal.words["SHA256:..."] = fingerprint[0]
    terminal.type("fairsilo site join --signed north.signed.zip --fingerprint SHA256:...")
    export(tmp_path)
    said = terminal.type("fairsilo index dicom export --labels labels.csv --domain north --out site/index.csv")
    assert "site/index.csv: 4 samples of 2 groups; 0 2, 1 2" in said
    said = terminal.type("fairsilo index sql hospital.db --query images.sql --domain north --out site/index.csv")
    assert "site/index.csv: 100 samples; 0 10, 1 10" in said
    (tmp_path / "site" / "site.yaml").write_text(yaml.safe_dump({"domain": "north", "table": "index.csv"}))
    chosen = {**settings(), "method": "fedprox(mu=0.1)", "baseline": "fedavg"}
    (tmp_path / "EXPERIMENT.yaml").write_text(yaml.safe_dump(chosen))
    terminal.leave_running("fairsilo federation start --sites 3")
    end = time.monotonic() + 60
    while "yes" not in (said := _tried(terminal, "fairsilo site check EXPERIMENT.yaml")) and time.monotonic() < end:
        if "server: reached" in said:
            break
        time.sleep(1)
    assert "server: reached, localhost" in said
    assert "silo north (train), domain north, classify, 3x16x16" in said
    assert "device: cpu" in said
    assert "would be sent: small-cnn: a change of the model each round" in said
    terminal.leave_running("fairsilo site start")
    terminal.type("fairsilo federation submit EXPERIMENT.yaml")
    assert finished(tmp_path / "federation" / "runs" / RUN / "baseline")
    status = terminal.type("fairsilo federation status")
    assert re.search(r"north\s*│\s*yes", status)
    assert re.search(r"fedprox-mu=0.1--\w*\s*│\s*finished\s*│\s*4 of 4\s*│\s*north", status)
    told = terminal.type("fairsilo federation logs RUN")
    assert re.search(r"\d\d:\d\d:\d\d  round 0: fedprox\(mu=0.1\) begins", told)
    assert "round 2: done" in told
    assert "the last attempt: finished" in told
    terminal.type("fairsilo federation stop")
    server, site = terminal.running
    assert server.wait(60) == 0
    assert operated(terminal, site, tmp_path)
    assert set(terminal.typed) == set(commands()) - {"fairsilo federation demo"}


def operated(terminal: Terminal, site: subprocess.Popen[str], folder: Path) -> bool:
    """The section on operations: new certificates for all, a run with them, and the site removed."""
    before = {path: path.read_bytes() for path in folder.glob("*/*/startup/*.crt")}
    assert len(before) == 3
    terminal.type("fairsilo federation renew")
    terminal.leave_running("fairsilo federation start --sites 3")
    terminal.words["north.request.zip"] = "site/renewal/north.request.zip"
    assert "site/renewal/north.request.zip" in terminal.type("fairsilo site renew")
    terminal.type("fairsilo federation approve north.request.zip --renew")
    log, end = folder / "federation" / "logs" / "server.log", time.monotonic() + 60
    while "received from north: invalid auth token signature" not in log.read_text() and time.monotonic() < end:
        time.sleep(0.5)
    assert time.monotonic() < end  # whoever was logged in is no more
    take = "fairsilo site join --signed north.signed.zip --fingerprint SHA256:..."
    assert "the site of site runs; stop it before it takes a new certificate" in _tried(terminal, take)
    site.send_signal(signal.SIGTERM)
    assert site.wait(60) == 0
    terminal.type(take)
    assert not any(path.read_bytes() == content for path, content in before.items())
    terminal.leave_running("fairsilo site start")
    terminal.type("fairsilo federation submit EXPERIMENT.yaml")
    assert finished(folder / "federation" / "runs" / f"{RUN}-2" / "baseline")
    terminal.type("fairsilo federation remove north")
    assert re.search(r"north\s*│\s*removed", terminal.type("fairsilo federation status"))
    return True


def finished(run: Path, seconds: float = 120.0) -> bool:
    """Whether the baseline of a run comes to its end, the report of both included."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        status = json.loads((run / "run.json").read_text())["status"] if (run / "run.json").exists() else ""
        if status == "finished" and (run.parent / "report.html").exists():
            return True
        time.sleep(0.5)
    return False


def export(folder: Path) -> None:
    """What a PACS and a database give: a few files with a table of labels, and a query that names all images."""
    for number in range(4):
        file = folder / "export" / f"study{number // 2}" / f"1.2.{number}"
        write_dicom(file, np.zeros((16, 16)), PatientID=f"P{number // 2}")
    (folder / "labels.csv").write_text("PatientID,label\nP0,0\nP1,1\n")
    found = [(str(path), path.parent.name) for path in sorted((images() / "scan").rglob("*.png"))]
    with sqlite3.connect(folder / "hospital.db") as database:
        database.execute("CREATE TABLE images (file TEXT, diagnosis TEXT)")
        database.executemany("INSERT INTO images VALUES (?, ?)", found)
    database.close()
    (folder / "images.sql").write_text("SELECT file AS path, diagnosis AS label FROM images")


def _tried(terminal: Terminal, line: str) -> str:
    process = terminal._started(line)
    return process.communicate(timeout=120)[0]


def test_the_demo(tmp_path: Path) -> None:
    assert "fairsilo federation demo" in commands()
    command = [sys.executable, "-m", "fairsilo.cli", "federation", "demo", "--no-browser"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "street (unseen)" in done.stdout
    run = tmp_path / "federation-demo" / "federation" / "runs" / "fft-gp"
    assert (run / "report.html").exists()
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
