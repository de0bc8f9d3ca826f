"""FedCLIP with kept features, end to end: rounds a minute with a 512-wide adapter over 10,000 images, and peak memory.

    python benchmarks/features.py

A random CLIP with 512 wide features stands in for a large one: after the first pass over the images only the adapter
runs, whatever the backbone. The same training without kept features is timed for one round beside it.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import torch

from fairsilo.config import TrainSettings
from fairsilo.core.samples import SiloData, Split
from fairsilo.data.federation import Federation
from fairsilo.engine.blueprint import Blueprint
from fairsilo.engine.features import keep_features
from fairsilo.engine.loop import Loop
from fairsilo.engine.processes import Pool, Processes
from fairsilo.methods.text import method
from fairsilo.tasks.classify import Classify


def write_clip(folder: Path) -> str:
    """Towers as small as the tiny CLIP's, features as wide as a real one's; the tokenizer is the shipped one."""
    import shutil
    from importlib.resources import files

    import transformers

    torch.manual_seed(0)
    shipped = Path(str(files("fairsilo.models").joinpath("pretrained", "tiny-clip")))
    config = transformers.CLIPConfig.from_pretrained(shipped)
    config.projection_dim = 512
    transformers.CLIPModel(config).save_pretrained(folder)
    for file in shipped.iterdir():
        if "token" in file.name or file.name in ("vocab.json", "merges.txt", "preprocessor_config.json"):
            shutil.copy(file, folder)
    return f"clip:{folder}"


def federation(images: int) -> Federation:
    stream = torch.Generator().manual_seed(0)
    silos = []
    for index in range(4):
        count = images // 4
        pixels = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=stream)
        split = Split(pixels, torch.randint(0, 10, (count,), generator=stream))
        few = Split(pixels[:100], split.targets[:100])
        silos.append(SiloData(f"s{index}", "d", split, few, few))
    return Federation("noise", tuple("0123456789"), tuple(silos))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    people = federation(chosen.images)
    with tempfile.TemporaryDirectory() as place:
        model = write_clip(Path(place))
        training = TrainSettings(rounds=chosen.rounds, epochs=1, batch_size=32, optimizer="adam", lr=1e-3)
        plan = Blueprint(method("fedclip"), model, Classify(10), 3, training, seed=0, classes=people.classes)
        begun = time.perf_counter()
        ready = keep_features(plan, people)
        first = time.perf_counter() - begun
        print(f"{ready.said}; the one pass took {first:.1f} s")
        pool = Pool(2)
        for name, some, silos, rounds in (
            ("kept", ready.plan, ready.federation, chosen.rounds),
            ("not kept", plan, people, 1),
        ):
            settings = TrainSettings(**{**training.__dict__, "rounds": rounds})
            here = Blueprint(**{**some.__dict__, "training": settings})
            loop = Loop(here, silos.roster, Processes(here, silos, pool))
            begun = time.perf_counter()
            loop.run()
            spent = time.perf_counter() - begun
            print(f"features {name}: {60 * rounds / spent:.1f} rounds a minute (evaluation included)")
        pool.close()
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"peak memory: {own:.0f} MiB, and {workers:.0f} MiB in the largest of 2 workers")


if __name__ == "__main__":
    main()
