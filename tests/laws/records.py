"""What every method found before the core was changed: losses, metrics and the model's length, round by round.

`python tests/laws/records.py [METHOD...]` writes (again) the numbers of these methods, or of all, to records.json. A
change of the code that claims to keep the arithmetic leaves the file as it is; where a rule is revised, the numbers of
the methods that have it are written anew in the same commit, which says why.

Networks from scratch run in float64, so that their numbers are the same on every processor. A silo's noise follows from
all that it was told, to the last bit, which processors round differently: of such methods only the first round is
compared elsewhere. Backbones are float32, and
their random weights depend on the version of `transformers`: they are compared only where they were recorded.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny
import tiny_backbones
from fairsilo.config import EvaluateSettings, TrainSettings
from fairsilo.data.federation import Federation, pooled
from fairsilo.engine.base import Engine
from fairsilo.engine.events import Callback, Event, silent
from fairsilo.engine.features import keep_features
from fairsilo.engine.loop import Loop
from fairsilo.engine.sequential import Sequential
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.text import method

FILE = Path(__file__).with_name("records.json")
ON_BACKBONES = tiny.ON_BACKBONES
NAMES = tiny.ALL
NOISY = ("dp-sgd", "dp-updates")
SLOWER = dataclasses.replace(tiny.TRAINING, lr=0.02, rounds=2)


def double_net(how: str) -> Callable[[int, int], nn.Module]:
    return lambda classes, channels: tiny.network_for(method(how))(classes, channels).double()


def machine() -> str:
    return f"{platform.machine()}, torch {torch.__version__.split('+')[0]}, transformers {version('transformers')}"


def made(
    how: str,
    training: TrainSettings | None = None,
    people: Federation | None = None,
    *,
    listener: Callback = silent,
    wrap: Callable[[Engine], Engine] = lambda engine: engine,
    strict: bool = True,
    every: int = 1,
) -> Loop:
    """A short run of any method, ready to start: on the network from scratch, or on the backbone it is built around."""
    people = people or tiny.federation()
    name = how.split(" | ")[0].partition("(")[0]
    on_backbone = how in ON_BACKBONES or bool(CATALOGUE[name].model)
    model: Any = double_net(how)
    if on_backbone:
        people = tiny_backbones.enlarged(people)
        model = tiny.backbone("vit" if "vit" in CATALOGUE[name].model and name != "fedag" else "clip")
    synthetic = {silo.name: silo.validation for silo in people.silos}
    if name == "fedag":  # CLIP at the server, small networks at the silos
        given = how.partition("(")[2].removesuffix(")")
        how = f"fedag({', '.join(filter(None, (f'backbone={model}', given)))})"
        model = tiny.TinyNet
    if method(how).pools:
        people = pooled(people)
    plan = tiny.plan(how, training or (SLOWER if on_backbone else tiny.TRAINING), model=model)
    ready = keep_features(plan, people, people.silos[0].validation)
    return Loop(
        ready.plan,
        ready.federation.roster,
        wrap(Sequential(ready.plan, ready.federation, strict=strict)),
        evaluate=EvaluateSettings(every=every),
        listener=listener,
        server_data=ready.server_data,
        synthetic=synthetic,
    )


def record(how: str) -> dict[str, Any]:
    """Every number of a short run: losses and metrics in the order of the rows, and the model's length."""
    norms: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "round":
            norms.append(float(loop.server.vector.double().norm()))

    loop = made(how, listener=listen)
    history = loop.run()
    return {
        "losses": [rounded(record["train_loss"].values()) for record in history.rounds],
        "metrics": rounded(value for row in history.rows for value in (row["loss"], row["metric"])),
        "norms": rounded(norms),
    }


def rounded(values: Any) -> list[float]:
    return [float(f"{float(value):.9g}") for value in values]


def first_round(found: dict[str, Any]) -> dict[str, Any]:
    rounds = len(found["losses"])
    return {key: values[: len(values) // rounds] for key, values in found.items()}


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
    most = kept["machine"] if names and kept["machine"] else machine()  # where all were recorded but those that say so
    elsewhere = {"machine": machine()} if machine() != most else {}
    for name in names or NAMES:
        methods[name] = record(name) | elsewhere
        sys.stdout.write(f"{name}\n")
    lines = [f"{json.dumps(name)}: {json.dumps(methods[name])}" for name in NAMES if name in methods]
    FILE.write_text(f'{{"machine": {json.dumps(most)}, "methods": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
