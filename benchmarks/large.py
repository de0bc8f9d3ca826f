"""Data larger than memory: a prepared data set of 30 GB of random images, read as silos read it while they train.

    python benchmarks/large.py [--gigabytes 30] [--folder DIR]

Prints the peak of anonymous memory (what belongs to the process itself; pages of the mapped file are the system's, and
go when memory is short) while batches are drawn at random from the whole file, and the time per batch from a part of
the file whose pages are cached, as a ratio to the same samples in memory, both in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from fairsilo.config import TrainSettings
from fairsilo.core.messages import Message, Request
from fairsilo.core.samples import InMemory, SiloData, Split
from fairsilo.core.silo import Memory, Silo
from fairsilo.data.federation import federate
from fairsilo.data.prepared import FORMAT, read_prepared
from fairsilo.engine.blueprint import Blueprint
from fairsilo.methods.text import method
from fairsilo.tasks.classify import Classify

SHAPE = (3, 224, 224)
DOMAINS = ("north", "east", "south", "west")
CLASSES = tuple("0123456789")
BLOCK = 256  # images written at a time
BATCH = 64
MEBI, GIGA = 2**20, 10**9


def write(folder: Path, gigabytes: float) -> int:
    """A prepared data set of random images; returns the number of images in each domain."""
    count = int(gigabytes * GIGA / len(DOMAINS) / np.prod(SHAPE)) // BLOCK * BLOCK
    generator, domains = np.random.default_rng(0), {}
    noise = generator.integers(0, 256, (BLOCK, *SHAPE), dtype=np.uint8)
    for number, name in enumerate(DOMAINS):
        with (folder / f"{number}.inputs").open("wb") as stream:
            for place in range(count // BLOCK):
                stream.write((noise + np.uint8((97 * number + place) % 256)).tobytes())
        targets = torch.from_numpy(generator.integers(0, len(CLASSES), count))
        split = torch.full((count,), -1, dtype=torch.int8)
        save_file({"targets": targets, "split": split}, folder / f"{number}.safetensors")
        facts = {"file": str(number), "shape": [count, *SHAPE], "dtype": "uint8", "inputs": "", "targets": ""}
        domains[name] = {**facts, "silo": None, "attributes": {}}
    about = {"format": FORMAT, "name": "large", "about": "", "task": "classify", "source": {}}
    (folder / "index.json").write_text(json.dumps({**about, "classes": CLASSES, "domains": domains}))
    return count


def anonymous() -> float:
    """Anonymous memory of this process, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) / 1024


def silo_of(data: SiloData) -> Silo:
    plan = Blueprint(
        method("fedavg"),
        "small-cnn",
        Classify(len(CLASSES)),
        3,
        TrainSettings(batch_size=BATCH, epochs=1),
        0,
    )
    return plan.silo(plan.flat(), data, Request("train", 1, Message()), Memory())


def seconds(data: SiloData) -> list[float]:
    """For each batch of an epoch: until it is ready to be trained on, as floats in the network's range."""
    found, last = [], time.perf_counter()
    for _ in silo_of(data).batches():
        found.append(time.perf_counter() - last)
        last = time.perf_counter()
    return found


def some(split: Split, count: int) -> SiloData:
    """A silo with the first samples of a split."""
    chosen = split.subset(torch.arange(count))
    return SiloData("part", "part", chosen, chosen, chosen)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--gigabytes", type=float, default=30)
    arguments.add_argument("--folder", type=Path, default=None, help="where the file is written and removed again")
    arguments.add_argument("--batches", type=int, default=400, help="read at random from the whole file")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        folder = Path(temporary)
        count = write(folder, given.gigabytes)
        before = anonymous()
        federation = federate(read_prepared(folder), held_out="-")
        peak, read = anonymous(), 0
        for data in federation.silos:
            for _, _batch in zip(range(given.batches // len(DOMAINS)), silo_of(data).batches(), strict=False):
                peak, read = max(peak, anonymous()), read + BATCH
        print(
            f"{len(DOMAINS) * count:,} images, {len(DOMAINS) * count * np.prod(SHAPE) / GIGA:.1f} GB; {read:,} of them "
            f"read at random: anonymous memory at most {peak:.0f} MiB, {peak - before:.0f} MiB above the start "
            "(bound: 2,048)"
        )
        mapped = some(federation.silos[0].train, 4096)
        inputs, targets = mapped.train.take(torch.arange(4096))
        copied = some(Split(InMemory(inputs), targets), 4096)
        seconds(mapped)  # the file's pages are in the cache now
        ratios = [statistics.median(seconds(mapped)) / statistics.median(seconds(copied)) for _ in range(7)]
        print(
            f"time per batch of {BATCH}, mapped file (cached) / in memory: median {statistics.median(ratios):.3f}, "
            f"{min(ratios):.3f} to {max(ratios):.3f} (bound: 1.3)"
        )


if __name__ == "__main__":
    main()
