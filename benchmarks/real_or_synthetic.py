"""FedAG's Figures 4 and 7: a silo's model trained on its own images, or on synthetic ones in their style instead.

    python benchmarks/real_or_synthetic.py [seeds]

Every silo trains alone and is tested on its own test images. Synthetic images are as many as real ones, so that the
difference is what they show and not their number. It also shows how a federation of one's own making is run.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import fairsilo
from fairsilo import config
from fairsilo.data.synthetic import make_synthetic
from fairsilo.runs.setup import federation_of

SETTINGS = {
    "method": "local",
    "model": "tiny-vit",
    "data": {"name": "glyphs", "held_out": "street+photo"},
    "train": {"rounds": 10, "epochs": 2, "batch_size": 32, "optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0},
    "evaluate": {"selection": "last", "every": 10},
}


def main(seeds: int) -> None:
    for seed in range(seeds):
        experiment = config.experiment({**SETTINGS, "seed": seed})
        real = federation_of(experiment)
        for bad in (None, 0.2, 0.0):
            silos, name = real.silos, "real"
            if bad is not None:
                made = make_synthetic("glyphs", real.roster, 1.0, bad, experiment.data.seed)
                silos = tuple(dataclasses.replace(silo, train=made[silo.name]) for silo in real.silos)
                name = f"synthetic, {bad:.0%} bad"
            with TemporaryDirectory() as folder:
                people = dataclasses.replace(real, silos=silos)
                summary = fairsilo.run(experiment, federation=people, out=Path(folder) / "run").summary
            own = {row["silo"]: f"{row['personal']:.3f}" for row in summary["silos"] if not row["unseen"]}
            sys.stdout.write(f"seed {seed}, {name}: {summary['personalisation']['mean']:.3f} {own}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
