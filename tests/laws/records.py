"""What every method found before the core was changed: losses, metrics and the model's length, round by round.

`python tests/laws/records.py [METHOD...]` writes (again) the numbers of these methods, or of all, to records.json. A
change of the code that claims to keep the arithmetic leaves the file as it is; where a rule is revised, the numbers of
the methods that have it are written anew in the same commit, which says why.

Networks from scratch run in float64, so that their numbers are the same on every processor. Backbones are float32, and
their random weights depend on the version of `transformers`: they are compared only where they were recorded.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny
import tiny_backbones
from fairsilo.data.federation import pooled
from fairsilo.engine.features import keep_features
from fairsilo.engine.loop import Event, Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.text import method

FILE = Path(__file__).with_name("records.json")
ON_BACKBONES = tiny.ON_BACKBONES
NAMES = tiny.ALL
SLOWER = dataclasses.replace(tiny.TRAINING, lr=0.02, rounds=2)


def double_net(classes: int, channels: int) -> nn.Module:
    return tiny.TinyNet(classes, channels).double()


def machine() -> str:
    return f"{platform.machine()}, torch {torch.__version__.split('+')[0]}, transformers {version('transformers')}"


def record(how: str) -> dict[str, Any]:
    """Every number of a short run: losses and metrics in the order of the rows, and the model's length."""
    people = tiny.federation()
    on_backbone = how in ON_BACKBONES
    model: Any = double_net
    if on_backbone:
        people = tiny_backbones.enlarged(people)
        named = CATALOGUE[how.split(" | ")[0].partition("(")[0]].model
        model = tiny.backbone("vit" if "vit" in named and how != "fedag" else "clip")
    made = {silo.name: silo.validation for silo in people.silos}
    if how == "fedag":  # CLIP at the server, small networks at the silos
        model, how = tiny.TinyNet, f"fedag(backbone={model})"
    if method(how).pools:
        people = pooled(people)
    norms: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "round":
            norms.append(float(loop.server.vector.double().norm()))

    plan = tiny.plan(how, SLOWER if on_backbone else tiny.TRAINING, model=model)
    ready = keep_features(plan, people, people.silos[0].validation)
    loop = Loop(
        ready.plan,
        ready.federation.roster,
        Sequential(ready.plan, ready.federation, strict=True),
        listener=listen,
        server_data=ready.server_data,
        synthetic=made,
    )
    history = loop.run()
    return {
        "losses": [rounded(record["train_loss"].values()) for record in history.rounds],
        "metrics": rounded(value for row in history.rows for value in (row["loss"], row["metric"])),
        "norms": rounded(norms),
    }


def rounded(values: Any) -> list[float]:
    return [float(f"{float(value):.9g}") for value in values]


def differences(found: dict[str, Any], kept: dict[str, Any], tolerance: float) -> list[str]:
    """Where two records differ by more than a relative tolerance."""
    wrong = []
    for key in ("losses", "metrics", "norms"):
        one, other = (torch.tensor(record[key], dtype=torch.float64) for record in (found, kept))
        if one.shape != other.shape:
            wrong.append(f"{key}: {tuple(one.shape)} numbers instead of {tuple(other.shape)}")
        elif not torch.allclose(one, other, rtol=tolerance, atol=tolerance):
            worst = ((one - other).abs() / (other.abs() + 1)).max()
            wrong.append(f"{key}: off by {worst:.2e}")
    return wrong


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    kept = json.loads(FILE.read_text()) if FILE.exists() else {"machine": "", "methods": {}}
    methods = dict(kept["methods"])
    for name in names or NAMES:
        methods[name] = record(name)
        sys.stdout.write(f"{name}\n")
    lines = [f"{json.dumps(name)}: {json.dumps(methods[name])}" for name in NAMES if name in methods]
    FILE.write_text(f'{{"machine": {json.dumps(machine())}, "methods": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
