"""A federation of real processes over mutual TLS: seconds per exchange, bytes, and memory in copies of the model.

    python benchmarks/sites.py                               three sites, small-cnn, 5 rounds
    python benchmarks/sites.py --sites 20 --rounds 20 --model tiny-vit
    python benchmarks/sites.py --model "vit-base(size=32, patch=16)" --rounds 2

Sites hold a few images each, so that what is measured is what lies between them and not their training.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

from fairsilo.config import experiment
from fairsilo.deploy.flare.demo import here
from fairsilo.deploy.flare.machines import job_processes

DOMAINS = ("photo", "print", "scan", "sketch", "street")


class Memory(threading.Thread):
    """The most that any process of the server's kit, and any of a site's, ever held, in bytes."""

    def __init__(self, folder: Path, sites: list[str]) -> None:
        super().__init__(daemon=True)
        self.kits = {"server": folder / "federation" / "server"} | {name: folder / name / "kit" for name in sites}
        self.most = dict.fromkeys(self.kits, 0)
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.25):
            for name, kit in self.kits.items():
                for pid in job_processes(kit):
                    self.most[name] = max(self.most[name], resident(pid))


def resident(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    line = next((line for line in text.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return 1024 * int(line.split()[1])


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--sites", type=int, default=3)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--model", default="small-cnn")
    options.add_argument("--method", default="fedavg")
    chosen = options.parse_args()
    names = [f"site-{number + 1:02d}" for number in range(chosen.sites)]
    described = {
        name: {"name": name, "domain": DOMAINS[number % len(DOMAINS)], "data": "glyphs", "share": 8}
        for number, name in enumerate(names)
    }
    settings = {
        "method": chosen.method,
        "model": chosen.model,
        "data": {"name": "glyphs"},
        "train": {"rounds": chosen.rounds, "epochs": 1, "batch_size": 8, "lr": 0.001},
        "evaluate": {"every": chosen.rounds},
    }
    with tempfile.TemporaryDirectory() as work:
        folder, begun = Path(work), time.perf_counter()
        with here(folder, described, print) as federation:
            print(f"kits and processes: {time.perf_counter() - begun:.0f} s")
            memory = Memory(folder, names)
            memory.start()
            run = federation.run(experiment(settings), "load")
            memory.over.set()
        status = json.loads((run / "run.json").read_text())
        rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    size = status["bytes_sent"]
    train = [one for row in rounds for one in row["exchanges"] if one["kind"] == "train"]
    later = [one["seconds"] for one in train[1:]] or [train[0]["seconds"]]
    up = sum(one["bytes_up"] for one in train) / len(train)
    print(f"{chosen.sites} sites, {chosen.model}, a model of {size / 2**20:.1f} MiB, {len(rounds)} rounds")
    print(f"train exchange: first {train[0]['seconds']:.2f} s, then median {statistics.median(later):.2f} s")
    print(f"bytes a round: {train[0]['bytes_down'] / 2**20:.1f} MiB down, {up / 2**20:.1f} MiB up")
    sites = [memory.most[name] for name in names]
    print(f"server's job: {memory.most['server'] / 2**20:.0f} MiB, {memory.most['server'] / size:.1f} models")
    print(f"largest site's job: {max(sites) / 2**20:.0f} MiB, {max(sites) / size:.1f} models")
    print(f"all rounds counted all sites: {all(len(row['counted']) == chosen.sites for row in rounds)}")


if __name__ == "__main__":
    main()
