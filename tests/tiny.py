"""The federation of the laws, the methods they are tried on, and the ways the law suite runs them."""

from __future__ import annotations

import atexit
import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairsilo.config import TrainSettings
from fairsilo.core.attachments import EACH_UPDATE, WIRE, Sends
from fairsilo.core.messages import MODEL, Message
from fairsilo.core.method import Method
from fairsilo.core.part import About, Part
from fairsilo.core.samples import Split
from fairsilo.core.server import Server, Updates
from fairsilo.data.federation import Federation, pooled
from fairsilo.engine.base import Engine
from fairsilo.engine.events import Callback, silent
from fairsilo.engine.features import keep_features
from fairsilo.engine.host import Blueprint
from fairsilo.engine.loop import History, Loop
from fairsilo.laws.tiny import (
    CLASSES,
    TRAINING,
    TinyNet,
    enlarged,
    federation,
    looped,
    network_for,
    numbers,
    samples,
    silo,
)
from fairsilo.laws.tiny import server_images as synthetic
from fairsilo.methods.catalogue import CATALOGUE
from fairsilo.methods.text import method
from fairsilo.tasks.classify import Classify
from tiny_backbones import write_clip, write_vit


def server_net(classes: int, channels: int) -> nn.Module:
    """A larger network, which only the server trains."""
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * 36, 16), nn.ReLU(), nn.Linear(16, classes))


def plan(how: Method | str, training: TrainSettings = TRAINING, seed: int = 0, **changes: Any) -> Blueprint:
    made = method(how) if isinstance(how, str) else how
    return dataclasses.replace(
        Blueprint(made, network_for(made), Classify(CLASSES), 3, training, seed, silos=("a", "b", "c")), **changes
    )


def run(
    how: Method | str,
    people: Federation,
    training: TrainSettings = TRAINING,
    *,
    seed: int = 0,
    folder: Path | None = None,
    listener: Callback = silent,
    wrap: Callable[[Engine], Engine] = lambda engine: engine,
    engine: Callable[[Blueprint, Federation], Engine] | None = None,
    server_data: Split | None = None,
    **settings: Any,
) -> tuple[History, Loop]:
    """A run of a method on a federation, from the folder's checkpoint where there is one.

    A method built around a CLIP or ViT runs on a tiny random one, with larger images, a lower rate and kept features.
    """
    made_images: dict[str, Split] = {}
    if isinstance(how, str) and built_around(how):
        blueprint, people, server_data, made_images = on_backbone(how, people, training, seed)
    else:
        blueprint = plan(how, training, seed)
    loop = looped(
        blueprint,
        people,
        folder=folder,
        listener=listener,
        wrap=wrap,
        engine=engine,
        server_data=server_data or synthetic(),
        synthetic=made_images,
        **settings,
    )
    return loop.run(), loop


def built_around(how: str) -> str:
    """The backbone that the catalogue names for a method; empty where it trains a network of its own."""
    return CATALOGUE[how.split("|")[0].strip().partition("(")[0].partition(".")[0]].model


def on_backbone(
    how: str, people: Federation, training: TrainSettings, seed: int = 0
) -> tuple[Blueprint, Federation, Split | None, dict[str, Split]]:
    """Plan, silos, the server's images and synthetic ones for a method that is built around a CLIP or a ViT."""
    silos = enlarged(people)
    model: Any = backbone("vit" if "vit" in built_around(how) and how != "fedag" else "clip")
    made = {silo.name: silo.validation for silo in silos.silos}
    if how == "fedag":  # CLIP at the server, small networks at the silos
        model, how = TinyNet, f"fedag(backbone={model}, server_lr=0.01)"
    if method(how).pools:
        silos = pooled(silos)
    slower = dataclasses.replace(training, lr=0.2 * training.lr)
    planned = plan(how, slower, seed, model=model, silos=silos.names)
    ready = keep_features(planned, silos, silos.unseen[0].validation)  # the server's data depend on no silo's name
    return ready.plan, ready.federation, ready.server_data, made


@cache
def backbone(kind: str) -> str:
    """The text that names a tiny random backbone, written once a session."""
    folder = Path(tempfile.mkdtemp(prefix="fairsilo-backbone-")) / kind
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    if kind == "vit":
        return f"vit:{write_vit(folder)}"
    return f"clip:{write_clip(folder, layers=6)}"


@dataclass(frozen=True)
class TwoModels(Part):
    """Shaped like FedAG: another model at the server than at the silos, a message per silo, training on the server.

    Silos train small models of their own, which the server keeps apart, distils into its larger network on data of
    its own, and hands back each to its silo.
    """

    name = "two-models"
    about = About(sends=(Sends("initial", shape=WIRE, exchange="share"), EACH_UPDATE))
    does = frozenset({"ignores-weights"})

    def server_network(self, network: nn.Module, classes: tuple[str, ...], silos: tuple[str, ...]) -> nn.Module:
        return server_net(len(classes), 3)

    def prepare(self, server: Server) -> None:
        initial = server.ask("share", dict.fromkeys(server.names, Message({}, {"part": self.name})))
        server.memory.of(self)["models"] = {name: answer.tensors["initial"] for name, answer in initial.items()}

    def share(self, silo: Any, message: Message) -> Message:
        return Message({"initial": silo.model.layout.to_wire(silo.untrained())})

    def broadcast(self, server: Server, silo: str, message: Message) -> Message:
        message.tensors[MODEL] = server.memory.of(self)["models"][silo]
        return message

    def collect(self, server: Server, updates: Updates) -> Updates:
        models = dict(server.memory.of(self)["models"])
        for name, delta in zip(updates.silos, updates.deltas, strict=True):
            models[name] = models[name] + delta
        server.memory.of(self)["models"] = models
        return updates

    def combine(self, server: Server, updates: Updates, weights: Tensor) -> Tensor:
        return torch.zeros_like(server.vector)

    def step(self, server: Server, direction: Tensor) -> Tensor:
        assert server.data is not None
        assert server.own_model is not None
        inputs, targets = server.data.inputs.float().div(127.5).sub(1), server.data.targets
        flat = server.own_model
        flat.load(server.vector)
        optimizer = torch.optim.SGD([flat.parameters], lr=0.05)
        for _ in range(10):
            flat.gradients.zero_()
            nn.functional.cross_entropy(flat.module(inputs), targets).backward()
            optimizer.step()
        return flat.read() - server.vector


def two_models() -> Method:
    return Method((TwoModels(),), "two-models")


__all__ = ["CLASSES", "TRAINING", "TinyNet", "enlarged", "federation", "numbers", "samples", "silo", "synthetic"]

# every entry, its variants, and compositions across kinds of hooks
COMPOSED = (
    "fedprox(mu=0.1) | fedheal",
    "fedheal(variant=paper)",
    "faa(warmup=0)",
    "faa(every=2, warmup=0)",
    "ga(warmup=0, metric=accuracy)",
    "scaffold | faa(warmup=0)",
    "scaffold | fedheal(mask_buffers=true)",
    "fedbn | fedmix | ga(warmup=0)",
    "ditto | q-ffl",
    "fedprox | fedbn | ditto | fphl",
    "fedproto(share_model=false)",
    "afl(carry=false, floor=0.001)",
    "term(official=true)",
    "fedfv(tau=3)",
    "feddyn | fedheal",
    "fedprox | fednova",
    "harmofl | faa(warmup=0)",
    "scaffold | fedavgm",
    "fedbn | q-ffl",
    "ditto(aggregate_personal=true)",
    "fedrep(turns=batches)",
    "fedmtl(regularizer=true)",
    "grace(align=adversarial) | tent",
    "fedrod | fedrep",
    "fedprox | fine-tune(finetune_what=head)",
    "moon | grace-server | dsbn(statistics=batch)",
)
COMPOSED_ON_CLIP = ("fedclip | fft-gp", "fedclip | ditto", "fedclip | scaffold", "promptfl | grace", "promptfl | ga")
COMPOSED_ON_VIT = ("vpt | fedheal", "vpt | fedsam", "vpt | fedmix(group=2)", "fedgcr(variant=released)")
PLAIN = (*(name for name, entry in CATALOGUE.items() if not entry.model), *COMPOSED)
ON_BACKBONES = (*(name for name, entry in CATALOGUE.items() if entry.model), *COMPOSED_ON_CLIP, *COMPOSED_ON_VIT)
ALL = (*PLAIN, *ON_BACKBONES)
# three silos of thirty samples cannot be private and learn: there is little noise where learning is asked for
QUIET = {"dp-updates": "dp-updates(clip=5, noise=0.005)", "dp-sgd": "dp-sgd(clip=5, noise=0.02)"}
# one method for every kind of hook
KINDS = ("fedprox", "scaffold", "q-ffl", "ga(warmup=0)", "faa(warmup=0)", "fedheal", "fedmix", "ditto", "fedbn")
